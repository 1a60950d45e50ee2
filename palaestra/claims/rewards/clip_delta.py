"""The claim of clip-delta: Designing RL rewards at training time: Clipping and Delta for PRMs."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.short import ACCURACY, FRESH
from palaestra.recipes.rewards.clip_delta import embedded

ALPHA = 0.2


@pl.stage
class MeanOfScores:
    """The plain scores of an answer divided by the number of its steps: what they pay in all is
    bounded, and one more true line adds little (one pays .17, four .188).
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        def bounded(e: pl.Episode) -> pl.Episode:
            if e.reward is None:
                return e
            steps = [v for v in e.reward.events if v.part == "steps"]
            paid = {id(v): replace(v, value=v.value / len(steps)) for v in steps}
            mean = sum(v.value for v in paid.values())
            return replace(
                e,
                reward=replace(
                    e.reward,
                    total=e.reward.parts["right"] + mean,
                    parts={**e.reward.parts, "steps": mean},
                    events=tuple(paid.get(id(v), v) for v in e.reward.events),
                ),
            )

        return replace(group, episodes=tuple(map(bounded, group.episodes)))


def arm(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts with 8 answers a step, for as many steps as the tokens pay for."""
    return pl.vary(learned, schedule=FRESH)


def bounded() -> pl.Recipe:
    learned = embedded("plain", alpha=ALPHA)
    links = learned.collect.links  # type: ignore[union-attr]
    return arm(pl.vary(learned, collect=pl.links(*links, MeanOfScores())))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "success": arm(pl.recipe("ppo")),
        "plain": arm(embedded("plain", alpha=ALPHA)),
        "clip": arm(embedded("clip", alpha=ALPHA)),
        "delta": arm(embedded("delta", alpha=ALPHA)),
        "clip-delta": arm(embedded(alpha=ALPHA)),
        "mean of scores": bounded(),
    },
    expect=pl.ledger.Greater(
        "clip-delta", "plain", by=0.1, why="half of what the paper's plain scores cost on MATH"
    ),
    reasons=(
        pl.ledger.Needs("clip", "differences, beside clipping"),
        pl.ledger.Needs("delta", "clipping, beside differences"),
        pl.ledger.Needs("mean of scores", "more than a bound on what the steps pay in all"),
    ),
    vetoes={"accuracy of success": pl.ledger.Veto(ACCURACY, falls=0.03, against="success")},
    measure=ACCURACY,
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": (5e-5, 1e-4, 2e-4)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="chain",
    tokens=24_000,
    evaluate=128,
    samples=4,
    seconds=16.0,
    controls={
        "length": pl.ledger.Logged("length", last=5),
        "share of right answers, last 5 steps": pl.ledger.Logged("part/right", last=5),
        "paid for steps, last 5 steps": pl.ledger.Logged("part/steps", last=5),
        "entropy": pl.ledger.Logged("entropy_sampled", last=5),
    },
)
