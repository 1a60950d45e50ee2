"""REINFORCE: makes answers likelier by how much their reward is above the mean of the batch.

loss = -(1/B) sum_i (r_i - mean_batch(r)) sum_t log pi(y_t): the score-function estimator (Williams
1992), no ratio, no clip.
"""

import palaestra as pl

CARD = pl.Card(
    title="REINFORCE",
    paper="doi:10.1007/BF00992696",
    claim="The plain score-function gradient with a baseline improves expected reward.",
    source="paper",
    needs=pl.needs.Requirements(
        shows="grad_norm",
        off={"schedule.prompts": 1, "collect.links.0.n": 1},  # one answer is its own baseline
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It is the plain baseline: prompts of different difficulty make its gradient noisy, which a "
    "baseline for each prompt (`rloo`) mends at no cost.",
    grade="A",
)


def build() -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("batch")),
        objective=pl.Reinforce(reduce="constant", length=1),
    )
