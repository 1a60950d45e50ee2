"""Worlds in which actions and things have made-up names."""

import pytest
from palaestra.errors import UserError
from palaestra.toys.grid import MOVES
from palaestra.toys.lake import Lake, LakeState, LakeTasks, moved, way_to
from palaestra.types import Act, Ask

TASKS = LakeTasks()
NAMES = {"up": "4", "down": "5", "left": "6", "right": "7", "goal": "9", "hole": "8"}


def state(at, goal, hole, **more):
    return LakeState(at=at, goal=goal, hole=hole, names=NAMES, **more)


def said(text):
    return (Act(ask=Ask(seat="policy"), text=text, call=None, finish="eos", n_tokens=1),)


@pytest.mark.parametrize("split", ["train", "test"])
def test_episodes_of_a_world_share_names_and_nothing_else(split):
    tasks = [TASKS.task(split, i) for i in range(30)]
    worlds = [t.meta["world"] for t in tasks]
    assert [worlds.index(w) for w in worlds] == [0] * 10 + [10] * 10 + [20] * 10
    starts = [t.meta["start"] for t in tasks]
    assert all(s.names == starts[i // 10 * 10].names for i, s in enumerate(starts))
    assert starts[0].names != starts[10].names != starts[20].names
    assert len({str(s) for s in starts[:10]}) > 7
    for task, s in zip(tasks, starts, strict=True):
        assert len(set(s.names.values())) == 6 and len({s.at, s.goal, s.hole}) == 3
        use, board = task.prompt[0].content.splitlines()
        assert use == "use " + " ".join(sorted(s.names[m] for m in MOVES)) and board == str(s)
    other = "test" if split == "train" else "train"
    assert not {t.prompt for t in tasks} & {TASKS.task(other, i).prompt for i in range(30)}


def test_nothing_shown_says_which_thing_is_which():
    shown = [TASKS.task("train", 10 * i) for i in range(200)]
    first = [t.prompt[0].content.splitlines()[1].split()[1][0] for t in shown]
    goals = sum(f == t.meta["start"].names["goal"] for f, t in zip(first, shown, strict=True))
    assert 70 < goals < 130


def test_moves_walls_and_words_without_a_meaning():
    assert str(state((1, 1), (0, 0), (2, 2))) == "b2 8c3 9a1"
    assert moved(state((1, 1), (0, 0), (2, 2)), "4") == (1, 0)
    assert moved(state((1, 0), (0, 0), (2, 2)), "4") == (1, 0)  # a wall
    assert moved(state((1, 1), (0, 0), (2, 2)), "u") == (1, 1)  # no name


def test_an_episode_is_won_lost_or_cut():
    world = Lake(turns=2)
    won = world.step(state((0, 1), (0, 0), (2, 2)), said("t9a1 u4"), ("k",))
    assert won.pay == {("policy", ""): 1.0} and won.status == "finished" and not won.asks
    assert won.facts["steps"] == (("a2", "4", "a1"),) and won.facts["result"] == "won"
    assert won.facts["thing"] == "9" and won.facts["correct"] and won.facts["executed"] == (True,)
    lost = world.step(state((0, 1), (2, 2), (0, 0)), said("4"), ("k",))
    assert lost.pay == {("policy", ""): 0.0} and lost.status == "finished" and lost.facts["thing"] == "8"
    on = world.step(state((1, 1), (0, 0), (2, 2)), said(""), ("k",))
    assert on.asks[0].say[0].content == "b2 8c3 9a1" and on.facts["steps"] == (("b2", "", "b2"),)
    assert on.facts["invalid"] == 1 and won.facts["invalid"] == 0
    cut = world.step(on.state, said("4"), ("k",))
    assert cut.status == "truncated:turns" and cut.pay == {("policy", ""): 0.0} and cut.facts["result"] == ""


def test_the_oracle_wins_by_a_shortest_way_around_the_hole():
    assert way_to(state((0, 0), (2, 0), (1, 0)), (2, 0), (1, 0)) == "down"
    assert way_to(state((0, 0), (2, 2), (1, 1)), (2, 2), (1, 1)) == "right"
    world = Lake()
    for i in range(60):
        task = TASKS.task("test", i)
        frame, n = world.reset(task, ("k",)), 0
        while frame.asks:
            frame, n = world.step(frame.state, said(world.oracle(frame.state)), ("k",)), n + 1
        assert frame.facts["result"] == "won" and n <= 4
    with pytest.raises(UserError, match="boards"):
        LakeTasks(boards=0)
