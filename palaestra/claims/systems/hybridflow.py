"""The claim of hybridflow: HybridFlow (verl): hybrid controller, resharding.

`Resharding` does one of the three ways with DTensor on processes of this machine, counts what
arrives, and runs the model in its generation groups.
"""

import palaestra as pl


@pl.stage
class Resharding:
    """A program: the share of the linear weights that a rank receives, the most of any rank."""

    way: pl.planning.Way = "grouped"
    train: int = 4  # ranks of a tensor-parallel group
    generate: int = 2
    data: int = 2  # replicas

    async def run(self, ctx: pl.Context) -> pl.Result:
        return pl.Result(metrics={**self.measure(ctx.seed), "sampled_tokens": 0})

    def measure(self, seed: int) -> dict[str, float]:
        layout = pl.planning.TensorLayout(train=self.train, generate=self.generate, data=self.data)
        ranks = pl.scale.run_ranks(layout.ranks, pl.planning.reshard, self.way, layout, seed)
        arrived = [x.arrived / x.model for x in ranks if x.arrived is not None]
        return {
            "received": max(x.received / x.model for x in ranks),
            "least_received": min(x.received / x.model for x in ranks),
            "arrived": max(arrived, default=float("nan")),
            "formula": layout.traffic(self.way),
            "kept_twice": max(x.kept / x.model for x in ranks),
            "logits": max(x.logits for x in ranks),
        }


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grouped": Resharding("grouped"),
        "model group": Resharding("model group"),
        "all ranks": Resharding("all ranks"),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("grouped", "model group", by=0.5, why="3/4 - 1/4"),
    measure=pl.ledger.Less(pl.ledger.Final("received"), of=1.0),
    metric="share of the linear weights that a rank need not receive",
    tokens=1,
    evaluate=0,
    seconds=10,
    controls={
        "received, most of any rank": pl.ledger.Final("received"),
        "received, least of any rank": pl.ledger.Final("least_received"),
        "by the formula": pl.ledger.Final("formula"),
        "arrived at sockets": pl.ledger.Final("arrived"),
        "kept twice": pl.ledger.Final("kept_twice"),
        "largest difference of logits": pl.ledger.Final("logits"),
    },
)
