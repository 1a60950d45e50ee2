"""Typed experts: what fits, what plans are paid, and what cannot be an expert."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.types import Act, Message, Task
from palaestra.worlds.experts import BOXES, ExpertBox, metric_for, pixels, read_value, words
from palaestra.worlds.plans import ExpertPlans, plan_of

from tests.recipes.objectives.helpers import near

FILE = """
import time
import numpy as np
from typing import NewType

Caption = NewType("Caption", str)
ran = []

def up(text: str) -> str:
    "Capital letters."
    ran.append(text)
    return text.upper()

def size(text: str) -> int:
    return len(text)

def frame(n: int) -> Caption:
    if n == 3:
        raise ValueError("three")
    return Caption("#" * n)

def grey(photo: np.ndarray) -> np.ndarray:
    return photo / 2

def _helper(x):
    return x
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "experts.py"
    path.write_text(FILE)
    yield str(path)
    BOXES.clear()


def task(inputs, targets, prompt="do it", **more):
    meta = {"inputs": inputs, "targets": targets, **more}
    return Task(id="t", prompt=(Message(role="user", content=prompt),), meta=meta)


def said(world, task, *names):
    """The frame after these replies."""
    frame = world.reset(task, ("k",))
    for name in names:
        act = Act(ask=frame.asks[0], text=name, call=None, finish="eos", n_tokens=1)
        frame = asyncio.run(world.step(frame.state, (act,), ("k",)))
    return frame


def test_only_what_fits_and_leads_to_the_goal_can_be_said(file):
    box = ExpertBox((file,))
    assert {e.name: (e.takes, e.gives) for e in box.experts.values()} == {
        "up": ("str", "str"),
        "size": ("str", "int"),
        "frame": ("int", "Caption"),
        "grey": ("ndarray", "ndarray"),
    }
    assert box.distances("Caption") == {"Caption": 0, "int": 1, "str": 2}
    assert box.legal("str", "Caption", 3) == ("up", "size")
    assert box.legal("str", "Caption", 2) == ("size",)  # after up, two more would be needed
    assert box.legal("str", "Caption", 1) == ()
    assert box.legal("str", "str", 1) == ("up",)
    world = ExpertPlans((file,), turns=3)
    assert world.reset(task(["ab"], ["##"], gives="Caption"), ("k",)).asks[0].choices == ("up", "size")
    assert said(world, task(["ab"], ["##"], gives="Caption"), "up").asks[0].choices == ("size",)
    assert said(world, task(["ab"], ["AB"]), "up").asks[0].choices == ("up", "done")


def test_a_plan_is_paid_the_mean_of_its_metric(file):
    """By hand: one of four letters differs in the second, so 1 and .75."""
    world = ExpertPlans((file,))
    frame = said(world, task(["ab", "abcd"], ["AB", "ABCx"]), "up", "done")
    assert frame.pay == {("policy", ""): near((1 + 0.75) / 2)} and not frame.facts["correct"]
    assert frame.facts["plan"] == ("up",) and frame.facts["plan_fits"]
    full = said(ExpertPlans((file,), turns=2), task(["ab"], ["##"], gives="Caption"), "size", "frame")
    assert not full.asks and full.pay[("policy", "")] == 1 and full.facts["correct"]  # turns end it
    exact = said(ExpertPlans((file,), metric="exact"), task(["ab", "abcd"], ["AB", "ABCx"]), "up", "done")
    assert exact.pay[("policy", "")] == 0.5


def test_the_types_rule_out_names_and_without_them_plans_may_not_fit(file):
    """By hand: of five names two can be said, then two."""
    assert said(ExpertPlans((file,)), task(["ab"], ["AB"]), "up").facts["narrowed"] == near((0.8 + 0.6) / 2)
    free = ExpertPlans((file,), legal=False)
    one = said(free, task(["ab"], ["AB"]), "up")
    assert one.facts["narrowed"] == 0 and set(one.asks[0].choices) == {"up", "size", "frame", "grey", "done"}
    for names in (("frame",), ("done",), ("size", "done"), ("no such",)):
        end = said(free, task(["ab"], ["AB"]), *names)
        assert end.pay == {("policy", ""): -1.0} and not end.facts["plan_fits"], names
    assert said(free, task(["ab"], ["AB"]), "up", "done").pay[("policy", "")] == 1


def test_an_error_of_an_expert_scores_its_input_0_and_a_fault_ends_the_episode(file, tmp_path):
    world = ExpertPlans((file,))
    frame = said(world, task(["ab", "abc"], ["##", "###"], gives="Caption"), "size", "frame", "done")
    assert frame.pay[("policy", "")] == 0.5 and frame.facts["expert_errors"] == 1
    assert "three" in frame.facts["expert_error"] and ":19" in frame.facts["expert_error"]
    (tmp_path / "down.py").write_text(
        'import palaestra as pl\n\ndef ask(x: str) -> str:\n    raise pl.Fault("server", "is down")\n'
    )
    with pytest.raises(Fault, match="is down"):
        said(ExpertPlans((str(tmp_path / "down.py"),)), task(["a"], ["b"]), "ask", "done")


def test_a_slow_expert_does_not_stop_the_run(tmp_path):
    (tmp_path / "slow.py").write_text("import time\n\ndef wait(x: str) -> str:\n    time.sleep(0.3)\n    return x\n")
    frame = said(ExpertPlans((str(tmp_path / "slow.py"),), seconds=0.02), task(["a"], ["a"]), "wait", "done")
    assert frame.pay[("policy", "")] == 0 and "0.02 s" in frame.facts["expert_error"]


def test_a_plan_runs_once_for_the_same_inputs(file):
    world = ExpertPlans((file,))
    for prompt in ("one", "two"):
        said(world, task(["ab"], ["AB"], prompt), "up", "done")
    ran = world.box.experts["up"].function.__globals__["ran"]
    assert ran == ["ab"]
    said(world, task(["cd"], ["AB"]), "up", "done")
    assert ran == ["ab", "cd"]


def test_what_the_policy_reads(file):
    examples = (("do it", ("size",)), ("shout", ("up", "up")), ("count", ("size",)))
    world = ExpertPlans((file,), told=True, shots=1, examples=examples)
    given = Task(
        id="t",
        prompt=(Message(role="system", content="Be brief."), Message(role="user", content="do it")),
        meta={"inputs": ["secret"], "targets": ["GOLD"], "plan": ["up"]},
    )
    (ask,) = world.reset(given, ("k",)).asks
    assert [m.role for m in ask.say] == ["system", "user"] and ask.say[0].content == "Be brief."
    text = ask.say[1].content
    assert text.startswith("shout\nup, up, done\n\ndo it\n\n")  # not its own plan
    assert "- up: str -> str. Capital letters." in text and "- size: str -> int\n" in text
    assert "secret" not in text and "GOLD" not in text


def test_types_of_data():
    box = ExpertBox(pl.toys.EXPERT_NAMES)
    assert box.type_of([[0.5]], "x") == "Photo" and box.type_of("cat", "x") == "str"
    with pytest.raises(UserError, match=r"x is none of Photo, str; name its type in the column takes"):
        box.type_of(3, "x")


def test_arrays_and_pictures_of_a_folder(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(4.0))
    assert read_value("a.npy", np.ndarray, str(tmp_path), "x").tolist() == [0, 1, 2, 3]
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(np.full((2, 3, 3), 40, np.uint8))
    picture.save(tmp_path / "p.png")
    loaded = read_value("p.png", image.Image, str(tmp_path), "x")
    assert loaded.size == (3, 2) and pixels(loaded, picture) == 1
    darker = image.fromarray(np.full((2, 3, 3), 91, np.uint8))
    assert pixels(loaded, darker) == near(1 - 51 / 255)
    with pytest.raises(UserError, match=r"task 't' is no picture and no array.*no\.png"):
        read_value("no.png", image.Image, str(tmp_path), "task 't'")
    with pytest.raises(UserError, match="is no picture and no array"):
        np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
        read_value("o.npy", np.ndarray, str(tmp_path), "x")


def test_metrics_by_hand(tmp_path):
    assert words("The cat sat", "the cat") == near(2 * 2 / 5) and words("", "") == 1
    assert pixels(np.array([0.0, 1.0]), np.array([0.5, 1.0])) == near(0.75)
    assert pixels(np.zeros(3), np.zeros(2)) == 0 and pixels(np.array([np.nan]), np.array([1.0])) == 0
    assert metric_for("", str)("abc", "abd") == near(2 / 3)
    assert metric_for("", int)(3, 3) == 1 and metric_for("", int)(3, 4) == 0
    (tmp_path / "m.py").write_text("def half(a, b):\n    return 0.5\n\ndef big(a, b):\n    return 70\n")
    assert metric_for(f"{tmp_path / 'm.py'}:half", str)("a", "b") == 0.5
    with pytest.raises(UserError, match="returned 70; a metric is a number from 0 to 1"):
        metric_for(f"{tmp_path / 'm.py'}:big", str)("a", "b")
    with pytest.raises(UserError, match="metric=bert is none of similarity"):
        metric_for("bert", str)


BAD = {
    "def two(a: str, b: str) -> str:\n    return a\n": "is no expert; one takes one value",
    "def bare(a) -> str:\n    return a\n": "is no expert",
    "def silent(a: str):\n    return a\n": "is no expert",
    "async def late(a: str) -> str:\n    return a\n": "is async",
    "def done(a: str) -> str:\n    return a\n": "no expert may be called 'done'",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_expert_is_refused(text, tmp_path):
    (tmp_path / "e.py").write_text(text)
    with pytest.raises(UserError, match=BAD[text]):
        ExpertPlans((str(tmp_path / "e.py"),))


def test_tasks_that_no_plan_can_do_are_refused(file):
    world = ExpertPlans((file,))
    for meta, what in (
        ({"inputs": ["a"], "targets": []}, "has 1 and 0"),
        ({"inputs": [], "targets": []}, "has 0 and 0"),
        ({"inputs": [3], "targets": ["a"], "gives": "str"}, "no plan of 10 experts leads from int to str"),
        ({"inputs": ["a"], "targets": ["b"], "takes": "Photo"}, "takes is 'Photo', which is no type"),
    ):
        with pytest.raises(UserError, match=what):
            world.reset(Task(id="t", prompt=(Message(role="user", content="x"),), meta=meta), ("k",))


def test_plans_of_data():
    assert plan_of(task([], [], plan="deblur, caption")) == ("deblur", "caption")
    assert plan_of(task([], [], plan=["up", "done"])) == ("up",)
    assert plan_of(task([], [])) is None and plan_of(task([], [], plan=[])) is None


def test_few_shots_and_settings_of_an_environment(file, tmp_path):
    rows = [{"prompt": f"p{i}", "inputs": ["a"], "targets": ["A"], "plan": ["up"]} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    common = {"tools": [file], "data": str(tmp_path / "rows.jsonl"), "model": "tiny-agent", "evaluate": 4}
    with pytest.raises(UserError, match="shot=2 is no setting of the experts"):
        pl.train("openagi", env="experts(shot=2)", out=tmp_path / "a", quiet=True, **common)
    with pytest.raises(UserError, match=r"plans need functions and tasks of yours: tools FILE\.py"):
        pl.train("openagi", env="experts", data=common["data"], out=tmp_path / "b", quiet=True, model="tiny-agent")
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps({k: r[k] for k in r if k != "plan"}) + "\n" for r in rows))
    with pytest.raises(UserError, match="no row has a column plan"):
        pl.train(
            "openagi",
            env="experts(shots=2)",
            out=tmp_path / "c",
            quiet=True,
            **common | {"data": str(tmp_path / "bare.jsonl")},
        )
