"""The claim of l2t: Learning to Think: information-gain dense process reward
(PAC-Bayes, Fisher).
"""

import palaestra as pl
from palaestra.claims.short import short
from palaestra.claims.starts import RATES, unmoved
from palaestra.recipes.rewards.l2t import build


@pl.stage
class TokensPerRight:
    """Sampled tokens for each right answer, over the last steps."""

    last: int = 3

    def __call__(self, cell: pl.ledger.Cell) -> float:
        right = pl.ledger.Logged(
            "part/outcome" if "part/outcome" in cell.steps[-1] else "reward", self.last
        )(cell)
        return pl.ledger.Logged("length", self.last)(cell) / max(right, 1e-3)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmoved(pl.recipe("grpo"), steps=10),
    arms={
        "grpo": short(pl.recipe("grpo")),
        "l2t": short(build()),
        "no penalty": short(build(beta=0.0)),
    },
    expect=pl.ledger.Greater(
        "l2t", "grpo", by=4.0, why="a twentieth of the 90 tokens or so of a right answer"
    ),
    reasons=(pl.ledger.Needs("no penalty", "the penalty on what a step makes the model learn"),),
    vetoes={
        "sampled accuracy": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03)
    },
    choose=pl.ledger.Final("sampled_after.pass@1.mean"),
    measure=pl.ledger.Less(TokensPerRight()),
    metric="sampled tokens a right answer, last three steps, with a minus",
    tuned={"optimiser.lr": RATES},
    constants={"l2t": {"reward.eta": (0.02, 0.05)}},
    task="add(d=6)",
    tokens=24_000,
    evaluate=96,
    samples=4,
    seconds=25.0,
    controls={
        "length": pl.ledger.Logged("length"),
        "gain": pl.ledger.Logged("part/gain"),
        "compression": pl.ledger.Logged("part/compression"),
        "clamped": pl.ledger.Logged("clamped"),
    },
)
