"""The claim of demo-regularized-rl: episodes that fall as 1 / N_E."""

import palaestra as pl
from palaestra.recipes.data.demo_regularized_rl.tables import DemonstrationRegularised

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "start": DemonstrationRegularised(most=0),
        "nobody": DemonstrationRegularised("nobody"),
        "expert": DemonstrationRegularised(),
    },
    start=None,
    expect=pl.ledger.Greater(
        "expert",
        "nobody",
        by=0.6,
        why="the flattest slope that a law of 1 / N_E would be seen in, as both ends of the range bend",
    ),
    reasons=(pl.ledger.Needs("nobody", "an expert whose actions the clone has"),),
    vetoes={
        "value of the policy": pl.ledger.Veto(
            pl.ledger.Less(pl.ledger.Final("missing")), falls=0.005
        )
    },
    measure=pl.ledger.Less(pl.ledger.Final("slope")),
    metric="fall of log10 episodes by a factor of ten in demonstrations",
    tuned={"strength": (0.3, 1.0, 3.0)},
    tokens=0,
    budget={"env_steps": 25_000_000},
    evaluate=0,
    seconds=15,
    controls={
        "powers of ten fewer episodes to know, 1,600 against none": pl.ledger.Final("saved"),
        "powers of ten fewer episodes to find": pl.ledger.Final("saved_first"),
        "missing value in the end": pl.ledger.Final("missing"),
    },
)
