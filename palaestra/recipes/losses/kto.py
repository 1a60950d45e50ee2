"""KTO: learns from single answers that are labelled good or bad; nobody has to compare two of them.

A good answer costs 1 - sigmoid(beta (h - z)), a bad one 1 - sigmoid(beta (z - h)), h = log pi - log ref
of the answer and z = max(0, mean h of answers to other prompts), the reference point, through which no
gradient flows (arXiv:2402.01306, eq. 7 and 8). An answer far on either side of z teaches little.
`good` and `bad` are lambda_D and lambda_U: with unequal sides keep good * n_good near 1 to 4/3 times
bad * n_bad.

`answers="data"`: labelled answers (columns prompt, response, right; TRL's completion and label are
read as these, or with `--columns completion=response,label=right`). For each, the answer of another
record is read behind its prompt, which doubles the forward pass. `answers="sampled"`: the policy's own
answers, good where they are right, or their reward is `right` or more; z is then their mean h.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="KTO: Kahneman-Tversky Optimization",
    paper="arXiv:2402.01306",
    claim="Labels of single answers teach as much as preference pairs.",
    source="paper",
    needs=pl.needs.Requirements(
        columns=pl.needs.LABELLED,
        shows="margin",
        off={"optimiser.lr": 0.0},  # the reference itself
        own={"answers": "data", "schedule.prompts": 8},
    ),
    use="It helps where answers were liked or not, one by one, or one side is rare; with pairs at hand DPO "
    "reads them as pairs.",
    lacks=("The data sets of the paper are not there.",),
    grade="A",
)


def build(
    answers: Literal["data", "sampled"] = "data",
    beta: float = 0.1,
    good: float = 1.0,
    bad: float = 1.0,
    right: float | None = None,
) -> pl.Recipe:
    """`good` and `bad` weigh the two sides. `right`: the reward from which on an answer is good;
    None = the reward says it.
    """
    sampled = answers == "sampled"
    return pl.vary(
        pl.recipe("dpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score())
        if sampled
        else pl.links(pl.Recorded(), pl.rollout.MismatchedAnswer()),
        credit=pl.credit.LabelAnswers(right),
        objective=pl.objective.KTO(
            beta=beta, good=good, bad=bad, point="batch" if sampled else "mismatched"
        ),
    )


def embedded(answers: Literal["data", "sampled"] = "sampled", **options: Any) -> pl.Recipe:
    """On the embedded problem, which has no labels: the policy's own answers are scored."""
    return build(answers, **options)
