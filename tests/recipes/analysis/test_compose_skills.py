"""f(g(x)): functions and compositions by hand, problems that no split shares, what arms show, and a user's functions."""

import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import compose_skills as study
from palaestra.recipes.analysis.compose_skills import functions, results
from palaestra.recipes.analysis.compose_skills.functions import NUMBERS, STRINGS, ComposedProblem, Composition

OWN = """
def up(x): return x.upper()
def rev(x): return x[::-1]
def twice(x):
    if len(x) > 4:
        raise ValueError("too long")
    return x + x
def cut(x): return x[:2]
def _hidden(x): return x
def two(x, y): return x + y
"""


def rng(seed=0):
    return np.random.default_rng(seed)


def skills(alone=STRINGS, given="", letters=(3, 5), named=False):
    return functions.skill_set("f", given, alone, functions.inputs_of("", letters, "abcde"), named)


# ---- functions


@pytest.mark.parametrize(
    "name, x, y",
    [("permute", "abcdef", "afedcb"), ("permute", "abcde", "adbec"), ("permute", "a", "a"), ("mirror", "bca", "bcaacb"),
     ("rotate", "abc", "bca"), ("back", "abc", "cab"), ("sort", "zebra", "aberz"), ("shift", "aberz", "dehuc"),
     ("swap", "abc", "bac"), ("first", "abc", "aab"), ("last", "abc", "bcc"), ("odd", "abcde", "ace"),
     ("double", "ab", "aabb"), ("reverse", "abc", "cba")],
)  # fmt: skip
def test_string_functions(name, x, y):
    """The catalogue's values among them: mirror(rotate("abc")) and shift(sort("zebra"))."""
    assert STRINGS[name](x) == y


def test_number_functions():
    assert [NUMBERS[n]("95") for n in ("plus", "minus", "turn", "ten")] == ["02", "91", "59", "05"]
    assert NUMBERS["minus"]("03") == "99"


def test_a_composition_is_evaluated_from_inside():
    """With one function the expression is known: reverse of reverse of x."""
    one = functions.SkillSet("f", [lambda x: x[1:] + x[:1]], ["f0"], lambda rng: "abc")
    made = functions.compose(one, 3, [0], 0.0, rng())
    assert made == Composition("f0(f0(f0(abc)))", "abc", [("f0(abc)", "bca"), ("f0(bca)", "cab"), ("f0(cab)", "abc")])
    assert made.worked() == "f0(abc) = bca\nf0(bca) = cab\nf0(cab) = abc\nAnswer: abc"


def test_worked_calls_are_right_where_nobody_names_a_reward():
    """Files of the study have no reward of their own: the answer is read from the last line."""
    from palaestra.rewards.verify import Exact
    from palaestra.types import Message, Task

    made = functions.compose(skills(), 3, range(12), 0.0, rng())
    task = Task(id="t", prompt=(Message(role="user", content="?"),), answer=made.value)
    assert Exact()(made.worked(), task) == 1 and Exact()(made.worked() + "x", task) == 0


def test_joined_expressions():
    """At binary = 1 every depth from the second on joins two: depth 2 is two calls of one input each."""
    one = functions.SkillSet("f", [lambda x: x[::-1]], ["f0"], lambda rng: "ab")
    made = functions.compose(one, 2, [0], 1.0, rng())
    assert (made.text, made.value) == ("f0(ab)+f0(ab)", "baba") and made.calls[-1] == ("ba+ba", "baba")


def test_halves():
    """Training composes the first half, the test the other one."""
    some = skills()
    assert some.names(True) == list(range(6)) and some.names(False) == list(range(6, 12))
    for trained in (True, False):
        names = {f"f{i}" for i in some.names(trained)}
        for i in range(20):
            text = functions.compose(some, 3, some.names(trained), 0.2, rng(i)).text
            assert {part.split("(")[0].split("+")[-1] for part in text.split("f")[1:]} <= {n[1:] for n in names}


def test_expressions_that_raise_are_drawn_again():
    picky = functions.SkillSet(
        "f", [lambda x: x + x if len(x) < 3 else x[len(x) :], str.upper], ["f0", "f1"], lambda rng: "ab"
    )
    for i in range(20):  # f0 of four letters is empty, which is no value
        assert "f0(f0" not in functions.compose(picky, 2, [0, 1], 0.0, rng(i)).text
    never = functions.SkillSet("f", [lambda x: str(1 / 0)], ["f0"], lambda rng: "ab")
    with pytest.raises(UserError, match=r"ZeroDivisionError.*INPUTS"):
        functions.compose(never, 1, [0], 0.0, rng())


def test_no_expression_is_drawn_twice():
    """One function of three inputs has three calls, whoever asks."""
    one = functions.SkillSet("f", [str.upper], ["f0"], lambda rng: "abc"[int(rng.integers(3))])
    draw = functions.ProblemDraw(0.0)
    first, second = draw.take(one, 1, [0], 2, rng()), draw.take(one, 1, [0], 5, rng(1))
    texts = [p.composition.text for p in (*first, *second)]
    assert len(first) == 2 and sorted(texts) == ["f0(a)", "f0(b)", "f0(c)"]


# ---- a file of a user


def test_functions_of_a_file(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    assert list(functions.read_functions(str(file), {})) == ["up", "rev", "twice", "cut"]
    assert skills(given=str(file)).called == ["f0", "f1", "f2", "f3"]
    assert skills(given=str(file), named=True).called == ["up", "rev", "twice", "cut"]
    assert functions.inputs_of(str(file), (2, 2), "x")(rng()) == "xx"
    other = tmp_path / "other.py"
    other.write_text(OWN + "INPUTS = ['lamp']\n")
    assert functions.inputs_of(str(other), (2, 2), "x")(rng()) == "lamp"


@pytest.mark.parametrize(
    "given, why", [("none.py", "no such file"), ("reverse,what", "what"), ("reverse,sort", "four or more")]
)
def test_functions_that_cannot_be_read(given, why):
    with pytest.raises(UserError, match=why):
        functions.read_functions(given, STRINGS)


# ---- what the arms show


def problem(depth, name="f"):
    inner = [(f"{name}0(ab)", f"v{i}") for i in range(depth - 1)]
    return ComposedProblem(Composition("e", "out", [*inner, ("last", "out")]), depth, name)


N = 40
PROBLEMS = [*[problem(2)] * N, *[problem(3)] * N, *[problem(2, "g")] * N]


def arm(name, two, three, away, text="v0 v1 out"):
    shares = [1] * two + [0] * (N - two) + [1] * three + [0] * (N - three) + [1] * away + [0] * (N - away)
    items = [
        {"id": str(i), "prompt": "p", "gold": "out", "right": [bool(x)], "texts": [text], "tokens": [3]}
        for i, x in enumerate(shares)
    ]
    return results.ComposeArm(name, items)


def test_what_the_arms_show():
    start = arm("stage 1", 8, 4, 4, "out")
    arms = [start, arm("rl-1", 8, 4, 4, "out"), arm("rl-2", 36, 32, 24), arm("rft-2", 30, 8, 4, "v1 out")]
    found = results.report(arms, PROBLEMS, "f", 1)
    assert found.findings[0].startswith(
        "Of compositions of 2 calls, of functions never composed in training, stage 1 solves 20%; rl-1 20% (+0.0 points"
    )
    assert "rl-2 80% (+70.0 points" in found.findings[1] and found.findings[1].startswith(
        "Of those of 3 calls and more"
    )
    assert "stage 1 solves 10%" in found.findings[2] and "rl-2 60% (+50.0 points" in found.findings[2]
    assert found.findings[3].startswith("RL on depth 2 against imitation of the same problems: at depth 2")
    assert "at depth 2 no difference is seen, +15.0 points" in found.findings[3]
    assert "deeper more, +60.0 points" in found.findings[3] and "deeper more, +70.0 points" in found.findings[4]
    assert found.findings[5] == (
        "Deep answers that write the value of every inner call: stage 1 0%, rl-1 0%, rl-2 100%, rft-2 0%."
    )
    assert found.numbers["reach"] == pytest.approx(0.2) and found.numbers["moved"] == pytest.approx(2 / 3)
    assert [r[1] for r in found.tables[0].rows] == ["2", "3", "2"]


def test_what_cannot_be_reached_is_told():
    """None of 40 problems of depth 2 is solved: nothing could be learned from, and no difference is seen."""
    arms = [arm(n, 0, 0, 0) for n in ("stage 1", "rl-2", "rft-2")]
    found = results.report(arms, PROBLEMS, "f", 1)
    assert "deeper no difference is seen" in found.findings[3]
    assert found.findings[-1].startswith("At depth 2 stage 1 solves 0% of problems in 1 tries")
    assert found.numbers["moved"] == 0
    alone = results.report(arms[:1], PROBLEMS, "f", 1)
    assert alone.numbers["moved"] == 0 and "no arm was trained" in alone.findings[0]


@pytest.mark.parametrize(
    "given, why",
    [({"arms": "rl-9"}, "the arms are"), ({"depths": ()}, "depths"), ({"prompt": "what?"}, "expression"),
     ({"rounds": 0}, "rounds")],
)  # fmt: skip
def test_settings_that_say_nothing_are_refused(given, why):
    with pytest.raises(UserError, match=why):
        study.build(**given)


# ---- the whole


def test_functions_of_a_user_with_all_arms(tmp_path):
    """No expression is trained on and measured; the same command goes on, and trains nothing again."""
    file, out = tmp_path / "own.py", tmp_path / "out"
    file.write_text(OWN)
    ask = ["study", "compose-skills", "--model", "tiny", "--out", str(out), f"functions={file}", "other=none", "arms=rl-2,rft-2",
           "depths=[1,2]", "problems=3", "samples=1", "taught=8", "drawn=6", "rounds=1", "teach_steps=1", "rl_steps=1",
           "--max-tokens", "8", "train.collect.links.0.n=2", "train.schedule.prompts=2", "teach.schedule.prompts=4",
           "tries=1"]  # fmt: skip
    assert main(ask) == 0
    read = lambda name: [json.loads(x) for x in (out / f"{name}.jsonl").read_text().splitlines()]
    held = {x["prompt"] for x in read("items")}
    taught = {x["messages"][0]["content"] for x in read("taught")}
    assert len(held) == 6 and held.isdisjoint(taught | {x["prompt"] for x in read("train-rl-2")})
    assert set(read("items")[0]["arms"]) == {"stage 1", "rl-2", "rft-2"}
    assert any("f0(" in x or "f1(" in x for x in taught) and not any("up(" in x for x in taught)
    first = (out / "study.json").read_text()
    (out / "summary.json").unlink()
    before = (out / "rl-2" / "metrics.jsonl").stat().st_mtime_ns
    assert main(ask) == 0 and (out / "study.json").read_text() == first
    assert (out / "rl-2" / "metrics.jsonl").stat().st_mtime_ns == before
    assert "reach" in pl.open(out).summary
