"""SimPO: DPO on log-probs per token, without a reference, with a margin that pairs have to reach.

loss = -log sigmoid(beta (log pi(chosen) / |chosen| - log pi(rejected) / |rejected|) - gamma)
(arXiv:2405.14734, eq. 6): the score of an answer is what generation ranks it by, and length is not
rewarded. beta is larger than in DPO, as means over tokens are small: 2 to 10, and gamma 0.3 to 0.8
times beta. `sft` adds that much of the chosen answer's loss per token (CPO-SimPO). With `alpha` the score
of an answer is (1 - p^-alpha) / alpha, p its geometric mean probability of a token, in the place of log p
(AlphaPO, arXiv:2501.03884).
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="SimPO: Simple Preference Optimization with a reference-free reward",
    paper="arXiv:2405.14734",
    claim="The mean log-prob as the reward needs no reference and beats DPO at equal length.",
    source="paper",
    size=pl.Size(
        setting="Llama-3 8B and Mistral 7B on UltraFeedback, beta 2 to 10, gamma 0.3 to 1.6, lr 3e-7 to 1e-6, batch 128",
        prompts=128,
    ),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        never_off="There is no reference, so the margin is the policy's own and differs from 0 before "
        "any update.",
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where memory for a reference is lacking and answers grow long under DPO; without a reference "
    "only the learning rate keeps the policy near its start.",
    grade="A",
)


def build(
    pairs: Literal["data", "rollouts"] = "data",
    beta: float = 2.0,
    gamma: float = 1.0,
    sft: float = 0.0,
    alpha: float = 0.0,
) -> pl.Recipe:
    loss: Any = pl.DPO(beta=beta, reference_free=True, normalise=True, target=gamma)
    if alpha:
        loss = pl.objective.PowerReward(beta=beta, alpha=alpha, target=gamma)
    loss = loss + sft * pl.objective.ImitatePreferred() if sft else loss
    return pl.vary(
        pl.recipe("dpo", pairs=pairs),
        objective=loss,
        needs=(),
        references={},
    )


def embedded(pairs: Literal["data", "rollouts"] = "rollouts", **options: Any) -> pl.Recipe:
    """On the embedded problem, which has no pairs: they are made from the policy's own answers."""
    return build(pairs, **options)
