"""The claim of embodied-planner-r1: Embodied Planner-R1 (Interactive Policy Optimization, group
rollout, completion reward).
"""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.objectives.embodied_planner_r1 import TaskCompletion, build


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


def shrink(learned: pl.Recipe) -> pl.Recipe:
    """Half the prompts, so that twice as many steps fit into a cell."""
    return pl.vary(learned, schedule=pl.Schedule(prompts=8))


EXPERIMENT = pl.Experiment(
    claim="On T-grid with 4 x 4 cells, training with observations and a reward for completion "
    "alone raises the success on unseen problems by at least 5 points over the untouched start.",
    arms={
        "start": shrink(pl.vary(build(), optimiser=pl.AdamW(lr=0.0))),
        "completion": shrink(build()),
        "without-kl": shrink(build(kl=0.0)),
        "dense": shrink(
            pl.vary(
                build(), collect=pl.links(pl.Sample(n=8), pl.Score(), TaskCompletion(), Approach())
            )
        ),
    },
    expect=pl.Greater("completion", "start", by=0.05),
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="success on held-out problems, 4 attempts each at temperature 1",
    falsified_if="training on completion alone raises the success by less than 5 points",
    task="grid-4",
    tokens=26_000,
    evaluate=64,
    samples=4,
    seconds=80.0,
    controls={
        "greedy success": pl.Final(),
        "training reward": pl.Logged("reward", last=3),
        "tokens an episode": pl.Logged("length", last=3),
        "truncated": pl.Logged("truncated", last=3),
    },
    note="The start model has played 3 x 3 grids only, so every layout is unseen; half of its "
    "groups have one outcome, which teaches nothing. `start` has a learning rate of 0. `dense` "
    "pays what was not completed for the share of the way that is behind it: whether completion "
    "alone is enough is read beside it. An agent without observations (observe=False) is no arm: "
    "the start model cannot act without them, it would need demonstrations first. About eight "
    "steps of 8 prompts x 8 answers; the paper's two worlds, reasoning before actions and 15 "
    "epochs are left out.",
)
