"""What tests of guided recipes share."""

import asyncio

from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward


class Pays:
    """A reward by what an episode was sampled behind: of each kind, in their order, these totals."""

    def __init__(self, mark, **totals):
        self.mark, self.totals = mark, {k: list(v) for k, v in totals.items()}

    async def __call__(self, ctx, group):
        found = [self.totals["guided" if e.facts.get(self.mark) else "bare"].pop(0) for e in group.episodes]
        return [Reward(total=float(x), solved=x > 0.5) for x in found]


def collected(ctx, recipe, index=0):
    task = ctx.bench.tasks.task("train", index)
    return asyncio.run(recipe.collect(ctx, ("k", 1), Group(task=task)))


def trained(group):
    return [e for e in group.episodes if not e.muted]


def credited(recipe, groups):
    """[episodes that train] advantages."""
    found, _ = recipe.learners["policy"].credit(groups, [], {})
    return [float(e.columns["advantage"][e.row.view().trained_T][0]) for e in found]


def prompt_seen(ctx, episode):
    return ctx.decode([i for s in episode.rows[0].segments if not s.replies for i in s.ids])


def bare_ids(ctx, task):
    pieces = ctx.engine().dialect.extend(task.prompt, first=True, closed=False)
    return tuple(i for p in pieces for i in p.ids)


def steps_of(recipe, ctx, n=2):
    recipe, state, seen = make_smallest(recipe), start(0), []
    prepare(recipe, ctx)
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(metrics)
    return seen
