"""The claim of research: ReSearch: reason with search."""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl
from palaestra.claims.searching import TellSearches, after_showing
from palaestra.claims.starts import RATES, unmoved
from palaestra.recipes.agents.research import build

SHOWN = 200  # steps of imitation


@pl.stage
class RetrievedFirst:
    """The world of searches after one search with the question itself: what it finds stands below
    the question, and the next message is the last.
    """

    world: pl.worlds.Search
    seats: tuple[str, ...] = ("policy",)

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        first = self.world.reset(task, key)
        search, _ = self.world.forms
        asked = f"<{search}>{task.prompt[-1].content}</{search}>"
        act = pl.Act(ask=first.asks[0], text=asked, call=None, finish="eos", n_tokens=0)
        retrieval = await self.world.step(first.state, (act,), (*key, "retrieved"))
        asks = tuple(replace(a, say=(*task.prompt, *a.say)) for a in retrieval.asks)
        return replace(retrieval, asks=asks)

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        return await self.world.step(state, acts, key)


@pl.stage
class Elsewhere:
    """The link in another world: "retrieved" in that of `RetrievedFirst`, "shuffled" with an index
    in which what is found has nothing to do with the query.
    """

    link: pl.Collect
    where: Literal["retrieved", "shuffled"]

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.Search) or not isinstance(world.index, pl.services.BM25):
            raise pl.UserError(f"{ctx.bench.name} is no world of searches in documents")
        other: pl.World = (
            RetrievedFirst(replace(world, turns=2))
            if self.where == "retrieved"
            else replace(world, index=replace(world.index, shuffle=0))
        )
        return await self.link(ctx.with_bench(replace(ctx.bench, world=other)), key, group)


@pl.stage
class TrainResults:
    """Trains on what the environment says after the question as well, as without a mask. It has no
    log-probs of a sampler, so the objective must not read any.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._unmasked, group.episodes)))

    def _unmasked(self, e: pl.Episode) -> pl.Episode:
        rows = tuple(
            replace(row, segments=tuple(map(self._trained, row.segments))) for row in e.rows
        )
        return replace(e, rows=rows)

    def _trained(self, s: pl.Segment) -> pl.Segment:
        is_result = s.author == "environment" and s.turn > 0
        return replace(s, trained=True, policy="policy") if is_result else s


def searching(where: Literal["", "retrieved", "shuffled"] = "", masked: bool = True) -> pl.Recipe:
    """What follows the imitation, 8 prompts x 5 answers a step."""
    own = build(think=False, boxed=False)
    sample: pl.Collect = pl.Sample(n=5)
    sampled = Elsewhere(sample, where) if where else sample
    unmasked = () if masked else (TrainResults(),)
    reward = pl.rewards.AnswerF1(floor=0.1)
    return pl.vary(
        own,
        collect=pl.links(sampled, pl.Score(), reward, TellSearches(), *unmasked),
        objective=pl.Reinforce(reduce="sequences"),
        schedule=pl.Schedule(prompts=8, steps=200),
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=after_showing(unmoved(searching()), SHOWN),
    arms={
        "research": after_showing(searching(), SHOWN),
        "unmasked": after_showing(searching(masked=False), SHOWN),
        "shuffled index": after_showing(searching("shuffled"), SHOWN),
        "retrieved once": after_showing(searching("retrieved"), SHOWN),
    },
    expect=pl.ledger.Greater(
        "research",
        "start",
        by=0.20,
        why="the larger gain of the paper; smaller ones would follow from the form alone",
    ),
    reasons=(
        pl.ledger.Needs("unmasked", "what is found is masked from the loss"),
        pl.ledger.Needs("shuffled index", "what is found has to do with the query"),
    ),
    measure=pl.ledger.Logged("part/right", last=10),
    metric="share of fresh training questions answered rightly in the last ten steps (temperature 1)",
    tuned={"parts.rl.runnable.learners.policy.optimiser.lr": RATES},
    task="wiki-2",
    tokens=60_000,
    evaluate=48,
    samples=4,
    seconds=300.0,
    controls={
        "searches an episode": pl.ledger.Logged("part/searches", last=10),
        "pages on the way found": pl.ledger.Logged("part/coverage", last=10),
        "in the right form": pl.ledger.Logged("part/formed", last=10),
        "turns that could not be read": pl.ledger.Logged("part/malformed", last=10),
        "cut": pl.ledger.Logged("part/cut", last=10),
        "searches in the first 30 steps": pl.ledger.Logged("part/searches", last=0),
    },
)
