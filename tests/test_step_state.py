"""What a step draws, passes on, drops as old and tells the curriculum; a step that fails changes nothing."""

import asyncio
import copy
from dataclasses import replace

import pytest
from palaestra.curriculum.pool import Everything, Mixed
from palaestra.errors import Fault
from palaestra.method import Learner, Recipe
from palaestra.objective.policy import Clipped
from palaestra.rollout.queue import Schedule, age_numbers, drop_old
from palaestra.step import start, step
from palaestra.types import Example, Group, Row, Segment

from tests.fake import FakeContext, episode, task


def names(groups):
    return [g.task.id for g in groups]


def aged(name, *versions, muted=()):
    """A group of one episode a version."""
    rows = [Row(segments=(Segment(ids=(1,), logp=(0.0,), policy="policy", trained=True, version=v),)) for v in versions]
    episodes = (replace(episode((0,), (1,), 1.0), rows=(r,), muted=i in muted) for i, r in enumerate(rows))
    return Group(task=task(name, (0,), (1,)), episodes=tuple(episodes))


class Recorder:
    """A recipe whose stages note what they are given. Tasks are numbered as they are drawn."""

    def __init__(self, pool=None, **schedule):
        self.drawn, self.collected, self.credited, self.observed, self.ctx = [], [], [], [], FakeContext()
        learner = Learner(credit=self.credit, objective=Clipped(), update=self.update)
        self.recipe = Recipe(
            draw=self.draw,
            collect=self.collect,
            learners={"policy": learner},
            pool=pool or Everything(),
            observe=self.observe,
            schedule=Schedule(**schedule),
        )

    def draw(self, ctx, key, n, state):
        self.drawn.append((key, n))
        at = state.get("at", 0)
        return [task(f"t{at + i}", (0,), (1,)) for i in range(n)], state | {"at": at + n}

    async def collect(self, ctx, key, group):
        self.collected.append((key, group))
        return replace(group, episodes=(*group.episodes, *aged("", ctx.step_number).episodes))

    def credit(self, groups, signals, state):
        self.credited.append(names(groups))
        return [], state | {"calls": state.get("calls", 0) + 1}

    def update(self, ctx, name, learner, batch, state):
        raise AssertionError("nothing is trained on")

    def observe(self, seen, examples, state):
        self.observed.append(names(seen))
        return state | {"observed": len(seen)}

    def steps(self, n, state=None):
        state = state or start(3)
        for _ in range(n):
            state, _ = asyncio.run(step(self.recipe, self.ctx, state))
        return state


def test_groups_that_go_on_take_the_place_of_fresh_prompts():
    """Four groups a step: the two that the pool sends back, as they were, and two new ones."""

    async def pool(ctx, groups, state):
        return groups[2:], groups[:2], state

    r = Recorder(pool, prompts=4)
    state = r.steps(2)
    assert [n for _, n in r.drawn] == [4, 2]
    (_, first), (_, second), *_ = r.collected[4:]
    assert names([g for _, g in r.collected[4:]]) == ["t0", "t1", "t4", "t5"]
    assert [len(g.episodes) for g in (first, second)] == [1, 1] and names(state["again"]) == ["t0", "t1"]


def test_no_key_comes_twice():
    """Of a run with three rollouts ahead and a pool that has a batch in every second round."""

    async def second(ctx, groups, state):
        return (groups if state.get("odd") else None), [], {"odd": not state.get("odd")}

    r = Recorder(second, prompts=2, lag=3)
    r.steps(3)
    keys = [k for k, _ in r.drawn] + [k for k, _ in r.collected]
    assert len(r.drawn) == 3 + 3 * 2 and len(keys) == len(set(keys)) == 9 + 2 * 9
    assert {k[0] for k in keys} == {3}  # the run's seed


def test_the_curriculum_sees_all_rounds_and_all_that_was_dropped():
    """The pool drops the first group of each round and has a batch in the third."""

    async def third(ctx, groups, state):
        kept = [*state.get("kept", []), *groups[1:]]
        return (kept if len(kept) == 3 else None), [], {"kept": kept if len(kept) < 3 else []}

    r = Recorder(third, prompts=2)
    state = r.steps(1)
    assert r.credited == [["t1", "t3", "t5"]]
    assert r.observed == [["t0", "t1", "t2", "t3", "t4", "t5"]] == [names(r.ctx.seen)]
    assert state["draw"] == {"at": 6, "observed": 6}


@pytest.mark.parametrize(
    ("lag", "max_age", "trained"),
    [(0, None, ["new"]), (0, 0, ["new"]), (0, 1, ["old", "new"]), (1, None, ["old", "new"]), (1, 0, ["new"])],
)
def test_what_the_pool_gives_may_have_grown_old(lag, max_age, trained):
    """As what waited in the queue or was begun in an earlier step has: groups of versions 0 and 1 in step 1."""

    async def pool(ctx, groups, state):
        return [aged("old", 0), aged("new", 1)], [], state

    r = Recorder(pool, prompts=1, lag=lag, max_age=max_age)
    r.steps(1, start(0) | {"step": 1})
    assert r.credited == [trained]


def test_what_waits_for_a_batch_is_dropped_when_it_is_old():
    """Before the pool counts it: a batch is then of groups that may all be trained on."""
    r = Recorder(Mixed(2), prompts=1, rounds=1)
    r.recipe = replace(r.recipe, collect=mixed)
    waiting = {"waiting": [aged("old", 0, 0)], "note": [1, 2]}
    with pytest.raises(Fault, match="starved"):
        r.steps(1, start(0) | {"step": 1, "pool": waiting})
    assert names(waiting["waiting"]) == ["old"]


async def mixed(ctx, key, group):
    pair = episode((0,), (1,), 1.0), episode((0,), (1,), 0.0)
    return replace(group, episodes=tuple(replace(e, rows=aged("", 1).episodes[0].rows) for e in pair))


def test_what_trains_nothing_has_no_age():
    """Muted episodes count in the statistics only; one old episode that trains makes its group old."""
    groups = [aged("muted", 1, 5, muted=(0,)), aged("old", 5, 1, muted=(0,)), aged("all", 1, 2, muted=(0, 1))]
    assert names(drop_old(groups, 5)) == ["muted", "all"]


@pytest.mark.parametrize("where", ["collect", "pool", "credit", "observe"])
def test_a_step_that_fails_leaves_the_state_as_it_was(where):
    """Whatever stage fails, after others have moved their own parts of it; the step that is tried again is the same."""

    def fails(*args):
        raise Fault("disk", "full")

    async def pool(ctx, groups, state):
        return groups[1:], groups[:1], {"waiting": [*state.get("waiting", []), groups[0]]}

    r = Recorder(pool, prompts=3, lag=1)
    state = r.steps(2)
    before, good, at = copy.deepcopy(state), r.recipe, len(r.drawn)
    learner = good.learners["policy"]
    broken = {"learners": {"policy": replace(learner, credit=fails)}} if where == "credit" else {where: fails}
    with pytest.raises(Fault, match="full"):
        asyncio.run(step(replace(good, **broken), r.ctx, state))
    assert state == before and state["queue"] and state["again"] and state["credit"] == {"policy": {"calls": 2}}
    after = r.steps(1, state)
    assert r.drawn[at] == r.drawn[-1] and after["step"] == 3 and state == before


# ---- how old what is trained is


def said(ids, version, moved=(), **more):
    return Segment(ids=ids, author="policy", policy="policy", trained=True, version=version, moved=moved, **more)


def test_ages_are_of_the_tokens_that_are_trained():
    """At step 7: of weights 5 and, after a token, 6: ages 2, 1, 1, 1; of weights 4 those two tokens that credit left:
    3, 3. Together 11 / 6, and 3 at most. A hint that is hidden, data without an age, what another learner samples, and
    the first token of a context, which nothing precedes, train nothing here or have no age.
    """
    asked, hint = Segment(ids=(9, 9)), said((1,), 0, hidden=True)
    ours = Row(segments=(asked, hint, said((1, 2, 3, 4), 5, ((1, 6),)), said((5, 6), None)))
    other = Row(segments=(asked, replace(said((1, 2), 0), policy="judge")))
    masked = Row(segments=(asked, said((1, 2, 3), 4)))
    bare = Row(segments=(said((1,), 0),))
    examples = [
        Example(row=ours, columns={}),
        Example(row=other, columns={}),
        Example(row=masked, columns={"trained": [0.0, 0.0, 1.0, 1.0, 0.0]}),
        Example(row=bare, columns={}),
    ]
    assert age_numbers(examples, "policy", 7) == {"age_mean": pytest.approx(11 / 6), "age_max": 3.0}
    assert age_numbers(examples, "judge", 7) == {"age_mean": 5.0, "age_max": 7.0}  # 7, 7, 3, 3
    assert age_numbers([examples[3]], "policy", 7) == {}, "nothing has an age"


@pytest.mark.parametrize(("lag", "ages"), [(0, [None] * 4), (2, [0.0, 1.0, 2.0, 2.0])])
def test_a_run_that_is_not_strictly_on_policy_tells_ages(lag, ages):
    """The attempts of the first step are all of the first weights, then each is `lag` steps old."""
    r = Recorder(prompts=1, lag=lag)
    credit = lambda groups, signals, state: (
        [Example(row=Row(segments=(Segment(ids=(9,)), *row.segments)), columns={"adv": 1.0})
         for g in groups for e in g.episodes for row in e.rows], state,
    )  # fmt: skip
    learner = replace(r.recipe.learners["policy"], credit=credit, update=lambda *given: ({"loss": 0.0}, given[-1]))
    recipe, state, told = replace(r.recipe, learners={"policy": learner}), start(3), []
    for n in range(4):
        r.ctx.step_number = n
        state, metrics = asyncio.run(step(recipe, r.ctx, state))
        assert metrics["loss"] == 0.0
        told.append((metrics.get("age_mean"), metrics.get("age_max")))
    assert told == [(age, age) for age in ages]
