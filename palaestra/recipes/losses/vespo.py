"""VESPO: REINFORCE whose answers are weighed by a smooth function of their whole ratio, in the place of a clip.

    palaestra train vespo --data FILE.jsonl --model DIR

loss = -sg(phi(w_i)) A_i log pi(y_t), w_i = pi(y_i) / pi_behaviour(y_i) of the whole answer, phi(w) = w^k e^(lam (1 -
w)), a mean over all tokens of the batch, with GRPO's advantage (arXiv:2602.10693; sg stops the gradient). phi is 1
on policy; it falls to 0 for answers that the policy would hardly say any more, by k, and for those that it says
much more often, by lam. Right and wrong answers have their own: k = 2, lam = 3 where A >= 0, else 3 and 2. No mean
over the length is taken, so a long answer leaves the trust region sooner: lr and staleness that hold for GRPO may be
too much here.
"""

import palaestra as pl

CARD = pl.Card(
    title="VESPO: Variational Sequence-Level Soft Policy Optimization",
    paper="arXiv:2602.10693",
    claim="A kernel on whole answers' ratios trains stably on batches that are up to 64 updates old.",
    source="abstract; released code (FloyedShen/VESPO: core_algos.py and its runs), TRL's loss vespo",
    needs=pl.needs.Requirements(
        shows="gamma_weight",
        never_off="At a ratio of 1 the weight is a constant of the kernel, not 0: sequences are "
        "weighed in every arm.",
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where batches are old or come from another engine; in the first update on a batch it is REINFORCE "
    "with GRPO's advantage.",
    lacks=(
        "The ratio of the sampler to the trainer's own log-probs is not multiplied in apart: pi_behaviour is the sampler.",
        "Staleness of 64 updates, fully asynchronous training and mixtures of experts are not shown.",
    ),
    grade="A",
)


def build(
    k_up: float = 2.0,
    lam_up: float = 3.0,
    k_down: float = 3.0,
    lam_down: float = 2.0,
    minibatches: int = 4,
) -> pl.Recipe:
    """`up` is of answers with A >= 0."""
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.objective.GammaWeighted(k_up, lam_up, k_down, lam_down),
        update=pl.Plain(minibatches=minibatches),
    )
