"""Draws: every task of an epoch once, whatever the size of a batch; replays that go on from step to step."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.curriculum.pool import Series, Shuffled, is_mixed
from palaestra.curriculum.prioritised import Prioritised, Successes
from palaestra.curriculum.replay import Replay, draw_by_priority, group_by_prompt
from palaestra.errors import UserError
from palaestra.types import Episode, Group, Message, Reward, Task, rng_of

from tests.fake import episode


def context(size, seed=0):
    tasks = SimpleNamespace(
        size=size, task=lambda split, i: Task(id=str(i), prompt=(Message(role="user", content="x" * i),))
    )
    return SimpleNamespace(seed=seed, bench=SimpleNamespace(tasks=tasks, first_drawn=0, data_seed=None))


def drawn(ctx, sizes):
    found, state = [], {}
    for n in sizes:
        tasks, state = Shuffled()(ctx, ("another", n), n, state)
        assert len(tasks) == n
        found += [int(t.id) for t in tasks]
    return found


@given(st.lists(st.integers(1, 12), max_size=8))
def test_every_epoch_has_every_task_once_in_an_order_of_its_own(sizes):
    """Batches end inside of epochs, and a large one spans some: the sequence is the same for all sizes."""
    found = drawn(context(7), sizes)
    assert found == drawn(context(7), [1] * sum(sizes)) and drawn(context(None), sizes) == list(range(sum(sizes)))
    epochs = [found[i : i + 7] for i in range(0, len(found) - 6, 7)]
    assert all(sorted(e) == list(range(7)) for e in epochs)
    assert all(a != b for a, b in pairwise(epochs))
    assert len(epochs) == 0 or drawn(context(7, seed=1), sizes)[:7] != epochs[0]


def test_the_share_of_open_problems_rises_along_a_line():
    """Of 16 problems, the shortest first: 4 at the first draw, then 7, 10, 13, and all from the fourth on."""
    ctx, draw, state = context(16), Prioritised(problems=16, rise=4, start=0.25), {}
    for share in (4, 7, 10, 13, 16, 16):
        found = {int(t.id) for k in range(40) for t in draw(ctx, (k,), 1, state)[0]}
        assert found <= set(range(share)) and len(found) > share / 2 and max(found) >= share - 3
        state = draw(ctx, (0,), 1, state)[1]


def test_a_success_is_a_full_reward():
    totals = (0.0, 0.5, 1.0, 1.2)
    group = Group(task=Task(id="a"), episodes=tuple(episode((0,), (1,), x) for x in totals))
    failed = Group(task=Task(id="b"), episodes=(Episode(status="error:x"),))
    assert Successes()([group, failed], {}, {})["tried"] == {"a": (2, 4), "b": (0, 0)}


def attempts(name, totals):
    return Group(task=Task(id=name), episodes=tuple(Episode(reward=Reward(total=x), status="finished") for x in totals))


def test_priorities_of_a_replay_are_exponential():
    """Rewards 0 and 1 at priority log 3: the better one comes first in 3 of 4 draws."""
    pair = attempts("a", (0.0, 1.0)).episodes
    first = [draw_by_priority(pair, 1, 1.0986, rng_of(("replay", n)))[0].total for n in range(4000)]
    assert sum(first) / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_replay_of_any_prompt_is_another_in_every_step():
    """With `recent` 0 every prompt of the buffer is as likely in the first place, and each step has a draw of its own."""
    groups = [attempts(str(n), (float(n),)) for n in range(4)]
    pool = Replay(size=1, samples=1, recent=0.0)
    at = lambda step: asyncio.run(pool(SimpleNamespace(seed=0, step=step), groups, {}))[0][0].task.id
    found = [at(step) for step in range(200)]
    assert all(25 < found.count(str(n)) < 75 for n in range(4)) and found == [at(step) for step in range(200)]


def test_the_newest_episodes_of_a_prompt_are_the_last_that_came():
    buffer = [attempts("a", (0.0, 0.25)), attempts("b", (9.0,)), attempts("a", (0.5,))]
    assert [e.total for e in group_by_prompt(buffer)["a"][1]] == [0.0, 0.25, 0.5] and list(group_by_prompt(buffer)) == [
        "b",
        "a",
    ]
    ready, _, state = asyncio.run(Replay(size=1, samples=2, recent=1.0)(SimpleNamespace(seed=0, step=0), buffer, {}))
    assert ready[0].task.id == "a" and [e.total for e in ready[0].episodes] == [0.25, 0.5]
    failed = Group(task=Task(id="a"), episodes=(Episode(status="error:x"),))
    again = asyncio.run(Replay(size=1, samples=2, recent=1.0)(SimpleNamespace(seed=0, step=1), [failed], state))
    assert again[0] == ready and again[2] == state


def test_an_error_is_nothing_to_compare_with():
    right, wrong = attempts("a", (1.0, 0.0)).episodes
    broken = replace(wrong, status="error:x")
    assert is_mixed(Group(task=Task(id="a"), episodes=(right, wrong)))
    assert not is_mixed(Group(task=Task(id="a"), episodes=(right, broken)))


def numbered_tasks(size):
    task = lambda split, i: Task(id=f"{split} {i}")
    return SimpleNamespace(
        bench=SimpleNamespace(tasks=SimpleNamespace(size=size, task=task), first_held_out=7, first_drawn=0)
    )


def series_drawn(draw, size, n, times):
    state, found = {}, []
    for _ in range(times):
        tasks, state = draw(numbered_tasks(size), ("k",), n, state)
        found.append([int(t.id.split()[1]) for t in tasks])
    return found, state


def test_series_follow_one_another_a_task_of_each_a_draw():
    found, _ = series_drawn(Series(3, staggered=False), None, 2, 4)
    assert found == [[0, 3], [1, 4], [2, 5], [6, 9]]
    staggered, state = series_drawn(Series(3), None, 3, 4)
    assert staggered == [[0, 4, 8], [1, 5, 9], [2, 10, 12], [11, 13, 15]], "places 0, 1 and 2 at once"
    assert state["begun"] == 6
    assert series_drawn(Series(4), 10, 2, 3)[0] == [[0, 6], [1, 7], [2, 8]]
    assert series_drawn(Series(4, staggered=False), 5, 2, 2)[0] == [[0, 4], [1, 0]], "a short source begins again"
    held_out, _ = series_drawn(Series(3, split="test", staggered=False), None, 2, 1)
    assert held_out == [[21, 24]], "from the first held-out problem on"
    with pytest.raises(UserError, match="length"):
        Series(0)
