"""CPO: DPO without a reference, beside imitation of the chosen answer.

loss = -log sigmoid(beta (log pi(chosen) - log pi(rejected))) + sft * NLL(chosen) (arXiv:2401.08417, eq. 3
to 5): the reference is taken to be uniform, and imitation keeps the policy from unlearning the chosen
answer. The NLL is per token of the answer, as in the authors' code and TRL; `smoothing` mixes in
flipped labels.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="CPO: Contrastive Preference Optimization",
    paper="arXiv:2401.08417",
    claim="A reference-free preference loss with imitation lifts a 13B translator to the level of GPT-4.",
    source="paper, TRL's documentation",
    size=pl.Size(setting="ALMA-13B, 22k pairs of translations, beta 0.1, LoRA"),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        never_off="There is no reference, so the margin is the policy's own and differs from 0 before "
        "any update.",
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where chosen answers are good enough to imitate and no reference fits; without `sft` both "
    "answers of a pair may sink.",
    lacks=("The translation data are not there.",),
    grade="A",
)


def build(
    pairs: Literal["data", "rollouts"] = "data",
    beta: float = 0.1,
    sft: float = 1.0,
    smoothing: float = 0.0,
) -> pl.Recipe:
    loss: Any = pl.DPO(beta=beta, reference_free=True, smoothing=smoothing)
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
