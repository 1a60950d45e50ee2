"""L0: rewards by step, returns whitened over all steps of the batch, and which groups are drawn again."""

import asyncio
import re

import numpy as np
import pytest
from palaestra.claims.systems.l0 import DemonstrateCells
from palaestra.errors import UserError
from palaestra.recipes.systems import l0
from palaestra.run.driver import prepare
from palaestra.services.sandbox import sandbox_kind
from palaestra.services.sandbox.agents import session_pool
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near

TWO_STEPS = {"turn_rewards": [0.1, 0.9], "turn_lengths": [2, 1]}
ONE_STEP = {"turn_rewards": [0.18], "turn_lengths": [3]}


@pytest.mark.parametrize("split", [True, False], ids=["two groups", "one group"])
def test_the_returns_of_all_steps_are_whitened_together(split):
    """G = (1.0, 0.9) and 0.18: mean 0.693333, sample std 0.447363. Groups make no difference."""
    found = advantages(l0.build(), *([[TWO_STEPS], [ONE_STEP]] if split else [TWO_STEPS, ONE_STEP]))
    first, second = (found[0][0], found[1][0]) if split else found
    assert list(first) == near([0.685499, 0.685499, 0.461967], 2e-6)  # every token of a step has it
    assert list(second) == near([-1.147466] * 3, 2e-6)


def test_variants_of_the_credit():
    def of(**options):
        return advantages(l0.build(**options), TWO_STEPS, ONE_STEP)

    assert of(level="trajectory") == [near(0.707107), near(-0.707107)]  # sums 1.0 and 0.18
    myopic = np.array([0.1, 0.9, 0.18])
    first, second = of(gamma=0.0)
    expected = (myopic - myopic.mean()) / myopic.std(ddof=1)
    assert [first[0], first[2], second[0]] == near(expected, 2e-6)
    assert [x for a in advantages(l0.build(), *[ONE_STEP] * 2) for x in a] == near([0.0] * 6)


def episode(steps, paid, hidden=0, **facts):
    """With two tokens a step, after one of the environment and `hidden` hidden ones."""
    segments = []
    for turn in range(steps):
        segments += [Segment(ids=(9,) * hidden, hidden=True), Segment(ids=(1,))]
        segments.append(Segment(ids=(2, 3), trained=True, policy="policy", logp=(-1.0, -1.0), turn=turn))
    reward = None if paid is None else Reward(total=paid, solved=paid == 1)
    return Episode(rows=(Row(segments=tuple(segments)),), reward=reward, status="finished", facts=facts)


def paid(e, **options):
    (after,) = asyncio.run(l0.StepRewards(**options)(None, ("k",), Group(task=Task(id="t"), episodes=(e,)))).episodes
    return after


def test_rewards_by_step():
    """The catalogue's trajectories: two clean steps and a right answer; one step with an error, answered wrongly."""
    won = paid(episode(2, 1.0, hidden=3, formed=(True, True), clean=(1.0, 1.0), answered=True))
    assert [e.value for e in won.reward.events] == near([0.1, 0.9]) and won.total == near(1.0)
    assert [(e.row, e.token) for e in won.reward.events] == [(0, 2), (0, 5)] and won.solved
    lost = paid(episode(1, 0.0, formed=(True,), clean=(0.0,), answered=True))
    assert [e.value for e in lost.reward.events] == near([0.18]) and not lost.solved
    cut = paid(episode(3, 0.0, formed=(True, False, True), clean=(0.5, 0.0, 1.0), answered=False))
    assert [e.value for e in cut.reward.events] == near([0.05, 0.0, 0.2 / 3])
    assert cut.reward.parts == {
        "right": 0.0,
        "answered": 0.0,
        "formed": near(2 / 3),
        "clean": near(0.5),
        "steps": near(0.35 / 3),
    }
    bare = paid(episode(2, 1.0, formed=(True, True), clean=(1.0, 1.0), answered=True), format=0.0, execution=0.0)
    assert [e.value for e in bare.reward.events] == near([0.0, 0.8])


def test_rewards_of_a_world_without_such_facts_and_of_no_episode():
    alone = {"format": 0.0, "execution": 0.0}
    assert [e.value for e in paid(episode(2, 1.0), **alone).reward.events] == near([0.0, 0.8])
    assert [e.value for e in paid(episode(1, 0.0), **alone).reward.events] == near([0.08])  # finished: it answered
    with pytest.raises(UserError, match="'formed', which this environment does not give"):
        paid(episode(2, 1.0))
    assert paid(episode(1, None)).reward is None and paid(episode(0, 1.0)).total == 1.0


def pooled(pool, *rounds):
    state, ready = {}, None
    for groups in rounds:
        ready, _, state = asyncio.run(pool(None, groups, state))
    return ready, state


def test_groups_with_equal_rewards_are_replaced_by_drawing_again():
    def group(name, *totals):
        return Group(task=Task(id=name), episodes=tuple(episode(1, float(t)) for t in totals))

    a, b, same, again = group("a", 0, 1), group("b", 1, 0), group("same", 1, 1), group("again", 0, 0)
    pool = l0.DrawAgain(size=2)
    assert pooled(pool, [a, b, same]) == ([a, b], {})
    assert pooled(pool, [a, same])[0] is None
    assert pooled(pool, [a, same], [again, b]) == ([a, b], {})
    assert pooled(pool, [same, again], [same], [a]) == ([a, same], {})  # the third draw is the last
    assert pooled(l0.DrawAgain(size=2, batches=1), [same, again]) == ([same, again], {})


def test_the_demonstrations_have_a_bad_habit(context):
    ctx, texts = context("lookup"), []
    for i in range(40):
        task = ctx.bench.tasks.task("train", i)
        (made,) = asyncio.run(DemonstrateCells()(ctx, ("k", i), Group(task=task))).episodes
        cells = [s.text for s in made.rows[0].segments if s.trained]
        assert all(re.fullmatch(r"<think>\w\d</think><code>.*</code>", c.removesuffix("<|end|>")) for c in cells)
        assert sum("answer(" in c for c in cells) == 1 and "answer(" in cells[-1]
        texts.append(len(cells) == len(task.meta["solution"]))
    assert 0.2 < np.mean(texts) < 0.8


@pytest.mark.skipif(bool(sandbox_kind().refusal()), reason=sandbox_kind().refusal())
def test_two_steps_in_the_notebook(context):
    """The same seed gives the same episodes, and no session is left."""
    found = []
    for _ in range(2):
        ctx, state, recipe = context("lookup"), start(0), make_smallest(l0.build())
        prepare(recipe, ctx)
        for _ in range(2):
            state, metrics = asyncio.run(step(recipe, ctx, state))
        found.append([e.text for g in ctx.seen for e in g.episodes])
        assert metrics["errors"] == 0
        pool = session_pool(ctx.bench.world.sessions, ctx.bench.world.beside)
        assert pool.held == 0 and not pool.sessions
    assert found[0] == found[1]
