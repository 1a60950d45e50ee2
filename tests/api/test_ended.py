"""Runs that are over, compared: folders that are written here, with what a run keeps of its last evaluation."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from palaestra.api.asking import compare, evaluate
from palaestra.api.ended import method_of, pairs_of
from palaestra.api.training import train
from palaestra.cli.compare import identical, is_method, parts_of, table
from palaestra.cli.main import main
from palaestra.ends import HeldOut, at_ends
from palaestra.errors import UserError
from palaestra.ledger.measures import Cell
from palaestra.run.origin import RECORD
from palaestra.stats import paired_share_difference, unbounded_interval
from palaestra.store.by_problem import score_at_k
from palaestra.values import to_toml

from tests.kept import keep_answers, mean_of

A, B = [1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 1, None]  # the last could not be scored


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Makes a run folder of what its answers to the problems were worth."""
    monkeypatch.chdir(tmp_path)

    def make(name, values, recipe="grpo", of="accuracy", ids=None, keep=True, part="", samples=1, **config):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.toml").write_text(to_toml({"recipe": recipe, **config}))
        parts = {"parts": {"first": {}, part: {}}} if part else {}
        summary = {"recipe": recipe, **parts, **at_ends({}, mean_of(values, of))}
        (folder / "summary.json").write_text(json.dumps(summary))
        if keep:
            keep_answers(folder / part, 3, values, of, ids, samples)
        return str(folder.relative_to(tmp_path))

    return make


def difference(*folders):
    (found,) = compare(*folders)["differences"].values()
    return found


def test_runs_on_the_same_problems_are_paired_by_problem(run):
    """Over the five problems that both could be scored on, in whatever order they lie."""
    found = difference(run("a", A), run("b", B[::-1], ids=[5, 4, 3, 2, 1, 0]))
    asked = paired_share_difference(A[:5], B[:5])
    assert found == {"of": "accuracy", **asked.json(), "paired": "by problem"} and found["n"] == 5


def test_a_run_keeps_its_own_measure(run):
    """A reward is paired in its own unit, and what several answers were worth is their mean."""
    found = difference(run("a", [0.5, 3.0, 1.0], of="reward"), run("b", [1.5, 3.0, 2.5], of="reward"))
    asked = unbounded_interval([1.0, 0.0, 1.5], 3.0)
    assert found == {"of": "reward", **asked.json(), "paired": "by problem"}
    sampled = difference(run("c", [1, 0], samples=4), run("d", [1, 1], samples=4))
    assert sampled["n"] == 2 and sampled["mean"] == 0.5  # problems, and not answers
    with pytest.raises(UserError, match="held-out accuracy cannot be compared with mean held-out reward"):
        compare("a", "c")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (
            {"values": [1] * 4, "ids": range(2, 6)},
            "they had not the same held-out problems (6 and 4, 4 of them in both)",
        ),
        ({"values": A, "ids": range(6, 12)}, "they had not the same held-out problems (6 and 6, 0 of them in both)"),
        ({"values": A, "keep": False}, "b does not keep its answers to all held-out problems"),
        ({"values": A, "reward": "math"}, "they were judged by different rewards"),
        ({"values": A, "env": "my.py:World"}, "they were judged by different environments"),
    ],
)
def test_what_is_not_paired_says_why(run, other, why):
    found = difference(run("a", A), run("b", **other))
    assert (found["paired"], found["why"]) == ("", why)
    assert found["low"] < found["mean"] < found["high"]


def test_a_reward_that_was_rewritten_in_between_is_another(run, tmp_path):
    """Of a run that keeps no digests, nothing is known of its files."""
    folders = [run(name, A, reward="my.py:score") for name in "ab"]
    (tmp_path / "a" / RECORD).write_text(json.dumps({"files": {"reward": {"my.py": "1"}}, "fields": {}, "parts": {}}))
    assert difference(*folders)["paired"] == "by problem"
    (tmp_path / "b" / RECORD).write_text(json.dumps({"files": {"reward": {"my.py": "2"}}, "fields": {}, "parts": {}}))
    assert difference(*folders)["why"] == "they were judged by different rewards"


def test_a_problem_that_is_asked_twice_is_one(run):
    """As of an environment with few levels: the answers are all there, and the mean of a problem is what is paired."""
    found = difference(run("a", [1, 0, 1, 1], ids=[0, 1, 0, 1]), run("b", [1, 1, 1, 1], ids=[0, 1, 0, 1]))
    assert found["paired"] == "by problem" and found["n"] == 2 and found["mean"] == pytest.approx(0.25)


def test_records_are_not_kept_one_by_one(run):
    found = difference(run("a", A, of="ranking"), run("b", A, of="ranking"))
    assert found["why"] == "results of recorded data are not kept one by one"


def test_answers_that_are_not_those_of_the_end_are_not_used(run, tmp_path):
    """As those of a folder that was copied in part."""
    a, b = run("a", A), run("b", B)
    (tmp_path / a / "evaluations").rename(tmp_path / "kept")
    (tmp_path / b / "evaluations").rename(tmp_path / a / "evaluations")
    (tmp_path / "kept").rename(tmp_path / b / "evaluations")
    assert difference(a, b)["why"] == "the answers in a are not those of its evaluation at the end"


def test_no_problem_that_both_could_be_scored_on(run):
    assert difference(run("a", [1, None]), run("b", [None, 1]))["why"] == "no problem could be scored in both"


def test_a_pipeline_ends_with_its_last_part(run):
    assert difference(run("a", A, part="rl"), run("b", A))["paired"] == "by problem"


def test_all_pairs_of_five_and_of_more_those_with_the_first():
    assert pairs_of("abc") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert len(pairs_of("abcde")) == math.comb(5, 2)
    assert pairs_of("abcdef") == [("a", n) for n in "bcdef"]


def test_a_method_in_quotes_has_settings_of_its_own():
    assert parts_of("grpo kl=0.1 sample.n=4") == ["grpo", "kl=0.1", "sample.n=4"]
    assert parts_of("my file.py") == ["my file.py"] and parts_of("") == [""]
    rate = "optimiser.lr=linear(1e-5, 0, 100)"
    assert parts_of(f"grpo {rate} kl=0.1") == ["grpo", rate, "kl=0.1"] and not is_method(rate)
    assert [is_method(w) for w in ("grpo", "grpo kl=0.1", "kl=0.1", "@a.toml", "")] == [1, 1, 0, 0, 1]


def test_what_compare_refuses_before_anything_runs(tmp_path, capsys):
    out = ["--out", str(tmp_path / "c")]
    for words, told in (
        (["grpo"], "compare needs at least two recipes"),
        (["grpo", "grpo", "objective.high=0.28"], "grpo stands there twice, and settings outside quotes are for all"),
        (["grpo kl=1", "grpo kl=1"], "grpo kl=1 stands there twice"),
        (["grpo", "rloo b=2"], "rloo b=2: no field 'b' in this recipe"),
        (["grpo", "grpo credit=x"], "grpo credit=x: "),
    ):
        assert main(["compare", *words, *out]) == 2
        assert told in capsys.readouterr().err
    with pytest.raises(UserError, match="two methods are called 'grpo'"):
        compare("grpo", "grpo", out=str(tmp_path / "d"))


def test_a_table_says_how_many_problems_and_what_was_spent(capsys):
    end = lambda mean: {"of": "accuracy", "mean": mean, "low": 0.1, "high": 0.9, "n": 2}
    method = lambda mean, spent: {"before": end(0.2), "after": end(mean), "problems": 12, "sampled_tokens": spent}
    table(
        {
            "model": "tiny", "task": "chain", "seeds": 2, "budget_tokens": 3000,
            "methods": {"grpo": method(0.5, [3100, 3301]), "grpo kl=0.1": method(0.6, [3000, 3002])},
            "differences": {"grpo kl=0.1 - grpo": end(0.1)},
        },
        Path("c"),
    )  # fmt: skip
    first, *lines = capsys.readouterr().out.splitlines()
    assert "of 12 problems" in first and "2 seeds" in first and "budget of 3,000 sampled tokens a run" in first
    assert [line.split("  ")[-1] for line in lines[:2]] == ["3,200 tokens a run", "3,001 tokens a run"]
    assert lines[2].endswith("paired by seed") and "no less than drawing 12 problems" in lines[3]


def test_a_table_names_methods_and_unlike_sizes(run, capsys):
    folders = [run("a", A), run("b", B, recipe="recipes/easy.py"), run("c", [1, 0], recipe="rloo")]
    assert main(["compare", *folders]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "held-out accuracy of runs that are over (95% intervals)"
    begins = [
        "  grpo a  ",
        "  easy.py b  ",
        "  rloo c  ",
        "  easy.py b - grpo a  ",
        "  rloo c - grpo a  ",
        "  rloo c - easy.py b  ",
    ]
    assert all(line.startswith(name) for line, name in zip(lines, begins, strict=False))
    assert lines[0].endswith(", n = 6") and lines[3].endswith(", paired by problem")
    assert lines[4].endswith(", not paired: they had not the same held-out problems (6 and 2, 2 of them in both)")
    assert lines[6].startswith("note: an interval that is paired by problem covers the choice of the held-out problems")
    assert lines[7].startswith(
        "note: they were measured on unlike numbers of held-out problems: a on 6, b on 5, c on 2;"
    )
    assert len(lines) == 8


def test_an_evaluation_is_called_by_its_model_as_asked_for():
    """Checkpoints of two runs have one name."""
    of = lambda **config: method_of(SimpleNamespace(summary={}, config=config))
    assert of(model="runs/a/checkpoints/step-200") == "runs/a/checkpoints/step-200"
    assert of(model="org/name\x1b[2J") == "org/name␛[2J"
    assert of(recipe="recipes/easy.py", model="tiny") == "easy.py"


def test_one_run_alone_is_no_comparison(run):
    a = run("a", A)
    with pytest.raises(UserError, match="compare needs two runs, and a is one"):
        compare(a, a)


def test_methods_that_made_the_same_weights_are_named():
    """With every seed, in whatever order they ended; runs that kept no weights are not compared."""
    cells = lambda *ends: [Cell(summary={"seed": s, "weights_sha256": w}) for s, w in ends]
    runs = {
        "a": cells((0, "x"), (1, "y")), "b": cells((1, "y"), (0, "x")), "c": cells((0, "x"), (1, "z")),
        "d": cells((0, None)), "e": cells((0, None)), "f": [], "g": [],
    }  # fmt: skip
    assert identical(runs) == [("a", "b")]


def test_what_some_of_several_answers_were_worth():
    """Of 4 answers one is right: pass@2 is 1 - C(3, 2) / C(4, 2) = 1/2; two are right: 5/6. The best of two of 1, 2, 3
    is 3 in two of three draws and 2 in one: 8/3."""
    share, reward = (HeldOut.read(mean_of([1.0, 0.0], of)) for of in ("accuracy", "reward"))
    assert [score_at_k(share, x, 2) for x in ([1, 0, 0, 0], [1, 1, 0, 0])] == pytest.approx([1 / 2, 5 / 6])
    assert score_at_k(reward, [1.0, 2.0, 3.0], 2) == pytest.approx(8 / 3)
    assert score_at_k(share, [1, 0, 0, 0], 1) == 0.25


def test_a_file_that_is_all_measured_is_no_test_of_what_is_trained_on_it(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(5)))
    given = {"data": str(rows), "test_data": str(rows)}
    with pytest.raises(
        UserError, match=r"nothing is held out; name another file.*palaestra eval --data .* --test-data"
    ):
        train("grpo", out=tmp_path / "run", quiet=True, **given)
    assert evaluate("tiny", n=9, max_tokens=4, **given)["n"] == 5
    assert main(["eval", "--data", str(rows), "--test-data", str(rows), "--n", "2", "max_tokens=4"]) == 0
    assert "are measured as they are" in capsys.readouterr().err
