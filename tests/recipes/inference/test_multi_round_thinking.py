"""Multi-round thinking: transitions between rounds by hand, and a user's own questions."""

import asyncio
import json
from pathlib import Path

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.inference.multi_round_thinking import (
    DemonstrateAgain,
    build,
    measure_rounds,
    next_accuracy,
    resting_point,
    transitions,
)
from palaestra.stats import bounded_interval
from palaestra.types import Episode, Group, Message, Reward, Row, Segment


def said(right, tokens=3, prompt=""):
    segment = Segment(ids=(1,) * tokens, logp=(0.0,) * tokens)
    reward = Reward(total=float(right), solved=bool(right))
    shown = (Message(role="user", content=prompt),)
    return Episode(rows=(Row(segments=(segment,)),), reward=reward, status="finished", prompt=shown)


def test_the_rounds_follow_a_and_b_to_where_they_rest():
    """p1 = 0.80, a = 0.98, b = 0.20; and round 2 hurts where p1 is above the resting point."""
    p2 = next_accuracy(0.80, 0.98, 0.20)
    assert p2 == pytest.approx(0.8240) and next_accuracy(p2, 0.98, 0.20) == pytest.approx(0.84272)
    assert resting_point(0.98, 0.20) == pytest.approx(0.909091, abs=1e-6)
    assert next_accuracy(0.95, 0.98, 0.20) == pytest.approx(0.9410)
    assert next_accuracy(0.909091, 0.98, 0.20) == pytest.approx(0.909091, abs=1e-6)
    assert resting_point(1.0, 0.0) is None


def test_transitions_are_counted_over_neighbouring_rounds():
    """Right answers: rounds 1 to 2: 2 of 3 stay; 2 to 3: 2 of 3 stay. Wrong ones: 1 of 1 and 1 of 1 mend."""
    right_CR = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 1], [0, 1, 1]], bool)
    assert transitions(right_CR) == (pytest.approx(4 / 6), 1.0)
    assert transitions(np.array([[True, True]])) == (1.0, None)
    assert transitions(np.array([[False, True]])) == (None, 1.0)
    assert transitions(np.array([[True]])) == (None, None)


def test_a_round_is_measured_by_problem():
    """Problem 5 has two chains, one right in round 1, both in round 2; problem 8 has one, wrong in both."""
    chains = [
        [said(1, 4), said(1, 2, "again")], [said(0, 2), said(1, 2, "again")], [said(0, 3), said(0, 5)],
    ]  # fmt: skip
    found = measure_rounds([5, 5, 8], chains)
    first, second = found["rounds"]
    assert first == {
        "accuracy": {"of": "accuracy", **bounded_interval([0.5, 0.0]).json()}, "tokens": 3.0, "shown_again": 0.0,
    }  # fmt: skip
    assert second["accuracy"]["mean"] == 0.5 and second["tokens"] == 3.0
    assert second["shown_again"] == pytest.approx(2 / 3)
    assert (found["kept"], found["mended"]) == (1.0, 0.5)
    assert found["resting_point"] == pytest.approx(0.5 / (1 - 1.0 + 0.5))


def test_a_users_questions_are_asked_again_with_the_answer_alone(tmp_path, monkeypatch):
    """In the table of round 2 the prompts hold the answers of round 1, and nothing of the reasoning."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{a}+{a} mod 10", "answer": str(2 * a % 10)} for a in range(10)]
    Path("mine.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "multi-round-thinking", data="mine.jsonl", out="run", quiet=True, evaluate=0,
        set={"tasks": 1, "chains": 3, "rounds": 3},
    )  # fmt: skip
    logged = [json.loads(line) for line in Path("run", "metrics.jsonl").read_text().splitlines()]
    assert [x["round"] for x in logged if "round" in x] == [1, 2, 3]
    assert logged[0]["shown_again"] == 0 and logged[1]["shown_again"] > 0
    assert 0 <= run.summary["accuracy_after"]["mean"] <= 1 and run.summary["accuracy_after"]["n"] == 1


def test_what_asks_no_question_is_refused(tmp_path):
    with pytest.raises(pl.UserError, match="asks no question that a previous answer could be shown behind"):
        pl.train("multi-round-thinking", task="kuhn", out=tmp_path, quiet=True, set={"tasks": 1, "chains": 1})


def test_arguments_are_checked():
    for given in ({"rounds": 0}, {"chains": 0}, {"keep": "all"}):
        with pytest.raises(pl.UserError):
            build(**given)


def test_half_of_the_shown_answers_are_wrong(context):
    """On the embedded problem a third of the questions show none."""
    ctx = context()
    shown = []
    for i in range(300):
        task = ctx.bench.tasks.task("train", i)
        group = asyncio.run(DemonstrateAgain()(ctx, (0, i), Group(task=task)))
        text = ctx.decode(group.episodes[0].rows[0].context())
        shown.append("" if "<answer>" not in text else ("wrong", "right")[f"<answer> {task.answer} <" in text])
        assert group.task == task and text.endswith(f"\n= {task.answer}<|end|>")
    counts = [shown.count(x) / 300 for x in ("", "right", "wrong")]
    assert all(abs(c - 1 / 3) < 0.09 for c in counts), counts
