"""A reward model from pairs: a head on the start model scores a reply at its end, and the better reply
of a pair shall score higher.

    loss = -log sigmoid(s(chosen) - s(rejected) - margin * gap) + center * (s(chosen) + s(rejected))^2

Bradley and Terry's likelihood; `margin` times the column `gap` is the margin of Llama 2
(arXiv:2307.09288, eq. 2), `center` keeps scores around zero (arXiv:2312.09244, where it is 0.01).
Both are off at 0. The run reports on held-out pairs the share that is ranked right, by how far
apart they are scored, and the calibration error of sigmoid(difference). A checkpoint is loaded by
`AutoModelForSequenceClassification`, and by `--reward FOLDER`.
"""

from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="A reward model from pairs (Bradley-Terry)",
    paper="arXiv:1706.03741",
    claim="A model that is trained on comparisons of answers ranks those it has not seen.",
    source="textbook",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(pl.needs.CHOSEN, type="text or messages"),
            replace(pl.needs.REJECTED, type="text or messages"),
        ),
        shows="ranked",
        never_off="A head that has learned nothing ranks half of the pairs rightly, as ties count "
        "half.",
        own={"schedule.prompts": 4},
    ),
    use="It helps where answers were compared and nothing can verify one; a policy that is trained "
    "against it for long finds what it overrates.",
    lacks=(
        "The policy is not trained in the same run: `--reward` reads the trained model in "
        "another one.",
        "Nobody is asked for new comparisons while the policy learns.",
        "The control tasks and games of the paper, and comparisons of parts of a trajectory, "
        "are not there.",
    ),
    grade="B",
)


def build(center: float = 0.0, margin: float = 0.0) -> pl.Recipe:
    """`center` weighs the square of a pair's summed scores, `margin` the column `gap`."""
    return pl.vary(
        embedded(center, margin),
        collect=pl.links(pl.Recorded()),
        evaluate={"pairs": pl.run.PairExam()},
    )


def embedded(center: float = 0.0, margin: float = 0.0) -> pl.Recipe:
    """On the built-in problem, which has no pairs: the best and the worst of a group of the start
    model's answers.
    """
    loss = (
        pl.objective.BradleyTerryAhead(center=center, margin=margin)
        if margin
        else pl.BradleyTerry(center=center)
    )
    reward = pl.Learner(credit=pl.Compare(), objective=loss, heads=("score",))
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score()),
        learners={"reward": reward},
    )
