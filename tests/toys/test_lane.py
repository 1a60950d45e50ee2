"""The simulated lane: actions by hand, what a log reveals, and how well players do."""

import json

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.toys.lane import LANE_ACTIONS, LaneState, LaneTasks, acted, expert_action, passed, play_lane
from palaestra.types import rng_of


def test_what_actions_do():
    state = LaneState(front=-1, dragon=0, gold=1)
    assert acted(state, "push") == LaneState(front=0, dragon=0, gold=0)
    assert acted(state, "defend") == LaneState(front=0, dragon=0, gold=1)
    assert acted(LaneState(front=-2), "defend").front == 0
    assert acted(state, "dragon") == LaneState(front=1, dragon=6, gold=1)
    assert acted(state, "farm").gold == 3 and acted(LaneState(gold=2), "farm").gold == 3
    stuck = LaneState(front=1, dragon=2, gold=0)
    assert stuck.legal() == ("farm",) and all(acted(stuck, x) == stuck for x in ("push", "defend", "dragon", "sing"))
    assert LaneState(front=-3).over and not LaneState(front=2).over and len(LaneState.every()) == 5 * 7 * 4


def test_a_frame_brings_the_enemy_and_the_dragon_nearer():
    moved = [passed(LaneState(), rng_of(("x", i))) for i in range(2000)]
    assert {m.dragon for m in moved} == {2} and np.mean([m.front for m in moved]) == pytest.approx(-0.4, abs=0.04)
    assert passed(LaneState(dragon=0), rng_of(("x",))).dragon == 0


def test_the_rule_of_the_expert():
    for state, action in (
        (LaneState(front=-2, dragon=0), "defend"), (LaneState(dragon=0, gold=0), "dragon"),
        (LaneState(gold=0), "farm"), (LaneState(), "push"),
    ):  # fmt: skip
        assert expert_action(state) == action


def test_games_are_won_by_the_rule_and_lost_by_idling():
    won = lambda choose: np.mean([play_lane(choose, rng_of(("g", i)))[1] for i in range(200)])
    assert won(lambda s, r: expert_action(s)) > 0.7
    assert won(lambda s, r: "") == 0 and 0.1 < won(lambda s, r: str(r.choice(LANE_ACTIONS))) < 0.5


def test_an_event_shows_in_the_second_frame_of_an_action():
    frames, _ = play_lane(lambda s, r: "farm", rng_of(("g", 0)))
    assert [event for _, event in frames[:4]] == ["", "farm", "", "farm"]
    assert frames[0][0] == LaneState() and 3 < len(frames) <= 40


def test_tasks_are_labelled_states_and_the_window_adds_the_first_frames():
    tasks = [LaneTasks().task("train", i) for i in range(60)]
    assert {t.meta["ahead"] for t in tasks} == {0.0, 1.0} and {t.answer for t in tasks} == set(LANE_ACTIONS)
    own = [LaneTasks(window=0).task("train", i) for i in range(30)]
    assert {t.meta["ahead"] for t in own} == {0.0}
    clean = [LaneTasks(noise=0.0).task("train", i) for i in range(60)]
    for t in (t for t in clean if t.meta["ahead"] == 1.0):
        assert expert_action(LaneState(**json.loads(t.prompt[0].content))) == t.answer
        assert t.answer in t.meta["legal"]
    held_out = {LaneTasks().task("test", i).prompt[0].content for i in range(30)}
    assert not held_out & {t.prompt[0].content for t in tasks}
    with pytest.raises(UserError, match="noise"):
        LaneTasks(noise=2)
