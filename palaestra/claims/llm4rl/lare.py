"""The claim of lare: LaRe: latent reward credit assignment."""

import palaestra as pl
from palaestra.recipes.llm4rl.lare import LaRe, Reward, embedded


def arm(reward: Reward, steps: int) -> LaRe:
    """What is learned from; the factors are the recorded ones."""
    return embedded(credit=reward, steps=steps)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "start": arm("episodic", steps=0),
        "dense": arm("dense", steps=150_000),
        "episodic": arm("episodic", steps=150_000),
        "state": arm("state", steps=150_000),
        "sampled state": arm("sampled state", steps=150_000),
        "factors": arm("factors", steps=150_000),
        "shuffled": arm("shuffled", steps=150_000),
        "constant": arm("constant", steps=150_000),
    },
    start=None,
    expect=pl.ledger.Greater(
        "factors", "state", by=3.0, why="an eighth of what separates the start from true rewards"
    ),
    reasons=(
        pl.ledger.Needs("shuffled", "factors of the step that is rewarded"),
        pl.ledger.Needs("constant", "factors that differ between steps"),
    ),
    measure=pl.ledger.Final("return"),
    metric="mean true return of 256 games of 25 steps, three agents together",
    tuned={"learner.lr": (5e-4, 1e-3, 2e-3)},
    tokens=0,
    budget={"env_steps": 150_400},  # the last games are played to their end
    evaluate=0,
    seconds=40,
    controls={
        "correlation of given and true rewards": pl.ledger.Final("correlation"),
        "environment steps": pl.ledger.Final("env_steps"),
        "factors": pl.ledger.Final("factors"),
        "calls of the chat model": pl.ledger.Final("calls"),
    },
)
