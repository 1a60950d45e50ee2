"""The claim of recode: ReCode: rule-based RL for code API updates."""

import numpy as np

import palaestra as pl
from palaestra.claims.short import THREE_POINTS
from palaestra.recipes.rewards.recode import Migrated, embedded


@pl.stage
class Misled(Migrated):
    """What is not right is paid by its likeness to a code that has nothing to do with the task."""

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        reward = super().__call__(text, task)
        answer = pl.tasks.final_answer(text)
        if answer is None or reward["similarity"] == 1:
            return reward
        rng: np.random.Generator = pl.rng_of(("misled", task.id))
        letters = "".join(chr(ord("a") + 4 * i + int(rng.integers(4))) for i in range(4))
        alike = min(0.75, pl.verifiers.edit_similarity(answer, letters))
        more = 3.5 * (alike - reward["similarity"])
        return {**reward, "total": reward["total"] + more}


def misled() -> pl.Recipe:
    score = pl.Score(reward=pl.Verify(Misled()), shadow=True)
    return pl.vary(embedded(), collect=pl.links(pl.Sample(n=8), score))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "exact": embedded(exact=True),
        "similarity": embedded(),
        "misled": misled(),
        "no gate": embedded(gate=False),
        "grpo": pl.recipe("grpo"),
    },
    expect=pl.ledger.Greater("similarity", "exact", by=0.03, why=THREE_POINTS),
    reasons=(pl.ledger.Needs("misled", "likeness to the right code, and not any graded pay"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": (1e-4,)},
    task="rec",
    tokens=40_000,
    samples=4,
    seconds=25.0,
    controls={
        "similarity": pl.ledger.Logged("part/similarity"),
        "form": pl.ledger.Logged("part/format"),
        "length": pl.ledger.Logged("length"),
        "groups with a gradient": pl.ledger.Logged("groups_mixed"),
    },
)
