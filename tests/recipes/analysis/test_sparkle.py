"""SPARKLE: axes by hand, annotations, solutions that are cut, arms, and files of a user."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import sparkle as study
from palaestra.recipes.analysis.sparkle import axes, findings, scaffold, training
from palaestra.types import Episode, Group, Message, Row, Segment, Task

from tests.chat_server import serving


def rng():
    return np.random.default_rng(0)


def task(answer="42", id="t", **meta):
    return Task(id=id, prompt=(Message(role="user", content="?"),), answer=answer, meta=meta)


# ---- axes


def test_the_chain_by_hand():
    """p = 1, 1/2 and s = 1/4: a = 1/2, solved without 1/8, not solved with 3/8; p = 0, 1 and s = 1: a = 0."""
    chain = findings.chain_of({0: [1.0, 0.5], 1: [0.0, 1.0]}, {0: 0.25, 1: 1.0, 2: 0.5})
    assert chain.right == {0: 0.75, 1: 0.5} and chain.every == {0: 0.5, 1: 0.0}
    assert chain.without == {0: 0.125, 1: 1.0} and chain.alone == {0: 0.375, 1: 0.0}


def item(*right, texts=None):
    return {"problem": 0, "prompt": "?", "gold": "1", "right": list(right), "texts": texts or ["a"] * len(right)}


def asked_by(**rights):
    """Two problems; `rights` name model_form, with the answers to each."""
    forms = {"plain": [(0, task()), (1, task())], "plan": [(0, task()), (1, task())], "knowledge": [(1, task())]}
    forms["parts"] = [(0, task()), (0, task()), (1, task())]
    models = [m for m in ("policy", "base") if f"{m}_plain" in rights]
    asked = findings.AxisAnswers([task(), task()], [axes.ProblemNotes(), axes.ProblemNotes()], forms, models)
    for name, rows in rights.items():
        asked.items[tuple(name.split("_"))] = [item(*r) for r in rows]
    return asked


BASE = {
    "base_plain": [(1, 0), (1, 1)],
    "base_plan": [(0, 0), (1, 0)],
    "base_knowledge": [(1, 1)],
    "base_parts": [(1, 1), (1, 0), (0, 0)],
}
AFTER = {
    "policy_plain": [(1, 1), (1, 1)],
    "policy_plan": [(1, 0), (1, 1)],
    "policy_knowledge": [(0, 0)],
    "policy_parts": [(1, 1), (1, 1), (1, 0)],
}


def test_what_a_plan_and_knowledge_add_by_hand():
    """The plan takes 1/2 from both problems of the start, and 1/2 from one of the model: -.5, -.25, change +.25.
    Knowledge of the second problem alone: 0 and -1."""
    found = findings.report(asked_by(**BASE, **AFTER), ["1", "2"]).numbers
    mean = lambda name: found[name].mean
    assert (mean("start_right"), mean("right"), mean("change_right")) == (0.75, 1.0, 0.25)
    assert (mean("start_d_plan"), mean("d_plan"), mean("change_plan")) == (-0.5, -0.25, 0.25)
    assert (mean("start_d_knowledge"), mean("d_knowledge"), mean("change_knowledge")) == (0.0, -1.0, -1.0)
    # sub-problems: (3/4 + 0) / 2 and (1 + 1/2) / 2; all of them: (1/2 + 0) / 2 and (1 + 1/2) / 2
    assert (mean("start_parts_right"), mean("parts_right"), mean("change_parts")) == (0.375, 0.75, 0.375)
    assert (mean("start_parts_every"), mean("parts_every"), mean("change_all_parts")) == (0.25, 0.75, 0.5)


def test_the_hardest_level_and_a_model_alone():
    found = findings.report(asked_by(**AFTER), ["always", "never"])
    assert "On the hardest level, never, a plan adds to the model +0.0 points" in " ".join(found.findings)
    assert found.findings[0].startswith("Its plan in the prompt adds to the model −25.0 points")
    assert "moved" not in found.numbers and not any(n.startswith(("change", "start")) for n in found.numbers)
    rows = {r[0]: r for t in found.tables if t.title == "By difficulty" for r in t.rows}
    assert rows["never"][1] == "1" and rows["never"][3].startswith("+0.0")


def test_training_is_told_axis_by_axis():
    """32 problems alike: solved by the model alone, and with a plan by neither."""
    few = asked_by(**BASE, **AFTER)
    n = 32
    forms = {f: [(i, task()) for i in range(n)] for f in ("plain", "plan")}
    many = findings.AxisAnswers([task()] * n, [axes.ProblemNotes()] * n, forms, few.models)
    for model, form, right in (
        ("base", "plain", 0),
        ("base", "plan", 0),
        ("policy", "plain", 1),
        ("policy", "plan", 0),
    ):
        many.items[model, form] = [item(right)] * n
    first = findings.report(many, ["1"] * n).findings[0]
    assert first.startswith("After training more: solving the problems as they are (+100.0 points")
    assert "less: what a plan adds (−100.0 points" in first


def test_partners_are_others():
    for n in (2, 3, 7):
        other = axes.partners(list(range(10, 10 + n)), np.random.default_rng(n))
        assert sorted(other) == list(range(10, 10 + n)) and all(
            a != b for a, b in zip(range(10, 10 + n), other, strict=True)
        )


@pytest.mark.parametrize(
    "given, levels",
    [
        ([3, None, 1, 3.0], ["3", "?", "1", "3"]),
        (["hard", "easy"], ["hard", "easy"]),
        (list(range(20)), [str(1 + i // 2) for i in range(20)]),
        ([2, "hard"], ["2", "hard"]),
    ],
)
def test_levels(given, levels):
    assert axes.levels_of(given) == levels


def test_levels_from_easy_to_hard():
    assert findings.order(["10", "9", "?", "1"]) == ["1", "9", "10"]
    assert findings.order(["never", "always", "never"]) == ["always", "never"]
    assert findings.order(["b", "a"]) == ["a", "b"] and findings.order(["?"]) == []
    assert findings.order(["hard", "Easy", "medium"]) == ["Easy", "medium", "hard"]
    assert findings.order(["Level 10", "Level 2"]) == ["Level 2", "Level 10"]
    assert findings.is_ranked(["Easy", "hard"]) and not findings.is_ranked(["algebra", "easy"])


# ---- annotations


def test_forms_of_a_problem():
    row = task(plan=["first", "then"], knowledge="k", subproblems=[{"question": "q1", "answer": 3}, ["q2", "42"]])
    notes = axes.notes_of(row)
    assert axes.notes_from(json.loads(json.dumps(notes.json()))) == notes
    forms = axes.forms_of([row, task(plan="p")], [notes, axes.notes_of(task(plan="p"))], rng())
    text = lambda form, k: forms[form][k][1].prompt[-1].content
    assert {f: [i for i, _ in x] for f, x in forms.items()} == {
        "plain": [0, 1], "plan": [0, 1], "other plan": [0, 1], "knowledge": [0], "parts": [0, 0]
    }  # fmt: skip
    assert text("plan", 0) == "?\n\nPlan:\nfirst\nthen" and text("other plan", 0) == "?\n\nPlan:\np"
    assert text("knowledge", 0) == "?\n\nKnown facts:\nk"
    assert text("parts", 0) == "?\n\nAnswer this part alone:\nq1"
    assert text("parts", 1) == "?\n\nSolved so far:\nq1: 3\n\nAnswer this part alone:\nq2"
    assert [t.answer for _, t in forms["parts"]] == ["3", "42"] and forms["plan"][0][1].answer == "42"


@pytest.mark.parametrize(
    "meta, why",
    [
        ({"plan": 3}, "its `plan` is a text"),
        ({"subproblems": "q"}, "its `subproblems` are a list"),
        ({"subproblems": [{"question": "q"}]}, "its `subproblems` are a list"),
        ({"subproblems": [["q", "a", "b"]]}, "its `subproblems` are a list"),
    ],
)
def test_columns_in_another_form(meta, why):
    with pytest.raises(UserError, match=why):
        axes.notes_of(task(**meta))


def test_problems_of_the_toy_are_annotated():
    """The plan is an order in which each value is known when it is needed, sub-problems follow from those before
    them, and all problems have the same constants."""
    source = pl.toys.Plans(d=(2, 6))
    known = dict(zip("ABCDEFGH", (), strict=False))
    for i in range(60):
        t = source.task("train", i)
        said, asked = t.prompt[0].content.split(":")
        rules = dict(x.split("=") for x in said.split(","))
        facts = dict(x.split("=") for x in t.meta["knowledge"].split())
        assert all(known.setdefault(k, v) == v for k, v in facts.items())
        names, values = t.meta["plan"].split(","), {}
        for name in names:
            values[name] = eval(rules[name], {}, {**values, **{k: int(v) for k, v in facts.items()}}) % 10
        assert names[-1] == asked and str(values[asked]) == t.answer and t.meta["difficulty"] == len(rules)
        assert [(q, int(a)) for q, a in t.meta["subproblems"]] == list(values.items())
        assert source.check(source.demonstration(t, rng(), "work"), t) == 1
    assert len(known) == 8


def test_questions_that_are_taught_show_or_ask():
    source = pl.toys.Plans(beside=1.0)
    kinds = [source.task("train", i).prompt[0].content for i in range(60)]
    for mark in ("Plan:\n", "Known facts:\n", "Answer this part alone:\n"):
        assert sum(mark in k for k in kinds) > 8
    plain = [pl.toys.Plans().task("train", i) for i in range(20)]
    assert all("\n" not in t.prompt[0].content for t in plain)
    held = {pl.toys.Plans().task("test", i).prompt[0].content for i in range(60)}
    assert held.isdisjoint(k.split("\n")[0] for k in kinds)


# ---- solutions


@pytest.mark.parametrize(
    "text, n, ends",
    [
        ("a\n\nb\n\nc\n\nd", 4, ["a", "b", "c", "d"]),
        ("a\n\nb\n\nc\n\nd\n\ne", 4, ["a", "b", "c", "e"]),
        ("a\n\nb\n\nc\n\nd\n\ne\n\nf", 4, ["a", "c", "d", "f"]),
        ("1. x\n2. y\n3. z", 3, ["x", "y", "z"]),
        ("p\nq\nr\ns", 2, ["q", "s"]),
        ("One. Two. Three. Four. Five.", 4, ["Two.", "Four.", "Five."]),
        ("One. Two.", 4, ["One.", "Two."]),
        ("one", 4, ["one"]),
        ("", 4, []),
    ],
)
def test_beginnings(text, n, ends):
    """4 segments make 5 versions with the bare one; each is a beginning of the text, the last all of it."""
    found = scaffold.beginnings(text, n)
    assert [b.strip().split("\n")[-1].endswith(e) for b, e in zip(found, ends, strict=True)] == [True] * len(ends)
    assert all(f"{text}\n".startswith(b) for b in found) and (not found or found[-1] == f"{text}\n")


@pytest.mark.parametrize(
    "solution, answer, working",
    [
        ("p=4\nx=5\n= 5", "5", "p=4\nx=5"),
        ("First 40. Then 2 more. The answer is 42.", "42", "First 40. Then 2 more."),
        ("a b c.\nSo it is \\boxed{4}.", 4, "a b c."),
        ("<think>\nLong.\n</think>\nThe answer is 4.", "4", "<think>\nLong."),
        ("17 + 25 = 30 + 12 = 42", "42", "17 + 25 = 30 + 12 ="),
        ("one\ntwo", "7", "one"),
        ("42", "42", ""),
        ("no idea", "7", ""),
    ],
)
def test_a_working_leaves_out_the_answer(solution, answer, working):
    assert scaffold.working_of(solution, answer) == working


def test_arms_of_hard_problems():
    found = scaffold.HardSet([1, 4], [0, 2, 3, 5], {1: ["a", "ab", "abc", "abcd"], 4: ["x", "xy"]})
    rows = lambda arm: found.rows(arm, 4, rng())
    assert rows("hard") == [(1, ""), (4, "")]
    assert rows("all") == [(1, ""), (4, ""), (1, "a"), (1, "ab"), (1, "abc"), (1, "abcd"), (4, "x"), (4, "xy")]
    assert rows("half") == [(1, ""), (4, ""), (1, "a"), (1, "ab"), (4, "x"), (4, "xy")]
    assert {*rows("shuffled")} == {(1, ""), (4, ""), (1, "x"), (1, "xy"), (4, "a"), (4, "ab"), (4, "abc"), (4, "abcd")}
    mixed = rows("mixed")
    assert mixed[:2] == rows("hard") and len(mixed) == 4 and {i for i, _ in mixed[2:]} <= {0, 2, 3, 5}


def test_a_scaffolded_problem_keeps_what_it_was():
    source = scaffold.ScaffoldedTasks(pl.toys.Plans(), ((3, ""), (3, "p=4\n")))
    bare, shown = source.task("train", 0), source.task("train", 1)
    assert bare.prompt == shown.prompt == pl.toys.Plans().task("train", 3).prompt and bare.id != shown.id
    assert "scaffold" not in bare.meta and shown.meta["scaffold"] == "p=4\n" and source.size == 2
    assert source.task("test", 5) == pl.toys.Plans().task("test", 5)


def test_only_what_the_policy_said_is_judged():
    """The beginning says the right answer; the policy says nothing, and that is wrong."""
    segments = (
        Segment(ids=(1,), text="?"),
        Segment(ids=(2,), text="= 42\n", author="forced"),
        Segment(ids=(3,), text="well", author="policy", trained=True, logp=(-1.0,)),
    )
    e = Episode(rows=(Row(segments=segments),), facts={"guided": 1.0})
    group = Group(task=task(scaffold="= 42\n"), episodes=(e,))
    assert pl.response_text(e) == "= 42\nwell"
    after = asyncio.run(scaffold.AsPrompt()(None, ("k",), group))
    assert pl.response_text(after.episodes[0]) == "well"
    bare = Group(task=task(), episodes=(Episode(rows=e.rows),))
    other = asyncio.run(scaffold.AsPrompt()(None, ("k",), bare))
    assert pl.response_text(other.episodes[0]) == "= 42\nwell"


def answered(*rights):
    head = {"id": "t", "prompt": "p", "gold": "1"}
    return [{"problem": i, **head, "right": list(r), "texts": ["x"] * len(r)} for i, r in enumerate(rights)]


def test_the_answer_of_the_training_part_comes_first():
    """30 problems: the arm hard solves none, all of them with beginnings; the start solved 3."""
    none, every = [(0, 0)] * 30, [(1, 1)] * 30
    arms = [
        training.ScaffoldArm("hard", 5, answered(*none), 0.0, 9.0),
        training.ScaffoldArm("all", 25, answered(*every), 0.5, 9.0),
    ]
    found = training.report(answered(*[(1, 1)] * 3, *[(0, 0)] * 27), arms)
    assert found.findings[0].startswith(
        "Hard problems are better with the beginnings of their solutions than alone: +100.0"
    )
    assert found.numbers["over_hard_all"].mean == 1 and found.numbers["signal_all"] == 0.5
    assert found.numbers["moved"] == pytest.approx((3 + 27) / 60)
    assert "the 27 that the start never solved" in found.tables[0].columns[3]
    same = training.report(answered(*none), [arms[0], training.ScaffoldArm("all", 25, answered(*none), 0.5, 9.0)])
    assert "are not seen to be better" in same.findings[0] and same.numbers["moved"] == 0


@pytest.mark.parametrize(
    "given, why",
    [
        ({"arms": "all"}, "'hard' among them"),
        ({"arms": "hard,every"}, "none of hard"),
        ({"arms": "hard", "segments": 1}, "segments"),
        ({"problems": 0}, "problems"),
        ({"samples": 0}, "samples"),
    ],
)
def test_numbers_that_say_nothing_are_refused(given, why):
    with pytest.raises(UserError, match=why):
        study.build(**given)


# ---- files of a user


def write(file, rows):
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


def test_rows_without_notes_are_refused_with_what_to_do(tmp_path, capsys):
    file = write(tmp_path / "f.jsonl", [{"prompt": f"{i}+1", "answer": str(i + 1)} for i in range(3)])
    assert main(["study", "sparkle", "--model", "tiny", "--data", file, "--out", str(tmp_path / "o")]) == 2
    assert "annotator=DIR" in capsys.readouterr().err


def test_a_model_writes_what_rows_do_not_have(tmp_path, capsys):
    """A plan that tells the answer is left out; columns that are there stay."""
    reply = {"plan": "It is 3.", "knowledge": "1 is after 0", "subproblems": [{"question": "1+1", "answer": "2"}]}
    rows = [{"prompt": "2+1", "answer": "3"}, {"prompt": "4+1", "answer": "5", "plan": "own", "domain": "sums"}]
    file, out = write(tmp_path / "f.jsonl", rows), tmp_path / "o"
    with serving(lambda body: json.dumps(reply)) as (_, url):
        words = [f"annotator=endpoint(url='{url}',model='m')", "samples=1"]
        assert main(["study", "sparkle", "--model", "tiny", "--data", file, "--out", str(out), *words]) == 0
    first, second = [json.loads(x) for x in (out / "items.jsonl").read_text().splitlines()]
    assert first["plan"] == "" and first["knowledge"] == "1 is after 0" and first["parts"] == [["1+1", "2"]]
    assert second["plan"] == "own" and second["parts"] == [["1+1", "2"]]
    assert "Known facts:\n1 is after 0" not in first["prompt"]
    protocol = json.loads((out / "study.json").read_text())["protocol"]
    assert protocol["annotations"].startswith("of 2 problems by a model")


@pytest.mark.slow
def test_the_training_part_on_a_file(tmp_path, capsys):
    """Arms from rows with solutions; held-out rows train nowhere; the same command trains nothing again."""
    rows = [
        {"prompt": f"{i}*{i + 3}-{i}", "answer": str(i * (i + 3) - i), "demonstration": f"a{i}\nb{i}\n= {i * (i + 3) - i}"}
        for i in range(20, 36)
    ]  # fmt: skip
    file, out = write(tmp_path / "f.jsonl", rows), tmp_path / "o"
    ask = ["study", "sparkle", "--model", "tiny", "--data", file, "--out", str(out), "--max-tokens", "12"]
    ask += ["arms=hard,all", "tries=1", "problems=2", "samples=1", "rl_steps=1", "prompts=4", "group=2"]
    assert main(ask) == 0
    report = json.loads((out / "study.json").read_text())
    assert "over_hard_all" in report["numbers"] and "are not seen" in report["findings"][0]
    held = [json.loads(x)["prompt"] for x in (out / "items.jsonl").read_text().splitlines()]
    tried = json.loads(next((out / "kept").glob("tries-*.json")).read_text())["value"]
    assert held and {t["prompt"] for t in tried}.isdisjoint(held)
    before = (out / "all-rl" / "metrics.jsonl").stat().st_mtime_ns
    (out / "summary.json").unlink()
    assert main(ask) == 0 and (out / "all-rl" / "metrics.jsonl").stat().st_mtime_ns == before
