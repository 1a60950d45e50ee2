"""RL on incorrect synthetic data: unlearns the step at which a wrong answer lost its chances, by
preference pairs that end there, which is advantage-weighted RL.

For a wrong answer with steps a_1..a_H, Q(s_h, a_h) is the chance that the best of K = 5
continuations from there succeeds, and A_h = Q(s_h, a_h) - Q(s_{h-1}, a_{h-1}). Its pit is the first
step that attains the lowest Q. Pairs and loss (arXiv:2406.14532, section 4):

    y- = the wrong answer up to its pit,  y+ = a right answer ("root") or a right continuation from before the pit ("branch")
    loss = -log sigmoid(beta [log pi(y+)/pi_ref(y+) - log pi(y-)/pi_ref(y-)])

For suitable pairs this gives pi ~ pi_ref exp(A / beta): bad steps are unlearnt, also where they
stand in right answers. `form="whole"` rejects all of the wrong answer: the control, with arbitrary
pairs. The order of Q is that of the policy's own chances, so K changes values and not the pit.
Groups without a right or without a wrong answer make no pair; both pair forms come from accounts of
the paper, as does beta. Answers come from the policy as it is, not once from the start model.
"""

from typing import Literal

from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="RL on incorrect synthetic data: per-step negatives, advantage-weighted",
    paper="arXiv:2406.14532",
    claim="Negatives cut at their worst step are worth eight times the data; whole wrong answers "
    "as negatives are not.",
    source="accounts of the paper; beta and the branch form inferred",
    size=pl.Size(
        setting="DeepSeekMath 7B and Llama-2 7B on GSM8K and MATH, 8 samples a question, K = 5; "
        "beta is not known",
        model="deepseekmath-7b",
        samples=8,
    ),
    needs=pl.needs.Requirements(
        shows="late",
        never_off="It is a share of the pairs, 0 where no wrong answer has steps behind the one that goes "
        "wrong, and no argument makes answers so.",
        own={"schedule.prompts": 8, "n": 2},
    ),
    use="It helps where wrong answers go wrong at one step of several; answers of one line are compared "
    "whole, as in DPO.",
    lacks=(
        "Questions and first answers are not made by a stronger model: bring your own questions.",
        "Answers are sampled from the policy in every step, not once from the supervised "
        "model as in the paper.",
        "Fine-tuning on the model's own right answers, with which the abstract compares, is "
        "not there.",
        "Right and wrong answers of your own cannot be brought.",
    ),
    grade="B",
)


@pl.stage
class Late(pl.Algebra):
    """Logs the share of pairs whose wrong answer has steps behind its pit; adds nothing to the
    gradient.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    @property
    def couples(self) -> pl.objective.Couples:
        return "unit"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.mask.new_zeros(()), {"late": batch["late"].sum() / batch.n_units}


def build(
    form: Literal["root", "branch", "whole"] = "root",
    n: int = 5,
    beta: float = 0.1,
    sft: float = 0.0,
    right: float | None = None,
) -> pl.Recipe:
    """`sft` weighs the imitation of the preferred answers. `right` is the reward from which on an
    answer is right; None = as the reward says, else 1.
    """
    loss = pl.DPO(beta=beta) + Late()
    rescue = (pl.rollout.Rescue(n=n, right=right),) if form == "branch" else ()
    return pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(
            pl.Sample(n=8),
            pl.Score(),
            pl.rollout.PrefixValues(n=n, wrong_only=True, right=right),
            *rescue,
        ),
        credit=pl.credit.StepPairs(form=form, right=right),
        objective=loss + sft * pl.objective.ImitatePreferred() if sft else loss,
    )
