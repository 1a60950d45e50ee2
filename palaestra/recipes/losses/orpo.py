"""ORPO: imitates the chosen answer and makes the rejected one less likely, in one loss without a
reference.

loss = L_SFT + weight * -log sigmoid(log odds(chosen) - log odds(rejected)), odds = p / (1 - p), p the
geometric mean of the probabilities of an answer's tokens (arXiv:2403.07691, eq. 4 to 7). L_SFT is the
chosen answer's negative log-likelihood per token. Nothing is frozen beside the policy, and no
supervised training has to come first.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="ORPO: Odds Ratio Preference Optimization",
    paper="arXiv:2403.07691",
    claim="Supervised training with an odds-ratio penalty needs neither a reference nor a stage before it.",
    source="paper",
    size=pl.Size(
        setting="Phi-2, Llama-2 7B and Mistral 7B on UltraFeedback, weight 0.1 to 0.25, lr 5e-6",
        lr=5e-6,
    ),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        never_off="There is no reference, so the margin of odds is the policy's own and differs from "
        "0 before any update; `weight=0` leaves it in the log and out of the loss.",
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where a base model is to learn a style and preferences at once; it imitates, so chosen "
    "answers must be good.",
    grade="A",
)


def build(pairs: Literal["data", "rollouts"] = "data", weight: float = 0.1) -> pl.Recipe:
    loss = pl.objective.ImitatePreferred() + weight * pl.objective.OddsRatio()
    return pl.vary(
        pl.recipe("dpo", pairs=pairs),
        objective=loss,
        needs=(),
        references={},
    )


def embedded(pairs: Literal["data", "rollouts"] = "rollouts", **options: Any) -> pl.Recipe:
    """On the embedded problem, which has no pairs: they are made from the policy's own answers."""
    return build(pairs, **options)
