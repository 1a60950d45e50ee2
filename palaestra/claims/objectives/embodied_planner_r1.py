"""The claim of embodied-planner-r1: Embodied Planner-R1 (Interactive Policy Optimization, group
rollout, completion reward).
"""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.beyond import BestAccuracy, untrained
from palaestra.recipes.objectives.embodied_planner_r1 import TaskCompletion, build

TASKS = 96


@pl.stage
class Approach:
    """A dense reward: what is not completed earns the share of the shortest way that is behind it
    (fact "distance").
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        way = float(group.task.meta["start"].distance)

        def shaped(e: pl.Episode) -> pl.Episode:
            covered = max(0.0, 1 - e.facts["distance"] / way)
            return (
                replace(e, reward=replace(e.reward, total=max(e.total, covered))) if e.reward else e
            )

        return replace(group, episodes=tuple(shaped(e) if e.ok else e for e in group.episodes))


@pl.stage
class Coin:
    """Pays each attempt 1 with the probability `share`, whatever came of it."""

    share: float = 0.25

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of((*key, "coin"))
        paid = (pl.Reward(total=float(rng.random() < self.share)) for _ in group.episodes)
        return replace(
            group,
            episodes=tuple(
                replace(e, reward=r) if e.ok and e.reward else e
                for e, r in zip(group.episodes, paid, strict=True)
            ),
        )


def arm(*scored: pl.Collect) -> pl.Recipe:
    """4 prompts with 8 attempts a step."""
    recipe = pl.vary(build(), schedule=pl.Schedule(prompts=4, steps=400))
    return pl.vary(recipe, collect=pl.links(pl.Sample(n=8), *scored)) if scored else recipe


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=untrained(TASKS),
    arms={
        "completion": arm(),
        "coin": arm(pl.Score(), Coin()),
        "dense": arm(pl.Score(), TaskCompletion(), Approach()),
    },
    expect=pl.ledger.Greater(
        "completion", "start", by=0.05, why="what is claimed is far more; less would be sharpening"
    ),
    reasons=(pl.ledger.Needs("coin", "that what is completed is paid"),),
    measure=BestAccuracy(),
    metric="success on held-out problems, the better of greedy and temperature 1; of the start, the best of six",
    tuned={"optimiser.lr": (1e-4, 3e-4)},
    task="grid-4",
    tokens=48_000,
    evaluate=TASKS,
    samples=4,
    seconds=90.0,
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "training reward": pl.ledger.Logged("reward", last=3),
        "tokens an episode": pl.ledger.Logged("length", last=3),
    },
)
