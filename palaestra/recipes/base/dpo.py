"""DPO: raises the likelihood of the chosen answer of each pair over that of the rejected one,
measured against the start: a classification of pairs by the policy's own log-ratios.

loss = -log sigmoid(beta * [(log pi - log ref)(chosen) - (log pi - log ref)(rejected)])
(arXiv:2305.18290v3, eq. 7). Pairs are recorded (`pairs="data"`: columns prompt, chosen, rejected)
or built from the policy's own rollouts, the best against the worst of a group (`pairs="rollouts"`,
online DPO as in arXiv:2402.04792).

Options, all off: `smoothing` is the share of labels taken to be flipped (conservative DPO); with
`robust` the loss is corrected for that share instead (arXiv:2403.00409); `normalise` takes log-ratios
per token; `sft` adds that much of the chosen answer's loss per token (RPO, arXiv:2404.19733).
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="Direct Preference Optimization",
    paper="arXiv:2305.18290",
    claim="Preferences can be optimised without a reward model and without sampling, at the "
    "quality of PPO.",
    source="paper",
    size=pl.Size(
        setting="Pythia 2.8B on Anthropic HH, GPT-J on TL;DR, beta 0.1, lr 1e-6, batch 64",
        model="pythia-2.8b",
        prompts=64,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where people or models compared answers and nothing can verify one; with a verifier, "
    "methods that sample learn more.",
    lacks=("The data sets of the paper, and its comparison with PPO, are not there.",),
    grade="A",
)


def build(
    pairs: Literal["data", "rollouts"] = "rollouts",
    beta: float = 0.1,
    smoothing: float = 0.0,
    robust: bool = False,
    normalise: bool = False,
    sft: float = 0.0,
) -> pl.Recipe:
    loss: Any = pl.DPO(beta=beta, smoothing=smoothing, robust=robust, normalise=normalise)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score())
        if pairs == "rollouts"
        else pl.links(pl.Recorded()),
        credit=pl.credit.Prefer(),
        objective=loss + sft * pl.objective.ImitatePreferred() if sft else loss,
        needs=(("ref", "logp"),),
        references={"ref": "policy"},
    )
