"""The claim of muldimif: Multi-dimensional constraint framework for instruction following."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import ONE_BLOCK, RATES
from palaestra.recipes.rewards.muldimif import build

EXPERIMENT = pl.Experiment(
    claim="With the number of constraints kept as the reward, all are kept more often than with "
    "all-or-nothing.",
    arms={
        "all or nothing": build(every=True, n=8, temperature=1.0),
        "count": build(n=8, temperature=1.0),
    },
    expect=pl.Greater("count", "all or nothing"),
    falsified_if="all-or-nothing keeps all constraints as often",
    measure=pl.Final(),
    metric="held-out answers that keep all constraints (greedy)",
    task="bool(d=6)",
    tokens=30_000,
    seconds=40.0,
    controls={
        "share kept": pl.Logged("part/share"),
        "mixed": pl.Logged("groups_mixed"),
        "before": pl.Final("before.mean"),
    },
    note="The small model writes no sentences: the values of six nested brackets are six "
    "constraints on one line. Groups of 8 at temperature 1 instead of 32 at 0.7.",
)


@pl.stage
class MixedCounts:
    """Gives the rewards of a group to its answers in another order: as many are kept, and not by
    those that earn it.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        scored = [i for i, e in enumerate(group.episodes) if e.reward is not None]
        order = pl.rng_of((*key, "mixed up")).permutation(scored).tolist()
        found = list(group.episodes)
        for i, j in zip(scored, order, strict=True):
            found[i] = replace(found[i], reward=group.episodes[j].reward)
        return replace(group, episodes=tuple(found))


def of_sentences(every: bool) -> pl.Recipe:
    """8 prompts a step, for as many steps as the tokens pay for."""
    recipe = build(every=every, n=8, temperature=1.0)
    return pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=400))


def mixed_up() -> pl.Recipe:
    """The counts of each group, given to its answers in another order."""
    counted = of_sentences(every=False)
    return pl.vary(counted, collect=pl.links(counted.collect, MixedCounts()))


SMALL = pl.Experiment(
    claim="On sentences with two constraints, by SmolLM2-135M-Instruct, the number of constraints kept as the "
    "reward makes at least 3 points more held-out sentences keep both than all-or-nothing.",
    quantity="RL on the number that is kept raises how many instructions are followed, without loss of "
    "general ability; all-or-nothing is its measure, and no arm of the paper",
    arms={
        "all or nothing": of_sentences(every=True),
        "count": of_sentences(every=False),
        "mixed up": mixed_up(),
    },
    expect=pl.Greater(
        "count",
        "all or nothing",
        by=0.03,
        why="three points, the least that a reader of the paper's tables would act on",
    ),
    falsified_if="all-or-nothing keeps both as often, within 3 points",
    reasons=(pl.Needs("mixed up", "that an answer gets its own count"),),
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out sentences about their topic that keep both constraints (temperature 1)",
    tuned={"optimiser.lr": RATES[:2]},
    tuning_tokens=6_000,
    **ONE_BLOCK,
    task="constraints(constraints=2)",
    tokens=18_000,
    evaluate=96,
    samples=4,
    seconds=400.0,
    controls={
        "share kept": pl.Logged("part/share"),
        "groups with both kinds": pl.Logged("groups_mixed", last=0),
        "length": pl.Logged("length"),
    },
    note="The real model writes sentences, where the tiny one has the values of six brackets for constraints. "
    "Neither reward asks for the topic or for a single sentence, which the measure does. Groups of 8 at "
    "temperature 1 instead of 32 at 0.7, and the paper's KL of 0.001 in both arms. Nothing was looked at "
    "before the declaration; an eighth of the start's sentences keep one constraint.",
)
