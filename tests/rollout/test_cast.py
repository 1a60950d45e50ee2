"""Who sits where: decided by the key, drawn as often as said, and only the policy is trained."""

import asyncio
from collections import Counter

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.rollout.branch import continuation, prefix
from palaestra.rollout.player import Script
from palaestra.types import Group, Sampling

pytest.importorskip("pyspiel")


def bet(messages, rng):
    return "b"


BETS = pl.rollout.Acted(Script(fn=bet, name="bets"))
PASSES = pl.rollout.Acted(Script(fn=bet, name="passes"))


def seats(context):
    ctx = context("kuhn")
    return ctx, ctx.cast("policy", Sampling())


def names(cast, ctx, before, keys):
    return [tuple(p.name for p in cast(ctx, ("k", i), Sampling(), before).values()) for i in keys]


def test_the_key_alone_decides(context):
    ctx, before = seats(context)
    cast = pl.rollout.Sometimes(pl.rollout.Alternate(pl.rollout.Either((BETS, PASSES))), 0.5)
    forth, back = names(cast, ctx, before, range(50)), names(cast, ctx, before, reversed(range(50)))
    assert forth == back[::-1] and len(set(forth)) == 5


def test_shares(context):
    """Half self-play; else each seat, and each rival, as often: 1,000 draws within four deviations."""
    ctx, before = seats(context)
    cast = pl.rollout.Sometimes(pl.rollout.Alternate(pl.rollout.Either((BETS, PASSES))), 0.5)
    found = Counter(names(cast, ctx, before, range(1000)))
    assert abs(found.pop(("policy", "policy")) - 500) < 64
    assert len(found) == 4 and all(abs(n - 125) < 42 for n in found.values())


def test_of_three_seats_one_is_the_policys_and_a_rare_cast_is_rare(context):
    ctx, two = seats(context)
    three = {**two, "third": next(iter(two.values()))}
    assert {n.count("policy") for n in names(pl.rollout.Alternate(BETS), ctx, three, range(20))} == {1}
    rare = names(pl.rollout.Sometimes(pl.rollout.Alternate(BETS), 0.1), ctx, two, range(1000))
    assert 50 < sum("bets" in n for n in rare) < 150


def test_a_seat_with_a_player_of_its_own_is_not_swapped(context):
    ctx = context("tictactoe")
    with pytest.raises(UserError, match="1 of 2 seats are the policy's"):
        pl.rollout.Alternate(BETS)(ctx, ("k",), Sampling(), ctx.cast("policy", Sampling()))


def test_only_the_policy_is_trained_and_credited(context):
    """A frozen rival samples, with log-probs, and nothing of it is trained."""
    ctx = context("kuhn")
    ctx.reference("start", "policy")
    sample = pl.Sample(n=8, max_tokens=2, cast=pl.rollout.Alternate(pl.rollout.Frozen("start")))
    group = asyncio.run(sample(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0))))
    of = [(s.author, s.trained, s.policy) for e in group.episodes for r in e.rows for s in r.segments if s.logp]
    assert set(of) == {("policy", True, "policy"), ("start", False, "")}
    for e in group.episodes:
        seat = {r.seat for r in e.rows if any(s.trained for s in r.segments)}
        assert len(seat) <= 1
    examples, _ = pl.chain(pl.credit.Ema())([group], [], {})
    assert all(e.row.view("policy").trained_T.sum() == sum(len(s.ids) for s in e.row.segments if s.author == "policy")
               for e in examples if e.row.view().trained_T.any())  # fmt: skip


def test_a_rivals_turns_are_not_gone_on_with(context):
    """Who continues an episode has no cast; the policy would speak for the rival."""
    ctx = context("kuhn")
    ctx.reference("start", "policy")
    task = ctx.bench.tasks.task("train", 0)
    sample = pl.Sample(n=4, max_tokens=2, cast=pl.rollout.Alternate(pl.rollout.Frozen("start")))
    group = asyncio.run(sample(ctx, ("k",), Group(task=task)))
    mine = next(e for e in group.episodes if e.rows[0].segments[-1].author == "start")
    with pytest.raises(UserError, match="a frozen model has a seat"):
        asyncio.run(continuation(ctx, ("k", 0), task, prefix(mine, 0, 1), Sampling()))


def test_an_endpoint_sits_too(context):
    """It is asked what its seat is shown, once a turn, and counted by the run."""
    ctx, asked = context("kuhn"), []

    def say(request):
        asked.append([m.content for m in request.messages])
        return "b"

    sample = pl.Sample(
        n=4, max_tokens=2, cast=pl.rollout.Alternate(pl.engines.Chatter(pl.Scripted(say), system="Be bold."))
    )
    group = asyncio.run(sample(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0))))
    said = [s for e in group.episodes for r in e.rows for s in r.segments if s.author == "endpoint"]
    assert said and len(asked) == len(said) == ctx.meters()["script"].calls
    assert all(s.text == "b" and not s.trained for s in said)
    assert all(m[0] == "Be bold." and m[1].startswith("kuhn\n\np") for m in asked)


def test_settings():
    with pytest.raises(UserError, match="keep must be at least 1"):
        pl.rollout.Snapshots(keep=0)
