"""The claim of stratified-grpo: Stratified GRPO (stratified advantage normalisation)."""

from dataclasses import replace

import numpy as np

import palaestra as pl
from palaestra.claims.short import ACCURACY, FRESH, THREE_POINTS
from palaestra.recipes.objectives.stratified_grpo import build


@pl.stage
class Structure:
    """Leaves what the experiment reports as parts of the reward: searches, problems of two hops and
    those solved, and the squared distances of the reward to the mean of its group ("spread") and of
    its stratum ("within").
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        strata: dict[int, list[float]] = {}
        for e in group.valid:
            strata.setdefault(e.facts["searches"], []).append(e.total)
        mean = float(np.mean([e.total for e in group.valid])) if group.valid else 0.0
        two = float(len(group.task.meta["path"]) == 3)

        def told(e: pl.Episode) -> pl.Episode:
            searches = e.facts["searches"]
            parts = {
                "searches": searches,
                "two hops": two,
                "two hops solved": two * e.total,
                "spread": (e.total - mean) ** 2,
                "within": (e.total - float(np.mean(strata[searches]))) ** 2,
            }
            return (
                replace(e, reward=replace(e.reward, parts={**e.reward.parts, **parts}))
                if e.reward
                else e
            )

        return replace(group, episodes=tuple(told(e) if e.ok else e for e in group.episodes))


@pl.stage
class OtherStrata:
    """The numbers of searches of a group, dealt out anew among its episodes as "stratum": strata of
    the same sizes, whose episodes have nothing in common.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        able = [i for i, e in enumerate(group.episodes) if e.ok]
        order = pl.rng_of(("other strata", *key)).permutation(able).tolist()
        episodes = list(group.episodes)
        for i, other in zip(able, order, strict=True):
            e, searches = episodes[i], group.episodes[other].facts["searches"]
            episodes[i] = replace(e, facts={**e.facts, "stratum": searches})
        return replace(group, episodes=tuple(episodes))


@pl.stage
class Share:
    """The sum of one part of the reward over that of another, of the last `last` steps;
    0 = of all.
    """

    part: str
    of: str
    last: int = 0

    def __call__(self, cell: pl.ledger.Cell) -> float:
        rows = [s for s in cell.steps if f"part/{self.of}" in s][-self.last :]
        whole = sum(s[f"part/{self.of}"] for s in rows)
        return sum(s[f"part/{self.part}"] for s in rows) / whole if whole else float("nan")


def arm(learned: pl.Recipe, *after: pl.Collect) -> pl.Recipe:
    """8 prompts with 8 episodes a step, for as many steps as the tokens pay for."""
    collect = pl.links(pl.Sample(n=8), pl.Score(), Structure(), *after)
    return pl.vary(learned, collect=collect, schedule=FRESH)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": arm(pl.recipe("grpo")),
        "blend": arm(build()),
        "within-only": arm(build(alpha=1.0)),
        "other strata": arm(build(), OtherStrata()),
    },
    expect=pl.ledger.Greater("blend", "grpo", by=0.03, why=THREE_POINTS),
    reasons=(pl.ledger.Needs("other strata", "strata of episodes that searched equally often"),),
    measure=ACCURACY,
    metric="held-out success (temperature 1)",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="hop-noisy",
    tokens=20_000,
    evaluate=192,
    samples=4,
    seconds=22.0,
    controls={
        "searches an episode": pl.ledger.Logged("part/searches", last=5),
        "2-hop problems solved, last 5 steps": Share("two hops solved", "two hops", last=5),
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "share of the variance of rewards within strata": Share("within", "spread"),
    },
)
