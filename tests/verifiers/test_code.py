"""Unit tests as a reward: what a test may take from the reply, what is a mistake of the data, and programs in other languages."""

import json
import shutil

import pytest
from palaestra.cli.main import main
from palaestra.errors import Fault, UserError
from palaestra.services import sandbox
from palaestra.services.sandbox import Asserts, Calls, Stdio, check_program, check_python, programs, sandbox_kind
from palaestra.services.sandbox.needs import script
from palaestra.services.sandbox.records import record_classes
from palaestra.verifiers.code.programs import code_blocks
from palaestra.verifiers.registry import get_verifier

REFUSAL = sandbox_kind().refusal()
runs = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)


def judged(code, *tests, fence="python", **fields):
    return get_verifier("code")(f"```{fence}\n{code}\n```", None, tests=list(tests), **fields)


def passes(code, test, **more):
    return check_python(code, [Asserts(code=test, **more)]).passed == (True,)


@pytest.mark.parametrize(
    ("test", "declared", "wanted", "modules"),
    [
        ("assert f(2) == 4", (), ("f",), ()),
        ("assert math.isclose(f(2), 4) and max(1, 2)", (), ("f",), ("math",)),
        ("assert bisect([1], 2) == 1", (), ("bisect",), ()),
        ("import json as j\nfor a, b in [(1, 2)]: assert f(a) == b == j.loads('2')", (), ("f",), ()),
        ("def check(candidate):\n    x = lambda y: y\n    assert candidate(1) == x(2)\ncheck(f)", (), ("f",), ()),
        ("def g():\n    global n\n    n = f(1)\ng()\nassert [n + k for k in range(n)]", (), ("f",), ()),
        ("assert f(2) == g(2) == inf", ("f", "g", "h"), ("f", "g"), ()),
        ("assert sum([1]) == 1", ("sum",), ("sum",), ()),
        ("try:\n    f()\nexcept E as error:\n    assert error", ("f", "E"), ("E", "f"), ()),
        ("if (y := f(1)) and __name__: assert [z := y, z]", (), ("f",), ()),
    ],
)
def test_a_test_takes_from_the_reply_what_is_tested_and_nothing_else(test, declared, wanted, modules):
    found = script(Asserts(code=test, names=declared))
    assert (found.wanted, found.modules) == (wanted, modules)


@pytest.mark.parametrize(
    ("test", "more", "message"),
    [
        ("assert isclose(f(2), 4)", {}, "would take 'f' and 'isclose' from the reply"),
        ("for a, b in cases: assert f(a) == b", {}, "would take 'cases' and 'f'"),
        ("assert f(2) == expected", {"entry_point": "f"}, "reads 'expected', which neither it nor the task defines"),
        ("x = (", {}, r"'x = \(' is no Python"),
        ("x = '\0'", {}, "is no Python"),
        ("from math import *\nassert f(4) == sqrt(16)", {}, "everything of 'math'"),
        ({"args": 5}, {}, "is no code"),
        ({"function": "f", "args": 5, "expected": 1}, {}, "is no code"),
        ({"function": 5, "args": [5], "expected": 5}, {}, "is no code"),
        ({"function": "5", "args": [], "expected": 5}, {}, "is no name"),
        ({"stdin": 5, "stdout": "5"}, {}, "is no code"),
        ({"stdin": "1", "stdout": " \n"}, {}, "expects no output"),
        (None, {}, r"tests is list '\[None\]'; give it as text or a list, each text or an object"),
        ("assert f", {"entry_point": 5}, "entry_point is int '5'"),
        ("assert f", {"entry_point": [5]}, "give it as text or a list, each text"),
        ("assert f", {"setup": 5}, "setup is int '5'"),
        ("try:\n    f(1)\nexcept Exception:\n    pass", {}, "passes without any code"),
        ("assert True", {"entry_point": "f"}, "passes without any code"),
    ],
)  # fmt: skip
@runs
def test_a_test_that_proves_nothing_is_the_users_mistake_of_one_line(test, more, message):
    with pytest.raises(UserError, match=message) as found:
        judged("def f(x):\n    return x", test, **more)
    assert "\n" not in str(found.value)


@runs
def test_what_the_task_defines_is_not_the_replys():
    cheat = "cases = []\ndef g(x): return x\ndef isclose(*_): return True\nclass math: isclose = isclose\ndef f(x): return 0"
    right = "from math import isclose\ndef f(x): return x * x"
    for test, more in (
        ("assert math.isclose(f(2), 4)", {}),
        ("assert isclose(f(2), 4)", {"setup": "from math import isclose"}),
        ("for a, b in cases: assert f(a) == b", {"setup": "cases = [(2, 4)]"}),
        ("assert f(2) == g(2)", {"setup": "def g(x): return x ** 2"}),
        ("assert f(2) == g(2) == 4", {"entry_point": ["f", "g"]}),
    ):
        assert judged(cheat, test, **more).score == 0.0, test
        assert judged(right + "\ndef g(x): return x ** 2", test, **more).score == 1.0, test
    named = "def sum(x): return 3"
    assert judged(named, "assert sum([1]) == 3", entry_point="sum").score == 1.0
    assert judged("pass", "assert sum([1]) == 1", entry_point="sum").score == 0.0


@runs
def test_only_an_iterators_step_may_stop_an_iteration():
    loop = "assert all(map(lambda c: f(c[0]) == c[1], [(1, 2), (2, 3)]))"
    for cheat in (
        "def f(x): raise StopIteration",
        "class E(StopIteration): pass\ndef f(x): raise E",
        "class A:\n    def __eq__(s, o): raise StopIteration\n    __bool__ = __iter__ = lambda s: s == s\ndef f(x): return A()",
    ):
        assert not passes(cheat, loop) and not passes(
            cheat, "for ok in map(lambda x: bool(f(x)), [1]): assert ok == 7\n1 / ok"
        )
    assert passes("def f(n): yield from range(n)", "assert list(f(3)) == [0, 1, 2] and sum(f(4)) == 6")
    late = "def f():\n    try: return next(iter(()))\n    except StopIteration: return 5"
    assert passes(late, "assert f() == 5")


@runs
def test_numbers_compare_as_what_they_are():
    same = lambda given, expected: check_python(
        f"def f(): return {given}", [Calls(function="f", expected=expected)]
    ).passed[0]
    assert not same("10**12 + 3.0", 10**12) and same("10.0**12", 10**12) and not same("10**12 + 1", 10**12)
    assert (
        same("2.9999999999999996", 3)
        and not same("3.00001", 3)
        and same("0.1 + 0.2", 0.3)
        and not same("10**12 + 3", 1e12)
    )
    assert same("__import__('fractions').Fraction(1, 2)", 0.5) and same("__import__('decimal').Decimal(3)", 3)
    assert not same("10**400", 1e300) and same("[float('nan')]", [float("nan")]) and not same("True", 1)


@runs
def test_values_of_the_standard_library_cross():
    code = """import datetime, decimal, fractions
def half(x): return x / 2
def made(): return {"d": datetime.date(2020, 1, 2), "t": [datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone.utc)]}
def later(d): return d + datetime.timedelta(days=1, seconds=2)
class Decimal:
    def __eq__(self, o): return True
def forged(): return Decimal()
"""
    assert passes(code, "import decimal\nassert half(decimal.Decimal('0.3')) == decimal.Decimal('0.15')")
    assert passes(code, "from fractions import Fraction as F\nassert half(F(1, 3)) == F(1, 6)")
    day = "import datetime as d\nzone = d.timezone.utc\n"
    assert passes(
        code, day + "assert made() == {'d': d.date(2020, 1, 2), 't': [d.datetime(2020, 1, 2, 3, tzinfo=zone)]}"
    )
    assert passes(code, day + "assert later(d.datetime(2020, 1, 1, 5)) == d.datetime(2020, 1, 2, 5, 0, 2)")
    assert not passes(code, "import decimal\nassert forged() == decimal.Decimal(1)")


@runs
def test_classes_of_the_candidates():
    code = """class Grid:
    def __init__(self, n): self.n = n
    def __contains__(self, at): x, y = at; return 0 <= x < self.n and 0 <= y < self.n
class Cache(dict): pass
class Other: pass
class Low(ArithmeticError):
    pass
def fail(): raise Low("x")
"""
    assert passes(
        code, "g = Grid(3)\nassert isinstance(g, Grid) and (1, 2) in g and (3, 1) not in g and not isinstance(1, Grid)"
    )
    assert passes(code, "assert not isinstance(Grid(1), (Other, int))", names=("Grid", "Other"))
    assert passes(code, "try: fail()\nexcept ArithmeticError as e: assert str(e) == 'x'\nelse: 1 / 0")
    assert not passes(code, "try: fail()\nexcept ValueError: pass")
    everything = "class Grid:\n    def __init__(self, n): pass\n    def __contains__(self, x): return True"
    for item in (1, 1.5, "'a'", b"a", (1, 2), (), None):
        assert not passes(everything, f"assert {item} in Grid(3)"), item


@runs
def test_a_program_below_its_guard_is_not_run_by_a_test_that_imports_it():
    code = "from dataclasses import dataclass\n@dataclass\nclass P: x: int\ndef f(x): return P(x).x\n"
    code += "if __name__ == '__main__': print(f(int(input())))"
    assert judged(code, "assert f(2) == 2", {"stdin": "7", "stdout": "7"}).score == 1.0


def test_fences():
    assert code_blocks("```\na\n```") == ["a\n"] and code_blocks("```\na\n```\n```py\nb\n```\n```\nc\n```") == ["b\n"]
    assert (
        code_blocks("```python\na\n```\nor\n```Python\nb\nc") == ["a\n", "b\nc"]
        and code_blocks("a") == code_blocks("```python") == []
    )
    assert code_blocks("```sh\na\n```\n```python\nb\n```", "bash") == ["a\n"]


@runs
def test_bash_by_input_and_output():
    code = (
        'read -r n\nfor i in $(seq "$n"); do echo "$((i * i)) $(printf %s abc | tr a-c x-z)"; done | sort -rn | head -2'
    )
    case = {"stdin": "3\n", "stdout": "9 xyz\n4 xyz\n"}
    judge = get_verifier("code(language='bash')")
    assert judge(f"```bash\n{code}\n```", None, tests=[case]).score == 1.0
    assert judge("```bash\necho 9\n```", None, tests=[case]).score == 0.0
    assert judge(f"```python\n{code}\n```", None, tests=[case]).status == "unparsable"
    assert judge("```sh\ncat /etc/passwd /proc/1/environ; exit 3\n```", None, tests=[case]).score == 0.0
    with pytest.raises(UserError, match="input and output only"):
        judge(f"```bash\n{code}\n```", None, tests=["assert f(1)"])
    with pytest.raises(UserError, match="'cobol' is none of python, bash"):
        get_verifier("code(language='cobol')")


@runs
def test_bash_in_the_sandbox_has_no_rights():
    cases = [Stdio(stdin="", stdout=x) for x in ("ESCAPED", "contained\n")]
    attempts = (
        "(exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null",
        "read -r x < /etc/passwd 2>/dev/null",
        "echo x > /usr/bin/evil 2>/dev/null",
        "kill -9 1 2>/dev/null; kill -0 2 2>/dev/null",
        "[ -n \"$(echo /proc/[0-9]*/mem | grep -v '\\*')\" ]",
    )
    for attempt in attempts:
        found = check_program("bash", f"if {attempt}; then echo ESCAPED; else echo contained; fi", cases)
        assert found.passed == (False, True), (attempt, found)
    bomb = check_program("bash", "f() { f | f & }; f; wait", cases[:1], sandbox.Limits(seconds=0.5))
    assert bomb.passed == (False,)


@runs
@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")
def test_perl_by_input_and_output():
    code = "use strict; use warnings;\nmy $s = 0; $s += $_ for split ' ', <STDIN>;\nprint \"$s\\n\";"
    judge = get_verifier("code(language='perl')")
    assert judge(f"```perl\n{code}\n```", None, tests=[{"stdin": "1 2 3\n", "stdout": "6\n"}]).score == 1.0


def test_a_missing_interpreter_is_a_fault_that_names_it(monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    with pytest.raises(Fault, match="perl is not installed"):
        get_verifier("code(language='perl')")("```perl\nprint 1\n```", None, tests=[{"stdin": "", "stdout": "1"}])


RECORDS = """from typing import Optional
import dataclasses
class Tree:
    size: int = 0
    def __init__(self, val=0, left=None, children=None):
        self.val, self.left = val, left
        self.children = children if children is not None else []
    def depth(self): return 1234567
    @staticmethod
    def of(text): return SECRET[text]
@dataclasses.dataclass
class Pair:
    a: int
    b: Optional[int] = None
"""


def test_a_reply_has_the_record_classes_of_a_setup_without_their_helpers():
    code, names = record_classes(RECORDS)
    assert names == ("Tree", "Pair") and "depth" not in code and "SECRET" not in code and "self.children" in code
    made = {}
    exec(code, made)
    assert made["Tree"](3).val == 3 and made["Pair"](1) == made["Pair"](1, None)


@pytest.mark.parametrize(
    "setup",
    [
        "class Reference:\n    def solve(self, x): return x * x",
        "class Expected:\n    def __init__(self): self.answers = [1, 4, 9]",
        "class Expected:\n    def __init__(self, x): self.answers = [1, 4, 9]",
        "class Expected:\n    def __init__(self, x=[1, 4, 9]): self.x = x",
        "class Expected:\n    answers = {2: 4}\n    def __init__(self, x): self.x = x",
        "class Expected:\n    def __init__(self, x): self.x = solve(x)",
        "class Expected(Base):\n    def __init__(self, x): self.x = x",
        "@register\nclass Expected:\n    def __init__(self, x): self.x = x",
        "from dataclasses import dataclass, field\n@dataclass\nclass E:\n    x: list = field(default_factory=lambda: [1, 4])",
        "cases = [(2, 4)]\ndef f(x): return x * x",
        "class Broken(:",
    ],
)
def test_what_a_setup_may_keep_from_the_reply_is_not_handed_over(setup):
    assert record_classes(setup) == ("", ())


@runs
def test_an_audit_names_the_tests_that_what_solves_nothing_passes(tmp_path, capsys):
    rows = [
        {"prompt": "Squares.", "tests": ["assert f([]) == []", "assert f([2]) == [4]"], "answer": "1"},
        {
            "prompt": "Nothing.",
            "tests": ["assert not g(3)", {"function": "g", "args": [1], "expected": 0}],
            "answer": "2",
        },
        {"prompt": "Once.", "tests": ["x = [3, 3]\nh(x)\nassert x == sorted(set(x))"], "answer": "3"},
        {
            "prompt": "A stack.",
            "tests": ["assert Stack().size() == 0", "assert 3 not in Stack().items()"],
            "answer": "4",
        },
        {
            "prompt": "Echo.",
            "tests": [{"stdin": "a\n", "stdout": "a"}, {"stdin": "a\n", "stdout": "b"}],
            "answer": "\u200b5",
        },
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["audit", "code", "--data", str(tmp_path / "p.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    by = {(v["id"].rpartition(":")[2], v["test"][:18]): v["passed_by"] for v in found["vacuous"]}
    assert (found["problems"], found["tests"]) == (5, 9)
    of_nothing = ["empties its argument", "reverses its argument"]
    assert by["1", "assert f([]) == []"] == ["returns []", "returns its argument", *of_nothing]
    assert ("1", "assert f([2]) == [") not in by
    assert "returns object()" not in by["2", "assert not g(3)"] and by["2", "{'function': 'g', "] == ["returns 0"]
    assert by["3", "x = [3, 3]\nh(x)\nas"] == ["empties its argument"]
    assert by["4", "assert Stack().siz"] == ["returns 0"]
    assert by["4", "assert 3 not in St"] == ["returns []", "returns {}", "returns an empty iterator"]
    assert [v["passed_by"] for v in found["vacuous"] if v["id"].endswith(":5")] == [["prints its input"]]
    assert found["solved"] == {"returns 0": 1, "empties its argument": 1}
    assert found["data"][0].startswith("1 of 5 records have invisible characters in the answer")
    assert found["findings"][0].startswith("2 of 5 problems are solved by a candidate that solves nothing")


@pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("assert all(a == b for a, b in zip(f(3), [1, 4, 9]))", "returns []"),
        ("for x in f(3):\n    assert x > 0", "returns an empty iterator"),
        ("assert all(v > 0 for v in f('aab').values())", "returns {}"),
        ("assert not abs(f(2) - 4) > 1e-6", "returns NaN"),
        ("y = f(2)\nassert not (y < 3.9 or y > 4.1)", "returns NaN"),
        ("a = [3, 1, 2]\nassert f(a) == sorted(a)", "empties its argument"),
        ("a = [1, 2]\nassert f(a) == a[::-1][::-1]", "reverses its argument"),
        ("try:\n    f(-1)\nexcept ValueError:\n    pass\nelse:\n    assert False", "raises ValueError"),
        ("try:\n    f(-1)\nexcept Exception:\n    pass\nelse:\n    assert False", "raises Exception"),
        ("assert f(2)", "returns True"),
    ],
)
def test_each_way_of_asking_for_nothing_is_named(test, name):
    ((_, passed),) = get_verifier("code").null_passes(tests=[test])
    assert name in passed
    assert get_verifier("code").null_passes(tests=["assert f(2) == 4 and f(3) == 9"])[0][1] == ()
