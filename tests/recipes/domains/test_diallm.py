"""DiaLLM: a reference of tests, what can be said of a record, the reward of each turn, and a file of records."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.context import Bench
from palaestra.engines.choose import choose
from palaestra.errors import UserError
from palaestra.recipes.domains.diallm import DiagnosisReward, build
from palaestra.recipes.domains.diallm.exam import measure_diagnoses, measure_recall
from palaestra.rewards import TellPrevented
from palaestra.tasks.clinical import ClinicalTasks, read_reference
from palaestra.toys.patients import PatientTasks
from palaestra.types import Act, Completion, Episode, Event, Group, Message, Reward, Task
from palaestra.worlds import AskFindings

from tests.recipes.objectives.helpers import near

TESTS, CLASSES = ("HbA1c", "pulse", "smoking"), (("none", 80), ("diabetes", 15), ("gout", 5))
TASK = Task(
    id="t",
    prompt=(Message(role="user", content="age 54"),),
    answer="diabetes",
    meta={"findings": {"HbA1c": "abnormal", "pulse": "normal"}, "abnormal": ("HbA1c",)},
)


def play(*says, task=TASK, **settings):
    """The frames of a dialogue."""
    world = AskFindings(**{"tests": TESTS, "classes": CLASSES, **settings})
    frames = [world.reset(task, ("k",))]
    for text in says:
        act = Act(ask=frames[-1].asks[0], text=text, call=None, finish="stop", n_tokens=1)
        frames.append(world.step(frames[-1].state, (act,), ("k",)))
    return frames


# ---- the clinical test reference


@pytest.mark.parametrize(
    ("normal", "value", "shown"),
    [
        ("<5.7", 6.8, "abnormal"),
        ("<5.7", 5.2, "normal"),
        ("<5.7", "5.7", "abnormal"),
        ("<=5.7", 5.7, "normal"),
        (">40", 40, "abnormal"),
        (">= 40", "40.0", "normal"),
        ("70-99", 99, "normal"),
        ("70-99", 69.9, "abnormal"),
        ("-2 to 2", -2, "normal"),
        ("no|never", " No ", "normal"),
        ("no|never", "daily", "abnormal"),
        ("no|never", False, "normal"),
        ("", 6.8, "6.8"),
        ("70-99", "high", "high"),  # no number to be compared
        ("70-99", "", ""),
        ("70-99", "NaN", ""),
        ("70-99", math.nan, ""),
        ("70-99", None, ""),
    ],
)
def test_what_a_value_is_shown_as(normal, value, shown):
    assert read_reference({"code": "x", "normal": normal}, "row").interpret(value) == shown


def test_a_reference_that_cannot_be_read_is_refused():
    assert read_reference({"code": " 4548-4 ", "name": "HbA1c"}, "row").name == "HbA1c"
    for row, match in (
        ({"normal": "<5"}, "row: code is null"),
        ({"code": "x", "normal": "5<7"}, "write it as"),
        ({"code": "x", "normal": "9-1"}, "9 is above 1"),
    ):
        with pytest.raises(UserError, match=match):
            read_reference(row, "row")


# ---- the world


def test_a_dialogue():
    first, asked, end = play("test hba1c", "Diagnose: diabetes.")
    assert first.asks[0].say[0].content.startswith("age 54\n\nAsk for one test")
    assert asked.asks[0].say[0].content == "HbA1c: abnormal" and asked.pay == {("policy", ""): 0.0}
    assert end.pay == {("policy", ""): 1.0} and end.facts["outcomes"] == ("abnormal", "right")
    assert end.facts["correct"] and end.facts["stated"] == "diabetes" and not end.asks
    wrong = play("test pulse", "diagnose none")[-1]
    assert wrong.pay == {("policy", ""): 0.0} and wrong.facts["outcomes"] == ("confirmed", "wrong")


def test_what_is_valid():
    """Neither what was asked before nor what the record lacks; a diagnosis once a test was asked for, alone in the last turn."""
    choices = [f.asks[0].choices for f in play("test pulse", "test HbA1c", turns=4)]
    stated = ("diagnose none", "diagnose diabetes", "diagnose gout")
    assert choices == [("test HbA1c", "test pulse"), ("test HbA1c", *stated), stated]
    assert play("test pulse", turns=2)[-1].asks[0].choices == stated
    assert play(restrict="all")[0].asks[0].choices == tuple(f"test {t}" for t in TESTS)
    missing = play("test smoking", restrict="all")[-1]
    assert missing.asks[0].say[0].content == "smoking: not available" and missing.facts["outcomes"] == ("missing",)
    assert play(restrict="none")[0].asks[0].choices is None
    empty = replace(TASK, meta={"findings": {}, "abnormal": ()})
    assert play(task=empty)[0].asks[0].choices == stated
    assert play(told=False)[0].asks[0].choices == ("HbA1c", "pulse")


def test_turns_without_effect():
    """What cannot be read is no diagnosis, and no diagnosis earns nothing."""
    end = play("test pulse", "test pulse", "maybe gout", "diagnose pulse", restrict="none", turns=4)[-1]
    assert end.facts["outcomes"] == ("confirmed", "repeated", "unread", "unread")
    assert end.pay == {("policy", ""): 0.0} and not end.facts["answered"] and end.facts["tests_asked"] == ("pulse",)
    ordered = replace(TASK, meta={**TASK.meta, "ordered": ("HbA1c",)})
    assert play("test pulse", task=ordered)[-1].facts["outcomes"] == ("unordered",)
    with pytest.raises(UserError, match="'none' names two"):
        play(tests=("None",))


MEASURED = replace(TASK, meta={**TASK.meta, "measured": {"HbA1c": "6.8 (normal <5.7)"}})


def test_a_result_is_interpreted_before_the_record_says_it():
    """6.8 where below 5.7 is normal is abnormal; a wrong reading is told what is right, and neither takes a turn of those
    for tests. A result without a range is shown as it is, and one that is asked for again is not interpreted again."""
    settings = {"task": MEASURED, "interpret": True, "turns": 3}
    first, shown, read, end = play("test HbA1c", "result abnormal", "diagnose diabetes", **settings)
    assert shown.asks[0].say[0].content == "HbA1c: 6.8 (normal <5.7)"
    assert shown.asks[0].choices == ("result normal", "result abnormal") and first.asks[0].choices == (
        "test HbA1c",
        "test pulse",
    )
    assert read.asks[0].say[0].content == "HbA1c: abnormal" and end.facts["outcomes"] == ("abnormal", "read", "right")
    wrong = play("test HbA1c", "Normal.", "test pulse", "diagnose none", **settings)
    assert wrong[2].asks[0].say[0].content == "HbA1c: abnormal" and len(wrong) == 5
    assert wrong[-1].facts["outcomes"] == ("abnormal", "misread", "confirmed", "wrong")
    again = play("test HbA1c", "perhaps", "test HbA1c", "test pulse", restrict="none", **settings)[-1]
    assert again.facts["outcomes"] == ("abnormal", "misread", "repeated", "confirmed") and not again.asks
    world = AskFindings(TESTS, CLASSES, interpret=True)
    assert world.most_turns == 11 and world.read_meaning("abnormal pulse") == "" == world.read_meaning("")
    assert world.oracle(shown.state) == "result abnormal"
    assert paid(["abnormal", "read", "confirmed", "misread", "right"]).total == near(100 / 45)
    parts = paid(["abnormal", "read", "misread", "wrong"]).parts
    assert parts["interpretation"] == near(-0.2) and parts["confirmation"] == near(0.2)


def test_tests_before_a_diagnosis():
    choices = [f.asks[0].choices for f in play("test pulse", "test HbA1c", restrict="all", least=2, turns=4)]
    assert all(c.startswith("test") for c in (*choices[0], *choices[1])) and "diagnose gout" in choices[2]


def test_recall_by_hand():
    """Of two orders {a, b} and {c}: a dialogue that asks a, c, b has 1/2 and 0 at 1, 1/2 + 1 ... at 3 all; a record without
    orders counts its abnormal results, one without either does not count."""

    def group(asked, **meta):
        e = Episode(reward=Reward(total=0.0), facts={"tests_asked": asked}, status="finished")
        return Group(task=replace(TASK, meta=meta), episodes=(e,))

    tests = ("a", "b", "c", "d")
    groups = [
        group(("a", "c", "b"), ordered=("a", "b")),
        group(("a", "c", "b"), abnormal=("c",)),
        group(("d", "a", "b"), ordered=(), abnormal=("d",)),
    ]
    train = [replace(TASK, meta={"ordered": ("c",)})] * 2 + [replace(TASK, meta={"abnormal": ("d",)})]
    m = measure_recall(groups, train, tests)
    assert m == {
        "recall@1": 0.25, "recall@1 chance": 0.25, "recall@1 frequent": 0.5,
        "recall@3": 1.0, "recall@3 chance": 0.75, "recall@3 frequent": near((0.5 + 1) / 2),
    }  # fmt: skip
    assert measure_recall([], train, tests) == {}


def test_measured_results_mean_what_their_range_says():
    for i in range(40):
        meta = PatientTasks().task("test", i).meta
        for name, shown in meta["measured"].items():
            value, _, least_most = shown.removesuffix(")").partition(" (normal ")
            least, most = least_most.split("-")
            assert (int(least) <= int(value) <= int(most)) == (meta["findings"][name] == "normal")


@pytest.mark.parametrize("told", [True, False])
def test_names_as_tables_have_them(told):
    """Marks at an end, breaks of a line and words of the protocol: what may be said is read as what was said."""
    names = ("Alk. phos.", "HbA1c ", "Glucose\n(mg/dL)", "Test strip", "25-OH: ")
    world = AskFindings(names, (("E11.", 3), ("test", 2)), told=told)
    for kind, name in [("test", t) for t in names] + [("diagnose", c) for c, _ in world.classes]:
        assert world.read(world.say(kind, name)) == (kind, name)
    assert world.read("") == world.read("?") == ("", "")
    with pytest.raises(UserError, match="no name"):
        AskFindings(("..",), CLASSES)
    with pytest.raises(UserError, match="names two"):
        AskFindings(("Na", "Na."), CLASSES)


def test_the_oracle_asks_before_it_states():
    """Else the class would be learned from what is known at the start alone."""
    world, seen = AskFindings(TESTS, CLASSES, turns=3), set()
    for i in range(24):
        task = replace(TASK, id=str(i))
        frames, said = [world.reset(task, ("k",))], []
        while frames[-1].asks:
            said.append(world.oracle(frames[-1].state))
            assert said[-1] in frames[-1].asks[0].choices
            act = Act(ask=frames[-1].asks[0], text=said[-1], call=None, finish="stop", n_tokens=1)
            frames.append(world.step(frames[-1].state, (act,), ("k",)))
        assert said[0].startswith("test") and frames[-1].pay == {("policy", ""): 1.0}
        seen.add(len(said))
    assert seen == {2, 3}
    assert world.oracle(world.reset(replace(TASK, meta={"findings": {}}), ("k",)).state) == "diagnose diabetes"


def test_class_weights_of_the_catalogue():
    """Counts (80, 15, 5), and diabetes in the survey: N / (K n_c); times its share each class weighs a third."""
    w = AskFindings(TESTS, CLASSES).weights(0.0, 99.0)
    assert list(w.values()) == pytest.approx([0.416667, 2.222222, 6.666667], abs=1e-6)
    assert [w[c] * n / 100 for c, n in CLASSES] == near([1 / 3] * 3)
    assert AskFindings(TESTS, CLASSES).weights()["gout"] == 5
    survey = AskFindings((), (("no", 7334), ("yes", 853), ("borderline", 175))).weights(0.0, 99.0)
    assert list(survey.values()) == pytest.approx([0.380056, 3.267683, 15.927619], abs=1e-6)


def test_reject_sampling_is_the_restricted_policy():
    """pi = (.5, .3, .2), the first action is rejected: (.6, .4), after 2 draws on average."""
    scored = [Completion(ids=(i,), logp=(math.log(p),), text="", cut=0, finish="eos") for i, p in ((1, 0.3), (2, 0.2))]
    drawn = [choose(scored, 1.0, u) for u in (0.1, 0.59, 0.61, 0.9)]
    assert [d.ids for d in drawn] == [(1,), (1,), (2,), (2,)]
    assert [math.exp(d.logp[0]) for d in drawn] == near([0.6, 0.6, 0.4, 0.4])
    assert 1 / math.exp(drawn[0].choices.log_mass) == near(2)
    e = Episode(reward=Reward(total=0.0), facts={"legal_mass": (0.5, 1.0)}, status="finished")
    told = asyncio.run(TellPrevented()(None, ("k",), Group(task=TASK, episodes=(e,)))).episodes[0]
    assert told.reward.parts == {"prevented": 0.25}


# ---- the reward


def paid(outcomes, task=TASK, **settings):
    """The reward of a dialogue with these outcomes, of class diabetes: w = 100 / 45."""
    events = tuple(Event(row=0, token=i, value=float(x == "right")) for i, x in enumerate(outcomes))
    reward = Reward(total=float("right" in outcomes), events=events)
    e = Episode(reward=reward, facts={"outcomes": tuple(outcomes)}, status="finished")
    world = AskFindings(TESTS, CLASSES)
    ctx = type("Ctx", (), {"bench": Bench(name="b", tasks=None, world=world)})()
    link = DiagnosisReward(**settings)
    return asyncio.run(link(ctx, ("k",), Group(task=task, episodes=(e,)))).episodes[0].reward


def test_each_turn_is_paid_where_it_was():
    r = paid(["abnormal", "confirmed", "right"], cost=0.0)
    assert [(x.token, x.value) for x in r.events] == [(0, near(0.4)), (1, near(0.2)), (2, near(100 / 45))]
    assert r.total == near(0.6 + 100 / 45) and r.parts["confirmation"] == near(0.6) and r.solved
    r = paid(["missing", "repeated", "wrong"], cost=0.0)
    assert r.total == near(-1.1) and r.parts == {
        "confirmation": near(-0.1),
        "interpretation": 0,
        "diagnosis": -1.0,
        "right": 0.0,
    }
    assert not r.solved and paid(["abnormal", "right"], balance=False, cost=0.0).total == near(1.4)


def test_loopholes():
    """Tests whose results are normal earn nothing by default, one that is asked for again costs, and no diagnosis is worth 0.
    Without a cost, asking pays by itself."""
    assert paid(["confirmed", "confirmed"]).total == near(0) == paid(["confirmed", "confirmed"]).parts["diagnosis"]
    assert paid(["confirmed", "read", "confirmed", "read"]).total == near(0)
    assert paid(["confirmed", "confirmed"], cost=0.0).total == near(0.4)
    assert paid(["repeated"]).total == paid(["unordered"]).total == near(-0.25)
    assert paid(["unread", "unread"]).total == near(-0.1)
    share = {"none": 0.8, "diabetes": 0.15, "gout": 0.05}
    for label in share:  # whatever the constant guess, the positive part is 1 / K
        weight = AskFindings(TESTS, CLASSES).weights(0.0, 99.0)[label]
        assert share[label] * weight == near(1 / 3)


def test_what_is_measured():
    def group(label, stated, outcomes):
        facts = {"correct": label == stated, "outcomes": outcomes, "tests_asked": ("x",), "answered": bool(stated)}
        e = Episode(reward=Reward(total=0.0), facts=facts, status="finished")
        return Group(task=replace(TASK, answer=label), episodes=(e,))

    groups = [
        group("none", "none", ("confirmed", "right")),
        group("none", "none", ("confirmed", "right")),
        group("none", "gout", ("confirmed", "wrong")),
        group("gout", "", ("confirmed", "repeated")),
    ]
    m = measure_diagnoses(groups, CLASSES)
    assert (m["accuracy"], m["balanced"], m["rarest"]) == (0.5, near(1 / 3), 0.0)
    assert (m["repeated"], m["undecided"], m["majority"], m["majority balanced"]) == (0.25, 0.25, 0.75, 0.5)


# ---- data


def test_synthetic_records():
    tasks = [PatientTasks().task("train", i) for i in range(600)]
    share = {c: np.mean([t.answer == c for t in tasks]) for c in ("none", "kiva", "toru")}
    assert abs(share["none"] - 0.6) < 0.06 and abs(share["toru"] - 0.15) < 0.05
    kiva = [t.meta for t in tasks if t.answer == "kiva"]
    assert np.mean([m["findings"].get("salt") == "abnormal" for m in kiva]) > 0.7


CSV = "sex,a1c,pulse,smoker,outcome,order\n"


def records(folder, n=40, extra=""):
    rows = [
        f"{'fm'[i % 2]},{5 + i % 3},{60 + i if i % 4 else ''},{'yes' if i % 5 else 'no'},{'ill' if i % 3 == 2 else 'well'},"
        for i in range(n)
    ]
    (folder / "r.csv").write_text(CSV + extra + "\n".join(rows) + "\n")
    (folder / "ctr.csv").write_text("code,name,normal\na1c,HbA1c,<5.7\npulse,,60-80\nsmoker,smoking,no\n")
    return str(folder / "r.csv"), str(folder / "ctr.csv")


def test_a_file_of_records(tmp_path):
    path, reference = records(tmp_path, n=80)
    tasks = ClinicalTasks(path, label="outcome", known=("sex",), reference=reference)
    table = tasks.table
    assert table.tests == ("HbA1c", "pulse", "smoking") and {c for c, _ in table.classes} == {"well", "ill"}
    assert tasks.size + tasks.test_size == 80 and tasks.test_size > 0
    task = tasks.task("train", 0)
    assert task.prompt[0].content in ("sex f", "sex m") and set(task.meta["findings"].values()) <= {
        "normal",
        "abnormal",
    }
    assert any("HbA1c says the class" not in note for note in table.notes)
    bare = ClinicalTasks(path, label="outcome").table
    assert bare.tests == ("sex", "a1c", "pulse", "smoker") and "have no reference range" in bare.notes[0]
    assert any("a1c says the class of every training record" in note for note in bare.notes)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({}, "no column diagnosis"),
        ({"label": "outcom"}, "did you mean outcome"),
        ({"label": "order"}, "order is empty"),
        ({"label": "outcome", "known": ("age",)}, "no record has a column age"),
        ({"label": "outcome", "tests": ("pulze",)}, "did you mean pulse"),
        ({"label": "pulse", "skip": "50%"}, "2 to 64"),
    ],
)
def test_records_at_fault(tmp_path, settings, match):
    path, _ = records(tmp_path, n=150)
    with pytest.raises(UserError, match=match):
        ClinicalTasks(path, **settings).table  # noqa: B018


def test_visits_of_one_person_stay_together(tmp_path):
    """Else what is held out was learned from."""
    rows = [{"id": f"p{i // 4}", "a": i // 4, "b": i % 4, "diagnosis": "xy"[i // 4 % 2]} for i in range(120)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    parts = ClinicalTasks(str(tmp_path / "r.jsonl")).table.parts
    train, test = ({r.findings["a"] for r in parts[split]} for split in ("train", "test"))
    assert train and test and not train & test and len(train | test) == 30


def test_a_header_with_a_blank(tmp_path):
    """ "a1c " in the records is the a1c of the reference and of an order."""
    (tmp_path / "r.csv").write_text("a1c ,diagnosis,ordered\n" + "7,x,a1c\n5,y,\n" * 9)
    (tmp_path / "ctr.csv").write_text("code,name,normal\na1c,HbA1c,<5.7\n")
    tasks = ClinicalTasks(str(tmp_path / "r.csv"), reference=str(tmp_path / "ctr.csv"))
    assert tasks.table.tests == ("HbA1c",)
    assert tasks.task("train", 0).meta["measured"]["HbA1c"] in ("7 (normal <5.7)", "5 (normal <5.7)")
    assert {(t.answer, t.meta["findings"]["HbA1c"]) for t in (tasks.task("train", i) for i in range(9))} == {
        ("x", "abnormal"),
        ("y", "normal"),
    }
    assert ClinicalTasks(str(tmp_path / "r.csv")).table.tests == ("a1c",)


def test_an_order_that_names_no_test(tmp_path):
    rows = [{"a": i % 2, "diagnosis": "xy"[i % 2], "ordered": ["a"] if i else ["b"]} for i in range(9)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match="ordered names 'b', which is no test"):
        ClinicalTasks(str(tmp_path / "r.jsonl")).table  # noqa: B018


def test_training_on_a_file(tmp_path):
    path, reference = records(tmp_path)
    env = f"findings(label=outcome,known='sex',reference='{reference}',turns=3,told=0)"
    words = {"shown": 3, "exam": 4, "rl.schedule.prompts": 2, "shown.schedule.prompts": 4, "rl.schedule.steps": 1}
    run = pl.train("diallm", data=path, env=env, model="tiny", out=tmp_path / "run", quiet=True, evaluate=4, set=words)
    lines = (run.folder / "rl" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    step = next(s for s in steps if "reward" in s)
    assert {
        "part/confirmation",
        "part/diagnosis",
        "part/prevented",
        "part/interpretation",
        "value_error",
        "legal_loss",
    } <= set(step)
    assert 0 < step["part/prevented"] < 1
    numbers = steps[0]["evaluations"]["diagnosis"]
    assert {"balanced", "rarest", "tests", "interpreted", "recall@1", "recall@1 frequent"} <= set(numbers)


def test_other_places_are_refused(tmp_path):
    with pytest.raises(UserError, match="asks for findings of records"):
        pl.train("diallm", task="add", out=tmp_path / "a", quiet=True, steps=1, set={"start": "as-is"})
    with pytest.raises(UserError, match="records of yours"):
        pl.train("diallm", env="findings", out=tmp_path / "b", quiet=True, steps=1)
    assert isinstance(build(start="as-is"), pl.Recipe)
