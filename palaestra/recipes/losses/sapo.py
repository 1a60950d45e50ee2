"""SAPO: GRPO with a smooth gate on the ratio in the place of the clip.

loss = -A (4 / tau) sigmoid(tau (rho - 1)), mean over each answer's tokens and then over answers
(arXiv:2511.20347, eq. 5 and 6): a token's gradient falls off smoothly as its ratio leaves 1, as
sech^2(tau (rho - 1) / 2), instead of ending at an edge. tau is 1 for positive and 1.05 for other
advantages, whose gradients raise many unsampled tokens and are less stable.
"""

import palaestra as pl

CARD = pl.Card(
    title="SAPO: Soft Adaptive Policy Optimization",
    paper="arXiv:2511.20347",
    claim="A soft gate in the place of a hard clip trains more stably, and further, than GRPO and GSPO.",
    source="paper, TRL's documentation",
    size=pl.Size(setting="Qwen3-30B-A3B and the Qwen3-VL series"),
    needs=pl.needs.Requirements(
        shows="gate",
        never_off="At a ratio of 1 the gate is 1, so samples of the present weights are let through whole.",
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "optimiser.lr": 0.01},
    ),
    use="It helps where a batch takes several updates; in the first update on a batch it is GRPO.",
    lacks=("The training of mixtures of experts and of vision models is not shown.",),
    grade="A",
)


def build(positive: float = 1.0, negative: float = 1.05, minibatches: int = 4) -> pl.Recipe:
    """`positive` and `negative` are tau of advantages above 0 and of the others."""
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.objective.SoftGated(positive=positive, negative=negative),
        update=pl.Plain(minibatches=minibatches),
    )
