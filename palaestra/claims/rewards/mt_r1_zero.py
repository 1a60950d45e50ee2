"""The claim of mt-r1-zero: MT-R1-Zero: rule-metric mixed reward for translation."""

import palaestra as pl
from palaestra.recipes.rewards.mt_r1_zero import build


@pl.stage
class Both:
    """Mean of the two metrics over the last ten steps."""

    def __call__(self, cell: pl.ledger.Cell) -> float:
        return (pl.ledger.Logged("part/lex")(cell) + pl.ledger.Logged("part/sem")(cell)) / 2


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "lex": build("lex"),
        "sem": build("sem"),
        "mix": build("mix"),
        "mix without gate": build("mix", gate=False),
        "mix of discrete": build("mix", threshold=1.0),
    },
    expect=pl.ledger.Greater("mix", "sem"),
    measure=Both(),
    metric="mean of BLEU / 100 and chrF / 100 of the answers, last ten steps",
    task="add(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "lexical": pl.ledger.Logged("part/lex"),
        "semantic": pl.ledger.Logged("part/sem"),
        "length": pl.ledger.Logged("length"),
    },
)
