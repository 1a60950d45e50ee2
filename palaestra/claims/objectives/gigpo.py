"""The claim of gigpo: Group-in-Group Policy Optimization."""

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.objectives.gigpo import build


def turn_return_recipe(gamma: float = 0.95) -> pl.Recipe:
    """The same returns by turn, compared with all turns of the group instead of those in the same
    state.
    """
    whole = (pl.Center("group"), pl.Scale("group"))
    steps = (pl.credit.TurnReturns(gamma), *whole)
    return pl.vary(
        build(),
        credit=pl.chain(
            pl.credit.Peers(pl.credit.SameState()), pl.credit.Blend(((1.0, whole), (1.0, steps)))
        ),
    )


def shrink(learned: pl.Recipe) -> pl.Recipe:
    """Half the prompts, so that twice as many steps fit into a cell."""
    return pl.vary(learned, schedule=pl.Schedule(prompts=8))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "episode-only": shrink(build(omega=0.0, std=True, invalid=0.0)),
        "gigpo": shrink(build(std=True, invalid=0.0)),
        "any-state": shrink(turn_return_recipe()),
        "step-only": shrink(build(episode=0.0, std=True, invalid=0.0)),
    },
    expect=pl.ledger.Greater(
        "gigpo", "episode-only", by=0.03, why="a third of the smaller gain in the paper"
    ),
    reasons=(pl.ledger.Needs("any-state", "comparisons in the same state"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out success (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="grid",
    tokens=20_000,
    evaluate=128,
    samples=4,
    seconds=90.0,
    controls={
        "turns in the same state": pl.ledger.Logged("peers", last=0),
        "tokens an episode": pl.ledger.Logged("length"),
    },
)
