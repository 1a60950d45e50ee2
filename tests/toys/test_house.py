"""T-house: a thing is found, treated with what can do this, and put away."""

from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.toys.house import AFFORDANCES, APPLIANCES, House, HouseState, HouseTasks, apply_house_action
from palaestra.types import Act, Ask, Task

START = HouseState(
    thing="egg",
    deed="heat",
    target="desk",
    appliances={"heat": "oven", "cool": "icebox", "wash": "sink"},
    containers=("box", "bag"),
    hidden="bag",
    places=("box", "oven", "sink", "bag", "icebox", "desk"),
)
WORLD = House()


def play(actions, start=START, world=WORLD):
    """The observations, what each action is paid, and the last frame."""
    frame = world.reset(Task(id="t", meta={"start": start}), ("k",))
    said, paid = [], []
    for text in actions:
        act = Act(ask=Ask(seat="policy"), text=text, call=None, finish="eos", n_tokens=1)
        frame = world.step(frame.state, (act,), ("k",))
        said.append(frame.asks[0].say[0].content if frame.asks else frame.status)
        paid.append(sum(frame.pay.values()))
    return said, paid, frame


def test_the_three_steps_that_count_are_paid_once():
    said, paid, frame = play(["open box", "Open  bag.", "take egg", "use oven", "use oven", "put desk"])
    assert paid == [0, 0, 0.25, 0.25, 0, 0.5] and frame.facts["correct"] and frame.facts["invalid"] == 1
    assert said == [
        "yes, hold none", "yes, bag has egg, hold none", "yes, hold egg", "yes, hold egg", "no, hold egg", "finished",
    ]  # fmt: skip


def test_what_is_not_possible_changes_nothing():
    held = replace(START, holding=True, opened=("bag",))
    for state, action in (
        (START, "take egg"), (START, "open desk"), (START, "open"), (START, ""), (START, "use oven"),
        (replace(START, opened=("bag",)), "take cup"), (replace(START, opened=("bag",)), "open bag"),
        (held, "use sink"), (held, "put desk"), (replace(held, treated=True), "put box"),
        (replace(held, treated=True), "use oven"), (held, "take egg"),
    ):  # fmt: skip
        assert apply_house_action(state, action) is None, action


def test_turns_run_out_and_what_was_reached_stays_paid():
    _, paid, frame = play(["open bag", "take egg", *["use sink"] * 6])
    assert frame.status == "truncated:turns" and sum(paid) == 0.25 and frame.facts["score"] == 0.25


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_oracle_is_paid_in_full_and_reads_no_more_than_the_affordances(split):
    tasks = HouseTasks()
    for i in range(40):
        task, actions = tasks.task(split, i), []
        frame = WORLD.reset(task, ("k",))
        while frame.asks:
            actions.append(WORLD.oracle(frame.state))
            act = Act(ask=frame.asks[0], text=actions[-1], call=None, finish="eos", n_tokens=1)
            frame = WORLD.step(frame.state, (act,), ("k",))
        assert frame.facts["score"] == 1 and 4 <= len(actions) <= 5
        deed, places = task.prompt[0].content.split()[0], task.prompt[0].content.splitlines()[1].split()
        (used,) = [a.split()[1] for a in actions if a.startswith("use")]
        assert [p for p in places if (p, "can", deed) in AFFORDANCES] == [used]
    assert not {tasks.task("train", i).prompt for i in range(40)} & {tasks.task("test", i).prompt for i in range(40)}


def test_every_appliance_does_one_deed_and_the_graph_says_what_is_seen():
    assert len({h for h, _, _ in AFFORDANCES}) == len(AFFORDANCES) == sum(map(len, APPLIANCES.values()))
    _, _, frame = play(["open box", "open bag"])
    assert frame.facts["graph"] == (("box", "is", "open"), ("bag", "is", "open"), ("bag", "has", "egg"))
    _, _, frame = play(["open bag", "take egg"])
    assert frame.facts["graph"][-1] == ("you", "hold", "egg") and len(frame.facts["graph"]) == 2
    with pytest.raises(pl.UserError, match="turns must be at least 1"):
        House(turns=0)
