"""BCO: trains the implicit reward to tell good answers from bad ones; labels need no pairs.

loss = -log sigmoid(r - d) of a good answer and -log sigmoid(d - r) of a bad one, r = beta (log pi - log ref)
and d = (mean r of good + mean r of bad) / 2 of the batch, through which no gradient flows
(arXiv:2404.04656). The shift keeps the classifier balanced: without it both sides are pushed from the
start's r = 0. `good` and `bad` weigh the sides.

`answers="data"`: labelled answers (columns prompt, response, right; TRL's completion and label are
read as these). `answers="sampled"`: the policy's own answers, good where they are right, or
their reward is `right` or more.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="BCO: Binary Classifier Optimization",
    paper="arXiv:2404.04656",
    claim="A binary classifier of good and bad answers bounds DPO's loss, so labels align as pairs do.",
    source="paper's formula by the documentation of TRL",
    needs=pl.needs.Requirements(
        columns=pl.needs.LABELLED,
        shows="margin",
        off={"optimiser.lr": 0.0},  # the reference itself
        own={"answers": "data", "schedule.prompts": 8},
    ),
    use="It helps as `kto` does, where answers are labelled one by one; it needs no second answer for its "
    "reference point.",
    lacks=(
        "The shift is that of the batch and has no memory of earlier steps.",
        "The weights for prompts that are good more often than bad are not there.",
    ),
    grade="B",
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
    return pl.vary(
        pl.recipe("dpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score())
        if answers == "sampled"
        else pl.links(pl.Recorded()),
        credit=pl.credit.LabelAnswers(right),
        objective=pl.objective.BCO(beta=beta, good=good, bad=bad),
    )


def embedded(answers: Literal["data", "sampled"] = "sampled", **options: Any) -> pl.Recipe:
    """On the embedded problem, which has no labels: the policy's own answers are scored."""
    return build(answers, **options)
