"""Every verifier against its own table, its baselines, a fuzzer, and the command line that shows it."""

import inspect
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from palaestra.cli.main import main
from palaestra.errors import Fault, UserError
from palaestra.rewards.audit import Auditor
from palaestra.rewards.verified import Verified
from palaestra.services.sandbox import sandbox_kind
from palaestra.types import Group, Message, Reward, Task, rng_of
from palaestra.verifiers.base import Judgement, fields_of, guard_verifier
from palaestra.verifiers.registry import VERIFIERS, describe_verifier, get_verifier, verifier_class
from palaestra.verifiers.table import (
    KEYS,
    NOTHING,
    REFUSALS,
    Case,
    baselines,
    best_score,
    case_of,
    golds,
    judge,
    wrongs,
)
from palaestra.verifiers.typed import declared_fields, fits
from tools.verifiers import fuzz as module
from tools.verifiers import mistakes
from tools.verifiers.fuzz import KEYS as WITHOUT
from tools.verifiers.fuzz import fuzz, without
from tools.verifiers.page import exploit_table, fuzz_table, verifier_row

from tests.rows import every

ROOT = Path(__file__).parents[2]
CHILDREN = ("math", "antiderivative", "sql", "code", "code-partial", "gym", "sql-duckdb", "verilog")
REFUSAL = sandbox_kind().refusal()


def named(names=VERIFIERS):
    skipped = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
    needs = {"sandbox": [skipped], "gym": [pytest.mark.gym], "iverilog": [pytest.mark.iverilog]}
    return [pytest.param(n, marks=needs.get(VERIFIERS[n].extra, [])) for n in names]


@pytest.mark.parametrize("name", named())
def test_table(name):
    """Gold 1, silence 0, adversarial wrongs no more than the table says and never 1."""
    assert len(golds(name)) >= 2 and len({(c.response, str(c.answer)) for c in wrongs(name)}) >= 10
    for case in golds(name):
        assert judge(name, case).score == 1.0, case.response
        for nothing in NOTHING:
            assert judge(name, case, nothing).score == 0.0
    for case in wrongs(name):
        found = judge(name, case)
        assert found.score <= case.most < 1.0, (case.response, case.why, found)
        assert case.why


@pytest.mark.parametrize("name", named([n for n in VERIFIERS if not VERIFIERS[n].form]))
def test_answers_that_know_nothing(name):
    """Master keys earn less than half, and no baseline comes near the gold's 1 (the abstainers' own phrase aside)."""
    case = golds(name)[0]
    most = 0.65 if name == "constraints-share" else 0.5
    assert best_score(name, case, KEYS) <= most
    found = baselines(name)
    assert found["copy"] < 0.7 and found["constant"] < 0.6
    assert found["refuse"] < (0.85 if name in ("abstention", "factuality", "selective") else 0.5)


@pytest.mark.parametrize("name", named([n for n in VERIFIERS if not n.startswith("code")]))
def test_fuzz(name):
    result = fuzz(name, 15 if VERIFIERS[name].extra or name in ("stl", "stl-surface") else 300, seed=1)
    assert not result.found, result.found[:3]
    assert result.certain > 0 or name not in WITHOUT


LONG = ("a", "-", "<answer>x</answer>", "```python\\n", "{", "9,", "<tool_call>", "\\\\boxed{")


@pytest.mark.parametrize("name", named([n for n in VERIFIERS if not n.startswith("code")]))
def test_long_responses_take_linear_time(name):
    """Near the longest that is read; a limit against hanging, not a measurement."""
    case = golds(name)[0]
    judge(name, case)
    for unit in LONG:
        start = time.perf_counter()
        judge(name, case, unit * (199_000 // len(unit)))
        assert time.perf_counter() - start < 5, unit


def test_the_fuzzer_can_fail(monkeypatch):
    """A verifier that pays everything is found out by both kinds of certain wrongs."""
    monkeypatch.setattr(module, "judge", lambda name, case: Judgement(score=1.0))
    assert {f.rule for f in fuzz("exact", 50).found} == {"wrong answer scored 1"}
    monkeypatch.setattr(module, "judge", lambda name, case: 1 / 0)
    assert len(fuzz("exact", 5).found) == 5
    assert without("4２\u0662x", "0123456789") == "x" and without("Ｂb\\c", "b\\") == "c"


@pytest.mark.parametrize(("name", "flawed"), [
    ("number", "number(absolute=1.0)"),  # accepts what is next to the gold
    ("json", lambda case: Judgement(score=float(any(c in case.response for c in "{[")))),  # any JSON
    ("choice", lambda case: Judgement(score=float(bool(re.search(r"\b[a-hA-H]\b", case.response))))),  # any letter
    ("countdown", lambda case: Judgement(score=float(set("357") <= set(case.response)))),  # the numbers, whatever they give
    ("theorem", lambda case: Judgement(score=float("proved" in case.response.casefold()))),
    ("sql", lambda case: Judgement(score=float(case.response.count("SELECT") == 1))),  # a query
    ("code", lambda case: Judgement(score=float("return" in case.response))),
])  # fmt: skip
def test_the_fuzzer_finds_a_flaw(monkeypatch, name, flawed):
    """Each pays for the form of an answer; nothing but an answer that is changed shows it."""
    verifier = get_verifier(flawed) if isinstance(flawed, str) else None
    judged = lambda name, case: verifier(case.response, case.answer) if verifier else flawed(case)
    monkeypatch.setattr(module, "judge", judged)
    monkeypatch.setattr(module, "KEYS", {})
    found = fuzz(name, 60).found
    assert found and {f.rule for f in found} == {"wrong answer scored 1"}


def made(name, maker, problem=0, n=40):
    case = golds(name)[problem]
    return case, [t for i in range(n) if (t := maker(name, case, rng_of(("mistakes", i))))]


@every("name", mistakes.MISTAKES)
def test_every_kind_of_mistake_is_made_and_is_none_of_the_golds(name):
    for maker in mistakes.MISTAKES[name]:
        every = [(c, t) for k in range(len(golds(name))) for c, ts in [made(name, maker, k, 5)] for t in ts]
        assert every, maker.__name__
        for case, text in every:
            assert text not in [c.response for c in golds(name) if (c.answer, c.fields) == (case.answer, case.fields)]


def test_mistakes_are_wrong_by_their_making():
    """Judged here by arithmetic and by hand, not by a verifier."""
    _, said = made("exact", mistakes.counted)
    assert all(float(re.search(r"[0-9.]+[0-9]|[0-9]", t)[0]) != 42 for t in said) and any("43" in t for t in said)
    case, said = made("countdown", mistakes.computed)
    for text in said:
        expression = re.sub(r"</?answer>| =.*", "", text)
        used = sorted(map(int, re.findall(r"[0-9]+", expression)))
        assert used != [3, 5, 7] or eval(expression) != case.answer
    case, said = made("choice", mistakes.lettered, 5)  # A is y, B is x, and x is right
    assert {re.sub(r"</?answer>|[().*\\{}]|boxed|The answer is", "", t).strip() for t in said} <= {"A", "a", "y", "A y"}
    case, said = made("set", mistakes.members)
    for text in said:
        items = re.split(r"\n|; |, ", re.sub(r"</?answer>|[\[\]{}.\\]|boxed|The answer is|- ", "", text).strip())
        assert sorted(items) != sorted(case.answer), text
    case, said = made("json", mistakes.leaf)
    inside = [json.loads(re.sub(r"</?answer>|```(?:json)?|\n", "", t)) for t in said]
    assert all(x != case.answer and x.keys() == case.answer.keys() for x in inside)
    assert (
        made("label", mistakes.negated)[1][0] == "\\conclusion{F}"
        and made("verdict", mistakes.negated, 3)[1][0] == "[[A]]"
    )
    assert "boxed{disproved}" in made("theorem", mistakes.negated)[1][0]
    assert "boxed{proved}" in made("theorem", mistakes.negated, 3)[1][0]
    assert {t.split("\n")[1].split()[1] for t in made("sql", mistakes.column)[1]} <= {
        "age",
        "id",
        "price",
        "user_id",
        "total",
    }
    assert all("a + b" not in t and "return " in t for t in made("code", mistakes.constant)[1])
    assert mistakes.different(Case(kind="", response="", answer="1/2"), Case(kind="", response="", answer="0.7"))
    assert not mistakes.different(Case(kind="", response="", answer="1/2"), Case(kind="", response="", answer="0.50"))


def test_a_mistake_of_the_verifier_is_a_fault():
    class Odd:
        def __init__(self, found):
            self.found = found

        @guard_verifier
        def __call__(self, response, answer):
            return self.found()

    def recursion():
        raise RecursionError

    for found in (
        lambda: 1 / 0,
        lambda: Judgement(score=1.5),
        lambda: Judgement(score=float("nan")),
        lambda: Judgement(score=-0.1),
    ):
        with pytest.raises(Fault, match="verifier: Odd"):
            Odd(found)("x", None)
    assert Odd(recursion)("x", None).status == "unparsable"
    assert Odd(lambda: 1 / 0)("  ", None).status == "unparsable"


def test_what_the_user_got_wrong_is_said():
    for name, answer, fields, message in [
        ("math", None, {}, "Math: answer is missing"),
        ("math", "\\frac{", {}, "cannot be read as mathematics"),
        ("number", "many", {}, "is no number"),
        ("choice", "Z", {"options": ["a", "b"]}, "none of the 2 options"),
        ("choice", "A", {}, "needs the field 'options'"),
        ("sql", "SELECT 1", {}, "no database"),
        ("sql", "SELECT x FROM y", {"schema": "CREATE TABLE t(a)"}, "the reference query .* fails"),
        ("stl", "G[", {}, "is no formula"),
        ("math", "x", {"prompt": 5}, "prompt is int '5'; give it as text"),
        (
            "choice",
            2,
            {"options": [1, 2, 3, 4]},
            r"answer 2 can mean B \(2\) and C \(3\); give the option's letter, or its text",
        ),
        ("choice", "A", {"options": ["B", "A"]}, r"can mean A \(B\) and B \(A\); give the option's index"),
        (
            "choice",
            "A",
            {"options": ["a", None]},
            "options is list .*; give it as a list, each text or a number or true or false",
        ),
        ("choice", "A", {"options": ["x", "y"], "order": [1, 1]}, "is no order of 2 options; give their indices"),
        (
            "choice",
            "A",
            {"options": ["x", "y"], "order": ["a"]},
            "order is list .*; give it as a list, each a whole number",
        ),
        (
            "choice",
            "A",
            {"options": ["x", "y"], "order": 5},
            "order is int '5'; give it as a list, each a whole number",
        ),
        ("countdown", 80, {"numbers": [2.5, 40]}, "'2.5' is not whole; give whole numbers"),
        ("countdown", 80, {"numbers": [None]}, "'None' is not whole"),
        ("countdown", 80, {"numbers": ["a", 2]}, "'a' is not whole"),
        ("countdown", "80%", {"numbers": [2, 40]}, "the target '80%' is no number"),
        ("set", ["a", "**"], {}, "nothing but marks"),
        ("constraints", None, {"constraints": [["length", "wrods", "at most", 3]]}, "is unknown"),
        ("constraints", None, {"constraints": [["length", "words", "at least"]]}, "is no bound"),
        ("patch", {"a": "x"}, {"files": {"a": "x"}}, "changes no file"),
        ("api-migration", "(", {}, "is no Python"),
    ]:
        with pytest.raises(UserError, match=message):
            judge(name, Case(kind="", response="\\boxed{x} <answer>SELECT 1</answer>", answer=answer, fields=fields))


JUNK = ("x", 5, 2.5, True, [5], [None], [[5]], {"a": 5}, [{"a": None}], {5: "x"})


@pytest.mark.parametrize("name", named())
def test_fields_of_another_type_are_the_users_mistake(name):
    """Whatever stands in a field, or in its lists, is judged or told in one line, and never a verifier that broke."""
    case = golds(name)[0]
    for place in ("answer", *fields_of(get_verifier(name))):
        for junk in JUNK:
            fields = case.fields if place == "answer" else {**case.fields, place: junk}
            changed = replace(case, answer=junk if place == "answer" else case.answer, fields=fields)
            try:
                judge(name, changed)
            except UserError as error:
                assert "\n" not in str(error)
        if place != "answer" and not fields_of(get_verifier(name))[place]:  # null is a field left out
            left_out = {k: v for k, v in case.fields.items() if k != place}
            nothing = [replace(case, fields=given) for given in ({**left_out, place: None}, left_out)]
            assert outcome(name, nothing[0]) == outcome(name, nothing[1])


def outcome(name, case):
    try:
        return judge(name, case)
    except UserError as error:
        return str(error)


def test_every_field_declares_its_type():
    for name in VERIFIERS:
        kinds = declared_fields(inspect.unwrap(verifier_class(name).__call__))
        assert [k for k, (kind, _) in kinds.items() if kind is Any and k != "answer"] == [], name


def test_what_a_field_must_be_is_said():
    """By verifier, field, what stands there, and the type; a mistake of the verifier's own stays a fault."""
    for name, field, given, told in [
        ("spelling", "source", 5, "Spelling: source is int '5'; give it as text"),
        ("spelling", "source", None, "Spelling: source is missing; give it as text"),
        (
            "choice",
            "order",
            [1.5, 0],
            "MultipleChoice: order is list '[1.5, 0]'; give it as a list, each a whole number",
        ),
        ("constraints", "constraints", [5], "Constraints: constraints is list '[5]'; give it as a list, each a list"),
        ("selective", "confidence", "high", "Selective: confidence is str 'high'; give it as a number"),
        ("selective", "confidence", True, "Selective: confidence is bool 'True'; give it as a number"),
        ("patch", "files", [1], "Patch: files is list '[1]'; give it as an object"),
        ("patch", "answer", 5, "Patch: answer is int '5'; give it as an object"),
        ("number", "answer", [5], "NumberAnswer: answer is list '[5]'; give it as text or a number"),
        ("list", "answer", 5, "SetAnswer: answer is int '5'; give it as a list"),
        ("countdown", "answer", [5], "Countdown: answer is list '[5]'; give it as text or a number"),
        ("exact", "prompt", "\ud800", r"ExactAnswer: prompt is str '\ud800' with half a character; give it as text"),
    ]:
        case = golds(name)[0]
        with pytest.raises(UserError) as error:
            answer = {"answer": given} if field == "answer" else {}
            judge(name, replace(case, **answer, fields=case.fields if answer else {**case.fields, field: given}))
        assert str(error.value) == told
    with pytest.raises(UserError, match=r"answer is str .* with half a character; give it as text"):
        judge("sql-duckdb", replace(golds("sql-duckdb")[0], answer="\ud800"))
    assert fits(2.0, int) and not fits(2.5, int) and not fits(True, float) and not fits(float("inf"), int)
    assert fits({"a": (1, 2)}, Mapping[str, Sequence[float]]) and not fits({5: [1]}, Mapping[str, Sequence[float]])
    assert fits(None, str | None) and not fits("ab", Sequence[str]) and fits([], Sequence[str])

    class Broken:
        @guard_verifier
        def __call__(self, response: str, answer: Any, *, n: int = 0) -> Judgement:
            return response + n

    with pytest.raises(Fault, match="Broken raised TypeError"):
        Broken()("x", None, n=3)
    with pytest.raises(UserError, match="Broken: n is str 'x'; give it as a whole number"):
        Broken()("x", None, n="x")


def test_names():
    half = get_verifier("number(relative=0.5)")
    assert type(half).__name__ == "NumberAnswer" and half.relative == 0.5
    mixed = get_verifier("tags*0.1+exact")
    assert fields_of(mixed) == {"prompt": False}
    found = mixed("<think>x</think><answer>8</answer>", "7")
    assert found.score == pytest.approx(0.1 / 1.1) and found.parts["tags"] == 1.0 and found.parts["exact"] == 0.0
    for wrong, message in [
        ("maths", "did you mean math"),
        ("number(rel=1)", "no setting 'rel'"),
        ("a b", "cannot be read"),
        ("exact+exact", "stands twice"),
        ("number(relative=__import__('os'))", "cannot be read"),
        ("exact*0", "a weight needs"),
    ]:
        with pytest.raises(UserError, match=message):
            get_verifier(wrong)
    for name in VERIFIERS:
        d = describe_verifier(name)
        assert d["summary"] and d["fields"][:2] == ["response", "answer"] and verifier_class(name).__doc__


def test_as_a_reward():
    import asyncio

    from palaestra.tasks.oracle import episode_saying

    task = Task(id="q", prompt=(Message(role="user", content="6*7?"),), answer="42")
    group = Group(task=task, episodes=tuple(map(episode_saying, ("\\boxed{42}", "41", "6*7"))))
    assert [r.total for r in asyncio.run(Verified("math")(None, group))] == [1.0, 0.0, 0.0]
    with pytest.raises(UserError, match="any text earns it"):
        Verified("tags")
    with pytest.raises(UserError, match="task 'q': MultipleChoice needs the field 'options'"):
        asyncio.run(Verified("choice")(None, group))
    paper = Task(id="p", answer="np.sum(a)")
    text = "<think>x</think><answer>\n```python\nnp.sum(x)\n```\n</answer>"
    (found,) = asyncio.run(
        Verified("api-migration", paper=True)(None, Group(task=paper, episodes=(episode_saying(text),)))
    )
    assert found.total == pytest.approx(2.611111, abs=1e-6)


@pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
@pytest.mark.parametrize(
    "test", ["assert sum([1, 2]) == 3", "def check(candidate):\n    assert candidate(1) == 2", "pass"]
)
def test_a_test_that_asks_nothing_of_the_code_is_the_users_mistake(test):
    """A function named like one of Python's own is tested by a call; in a program its name is Python's."""
    reply = "```python\ndef sum(x):\n    return 3\n```"
    with pytest.raises(UserError, match="passes without any code"):
        get_verifier("code")(reply, None, tests=[test])
    call = {"function": "sum", "args": [[1, 2]], "expected": 3}
    assert get_verifier("code")(reply, None, tests=[call]).score == 1.0
    assert get_verifier("code")("```python\npass\n```", None, tests=[call]).score == 0.0


def test_a_fault_is_that_of_one_response(monkeypatch):
    """The other episodes of the group keep their reward, whatever is built on the verifier."""
    import asyncio

    from palaestra.recipes.rewards.mt_r1_zero import Metrics
    from palaestra.rewards.rewritten import Rewritten, Weighed
    from palaestra.tasks.oracle import episode_saying

    def judge(self, text, task):
        if text == "broken":
            raise Fault("sandbox", "ended")
        return Reward(total=1.0, parts={"a": 2.0})

    monkeypatch.setattr(Verified, "judge", judge)
    group = Group(task=Task(id="q", meta={"m": 1}), episodes=tuple(map(episode_saying, ("x", "broken", "y"))))
    math = Verified("math")
    rewritten = Rewritten(math, unless="m", write=lambda text, task: (text, None, {}))
    totals = {math: 1.0, rewritten: 1.0, Weighed(rewritten, (("a", 3.0),)): 6.0, Metrics(rewritten): 1.0}
    for reward, total in totals.items():
        first, broken, last = asyncio.run(reward(None, group))
        assert first.total == last.total == total and broken.cause == "sandbox"
        assert Auditor(reward, [group.task]).ask("probe", ["broken"]) == [None]


def run(capsys, *argv):
    status = main(list(argv))
    out = capsys.readouterr()
    return status, out.out, out.err


def test_score_command(tmp_path, capsys):
    file = tmp_path / "c.jsonl"
    lines = [
        {"response": "\\boxed{42}", "answer": "42"},
        {"response": "41", "answer": 42},
        {"response": "", "answer": "42", "prompt": "?"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    status, out, _ = run(capsys, "score", "exact", "--cases", str(file), "--json")
    assert status == 0
    assert json.loads(out) == [
        {"score": 1.0, "parts": {}, "status": "ok"},
        {"score": 0.0, "parts": {}, "status": "ok"},
        {"score": 0.0, "parts": {}, "status": "unparsable"},
    ]
    status, out, _ = run(capsys, "score", "--list", "--json")
    assert status == 0 and {d["name"] for d in json.loads(out)} == set(VERIFIERS)
    file.write_text(json.dumps({"response": "x"}))
    status, _, err = run(capsys, "score", "exact", "--cases", str(file), "--json")
    assert status == 2 and f"{file}:1: ExactAnswer: answer is missing" in err
    file.write_text("\ufeff" + json.dumps(lines[0]))
    assert run(capsys, "score", "exact", "--cases", str(file))[0] == 0
    file.write_text("{")
    assert run(capsys, "score", "exact", "--cases", str(file))[0] == 2
    assert run(capsys, "score", "exact", "--cases", str(tmp_path / "no"))[0] == 2
    for nothing in ("", "\n \n"):
        file.write_text(nothing)
        status, out, err = run(capsys, "score", "exact", "--cases", str(file), "--json")
        assert (status, out) == (2, "") and f"{file}: no cases; it needs one a line" in err
    assert run(capsys, "score")[0] == 2


def test_a_verifier_that_cannot_work_is_an_error_not_a_zero(tmp_path, capsys, monkeypatch):
    from palaestra.verifiers.code import programs

    def gone(*_, **__):
        raise Fault("sandbox", "gone")

    monkeypatch.setattr(programs, "run_tests", gone)
    file = tmp_path / "c.jsonl"
    file.write_text(json.dumps({"response": "```python\nx = 1\n```", "answer": None, "tests": ["assert x"]}))
    status, out, _ = run(capsys, "score", "code", "--cases", str(file), "--json")
    assert status == 0 and json.loads(out) == [{"score": None, "parts": {}, "status": "error:sandbox: gone"}]


def test_the_page_shows_what_is_measured():
    page = (ROOT / "docs" / "rewards.md").read_text()
    assert exploit_table() in page
    for name in VERIFIERS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` | "))
        if name not in CHILDREN:
            assert f"| {' | '.join(verifier_row(name))} |" == row
        else:
            assert f"| {len(golds(name))} | {len(wrongs(name))} |" in row


def test_the_fuzzer_is_a_command(tmp_path):
    command = [sys.executable, "-m", "tools.verifiers.fuzz", "exact", "label", "--n", "50"]
    done = subprocess.run([*command, "--out", str(tmp_path / "f.jsonl")], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "50 responses" in done.stdout and " 0 faults" in done.stdout
    lines = fuzz_table(tmp_path / "f.jsonl").splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| `exact`", "50"], ["| `label`", "50"]]


def test_lines_of_a_table_are_lines_of_the_command():
    case = case_of({"kind": "gold", "response": "a", "answer": "b", "options": [1], "why": "w", "most": 0.5})
    assert case.fields == {"options": [1]} and case.most == 0.5
    assert REFUSALS
