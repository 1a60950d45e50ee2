"""MIO: learns from preference pairs, with a push on each answer that does not end when the pair is
apart. The pairs count as two samples of a mutual information, and the Jensen-Shannon estimator of
it stands in the place of the bound that DPO maximises.

    T(x, y) = beta (log pi(y|x) - log pi_ref(y|x)),     loss = softplus(-T(y_w)) / 2 + softplus(T(y_l)) / 2

(arXiv:2506.22578; the scaling by beta and the halves are as public reviews give them). In DPO,
softplus(T(y_l) - T(y_w)), one factor moves both answers: once they are apart, nothing brings back a
chosen answer that sank together with the rejected one, with which it may share most of its tokens.
Here the halves never meet: the chosen answer is pushed up for as long as it is less likely than at
the start. Pairs are the best against the worst of a group of the policy's answers or, with
`pairs="data"`, recorded (columns prompt, chosen, rejected).
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="MIO: mutual-information (Jensen-Shannon) preference optimisation",
    paper="arXiv:2506.22578",
    claim="The Jensen-Shannon estimator mitigates the late fall of the chosen answers' likelihood "
    "under DPO, at equal or better performance in reasoning.",
    source="abstract, public reviews; the constants are those of DPO",
    size=pl.Size(
        setting="several base models, eight benchmarks of maths and reasoning; their names, beta "
        "and the learning rate are not known to us",
    ),
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="chosen",
        off={"optimiser.lr": 0.0},  # the reference itself
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where both answers of a pair have much in common and DPO makes the chosen one less "
    "likely with the other; where the two are far apart, DPO loses little.",
    lacks=(
        "The paper's beta is not known to us, and the scaling by it and the halves are "
        "second-hand.",
        "The benchmarks of reasoning and mathematics are not measured.",
    ),
    grade="A",
)


def build(
    pairs: Literal["data", "rollouts"] = "rollouts", beta: float = 0.1, chosen: float = 0.5
) -> pl.Recipe:
    """`chosen` weighs the half of the chosen answers, 1 - `chosen` the other."""
    return pl.vary(
        pl.recipe("dpo", pairs=pairs),
        objective=pl.objective.JensenShannon(beta=beta, chosen=chosen),
    )
