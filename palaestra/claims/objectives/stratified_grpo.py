"""The claim of stratified-grpo: Stratified GRPO (stratified advantage normalisation)."""

from dataclasses import replace

import numpy as np

import palaestra as pl
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
class Share:
    """The sum of one part of the reward over that of another, of the last `last` steps;
    0 = of all.
    """

    part: str
    of: str
    last: int = 0

    def __call__(self, cell: pl.Cell) -> float:
        rows = [s for s in cell.steps if f"part/{self.of}" in s][-self.last :]
        whole = sum(s[f"part/{self.of}"] for s in rows)
        return sum(s[f"part/{self.part}"] for s in rows) / whole if whole else float("nan")


def tell_structure(learned: pl.Recipe) -> pl.Recipe:
    return pl.vary(learned, collect=pl.links(pl.Sample(n=8), pl.Score(), Structure()))


EXPERIMENT = pl.Experiment(
    claim="On noisy T-hop, the blend (alpha 0.8) solves at least 2 points more of the 2-hop "
    "problems in the last ten steps than GRPO at equal sampled tokens.",
    arms={
        "grpo": tell_structure(pl.recipe("grpo")),
        "blend": tell_structure(build()),
        "within-only": tell_structure(build(alpha=1.0)),
    },
    expect=pl.Greater("blend", "grpo"),
    measure=Share("two hops solved", "two hops", last=10),
    metric="share of the 2-hop problems of the last ten steps that are solved (sampled, each "
    "problem drawn for the first time)",
    falsified_if="GRPO reaches the 2-hop accuracy of the blend, to 2 points",
    task="hop-noisy",
    tokens=60_000,
    seconds=75.0,
    controls={
        "searches an episode": pl.Logged("part/searches"),
        "reward over the run": pl.Logged("reward", last=0),
        "share of the variance of rewards within strata": Share("within", "spread"),
        "final accuracy": pl.Final(),
    },
    note="One and two hops in one pool, half each. Half of the searches that find something are "
    "answered by a line with another key and then the right one, so that episodes with equally "
    "many searches differ in how they read: without noise the number of searches decides the "
    "outcome, and no advantage within strata is left. A guess without a search is wrong here; the "
    "paper's questions can be answered from memory at times. A stratum of one acts through the "
    "global term only.",
)
