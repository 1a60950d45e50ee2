"""How attempts are seeded, tried again and judged: every setting arrives, nobody is judged twice, a fault is no reward."""

import asyncio
from contextlib import contextmanager
from dataclasses import replace

import pytest
from palaestra.context import Bench
from palaestra.errors import Fault
from palaestra.rollout.collect import MuteTruncated, Sample, Score, Until, When, links
from palaestra.rollout.player import Script
from palaestra.types import Ask, Episode, Frame, Group, Message, Reward, Sampling, Task

TASK = Task(id="t")


class World:
    """`turns` turns; fails while `fails` says so, and pays 1 at the end."""

    seats = ("policy", "other")

    def __init__(self, turns=1, fails=lambda: False):
        self.turns, self.fails, self.keys = turns, fails, []

    def reset(self, task, key):
        self.keys.append(key)
        return self.ask(0)

    def ask(self, n):
        asks = (Ask(seat=self.seats[n % 2], say=(Message(role="user", content="q"),)),)
        return Frame(state=n, asks=asks if n < self.turns else (), pay={("policy", ""): 1.0} if n == self.turns else {})

    def step(self, state, acts, key):
        if self.fails():
            raise Fault("tool", "down")
        return self.ask(state + 1)


class Context:
    """A bench, and players that say a number drawn from their key."""

    def __init__(self, world=None, **bench):
        self.bench = Bench(name="b", tasks=None, world=world, max_tokens=48, **bench)
        self.asked, self.judged = [], 0

    def cast(self, model, sampling):
        self.asked.append((model, sampling))
        say = lambda messages, rng: f"{model} {rng.integers(1 << 40)}"
        return {seat: Script(fn=say, name=model) for seat in World.seats}

    @contextmanager
    def judging(self):
        self.judged += 1
        yield

    async def verdicts(self, reward, group):
        return await reward(self, group)


def run(link, ctx, *episodes, key=("k",)):
    return asyncio.run(link(ctx, key, Group(task=TASK, episodes=episodes))).episodes


def said(e):
    return [s.text for r in e.rows for s in r.segments if s.author != "environment"]


def scored(total, status="finished"):
    return Episode(reward=Reward(total=total), status=status)


def test_every_setting_of_sampling_arrives():
    ctx = Context(World(turns=2))
    given = {"temperature": 0.5, "top_k": 7, "top_p": 0.9, "min_p": 0.1}
    (e,) = run(Sample(1, **given, max_tokens=5, model="m", seats=(("other", "n"),)), ctx)
    assert ctx.asked == [(model, Sampling(**given, max_tokens=5)) for model in ("m", "n")]
    assert [x.split()[0] for x in said(e)] == ["m", "n"]
    run(Sample(1), ctx)
    assert ctx.asked[-1] == ("policy", Sampling(max_tokens=48)), "what the bench allows"


def test_attempts_have_seeds_of_their_own_and_one_world():
    """Later ones too, be it by another link or by the same one, asked again with the same key."""
    world = World()
    ctx, old = Context(world), Episode(status="finished", facts={"old": True})
    first = run(links(Sample(2), Sample(2)), ctx, old)
    assert first[0] is old and len({t for e in first for t in said(e)}) == 4
    assert world.keys == [("k", n, "world") for n in (0, 0, 1, 1)]
    one = run(Sample(1), ctx)
    assert said(run(Sample(1), ctx, *one)[1]) != said(one[0])


def test_a_fault_is_tried_again_once_with_another_seed():
    ctx, tried = Context(None), []

    def played(fails):
        ctx.bench = replace(ctx.bench, world=World(fails=fails))
        fn = lambda messages, rng: tried.append(int(rng.integers(1 << 40))) or "x"
        ctx.cast = lambda model, sampling: {"policy": Script(fn=fn), "other": Script(fn=fn)}
        tried.clear()
        (e,) = run(Sample(1), ctx)
        return e.status, len(tried), len(set(tried)), len(ctx.bench.world.keys)

    down = iter([True, False])
    assert played(lambda: False) == ("finished", 1, 1, 1)
    assert played(lambda: next(down)) == ("finished", 2, 2, 2)
    assert played(lambda: True) == ("error:tool", 2, 2, 2)


def test_an_episode_ends_with_the_turns_of_the_bench():
    (e,) = run(Sample(1), Context(World(turns=9), max_turns=3))
    assert e.status == "truncated:turns" and len(said(e)) == 3


def judge(found, seen):
    async def pays(ctx, group):
        seen.append(list(group.episodes))
        if isinstance(found, Fault):
            raise found
        return [found(e) for e in group.episodes]

    return pays


def test_only_what_is_valid_and_unscored_is_judged():
    seen, new, failed, old = [], Episode(status="truncated:turns"), Episode(status="error:tool"), scored(0.25)
    ctx = Context(reward=lambda ctx, group: pytest.fail("a reward of its own is asked instead"))
    got = run(Score(reward=judge(lambda e: Reward(total=0.75), seen)), ctx, failed, new, old, new)
    assert seen == [[new, new]] and ctx.judged == 1
    assert got == (failed, replace(new, reward=Reward(total=0.75)), old, replace(new, reward=Reward(total=0.75)))
    run(Score(reward=judge(Fault("never"), seen)), ctx, failed, old)
    assert len(seen) == 1, "nobody is asked about nothing"


def test_a_shadow_is_a_part_that_trains_nothing():
    """Without its shadow an episode is an error: a run that is watched has no hole. A fault of the reward comes first."""
    right, wrong, odd = (Episode(status="finished", facts={"n": n}) for n in range(3))
    own = judge(lambda e: Fault("judge", "odd") if e is odd else Reward(total=0.5, parts={"a": 1.0}), [])
    gold = judge(lambda e: Reward(total=1.0) if e is right else Fault("gold", "lost"), [])
    ctx = Context(reward=gold)
    old, a, b, c = run(Score(reward=own, shadow=True), ctx, scored(0.25), right, wrong, odd)
    assert old == scored(0.25)
    assert a.reward == Reward(total=0.5, parts={"a": 1.0, "gold": 1.0})
    assert (b.status, b.reward, b.facts) == ("error:gold", None, {"n": 1, "error": "gold: lost"})
    assert (c.status, c.reward, c.facts) == ("error:judge", None, {"n": 2, "error": "judge: odd"})
    (plain,) = run(Score(reward=own), ctx, right)
    assert plain.reward == Reward(total=0.5, parts={"a": 1.0})


def test_a_judge_that_fails_leaves_every_episode_without_a_reward():
    two = Episode(status="finished"), Episode(status="finished", facts={"n": 1})
    found = run(Score(reward=judge(Fault("judge", "down"), [])), Context(), *two)
    assert [(e.status, e.reward, e.facts["error"]) for e in found] == [("error:judge", None, "judge: down")] * 2
    assert found[1].facts["n"] == 1
    with pytest.raises(Fault, match="a reward of nan for task 't'"):
        run(Score(reward=judge(lambda e: Reward(total=float("nan")), [])), Context(), *two)


def test_what_was_cut_before_any_pay_is_worth_nothing():
    """By the bench or the context; a world that came to its end and paid nothing has a fault, whatever the last turn was."""
    ends = [Episode(status=s) for s in ("truncated:turns", "truncated:context", "error:tool")]
    assert [e.reward for e in run(Score(), Context(), *ends, scored(0.5))] == [
        Reward(total=0.0), Reward(total=0.0), None, Reward(total=0.5),
    ]  # fmt: skip
    for status in ("finished", "truncated:length"):
        with pytest.raises(Fault, match=f"'b' paid nothing to an episode that is {status}"):
            run(Score(), Context(), Episode(status=status))


def test_what_is_muted_stays_so():
    muted = run(
        MuteTruncated(), Context(), replace(scored(1.0), muted=True), scored(0.0, "truncated:turns"), scored(1.0)
    )
    assert [e.muted for e in muted] == [True, True, False]


def test_a_condition_reads_the_valid_episodes():
    noted = []
    run(
        When(lambda r: bool(noted.append(r.tolist())), MuteTruncated()),
        Context(),
        scored(0.5),
        Episode(status="error:x"),
    )
    assert noted == [[0.5]]


def test_every_round_has_a_key_of_its_own():
    keys = []

    async def one_more(ctx, key, group):
        keys.append(key)
        return replace(group, episodes=(*group.episodes, scored(1.0)))

    assert len(run(Until(lambda r: len(r) > 1, one_more, rounds=5), Context())) == 2
    assert len(run(Until(lambda r: False, one_more, rounds=3), Context())) == 3
    assert keys == [("k", 0), ("k", 1), ("k", 0), ("k", 1), ("k", 2)]
