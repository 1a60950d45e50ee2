"""Sharpe-active: both ratios are functions of |m|, no label is read before it is bought, and every labeller's
labels lie in a file that a person fills in."""

import asyncio
import io
import json
import sys
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.preference import sharpe_active
from palaestra.recipes.preference.sharpe_active import BuyLabels, labels, selection_scores, sharpe_ratio
from palaestra.run.trust import Executables

ROWS = [{"prompt": f"{i}+1=", "first": f"= {i + 1}", "second": f"= {i + 2}"} for i in range(12)]
PAIRS = [{"prompt": r["prompt"], "chosen": r["first"], "rejected": r["second"]} for r in ROWS]
SMALL = {"steps": 2, "evaluate": 0, "quiet": True}


def write(file, rows):
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


def train(data, out, steps=2, **words):
    words = {"schedule.prompts": 2, "factor": 3, **words}
    return pl.train("sharpe-active", data=data, out=out, set=words, **{**SMALL, "steps": steps})


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def by_definition(m, p1):
    """mu / sqrt(variance) of two outcomes 1 and g = e^m."""
    g, p2 = np.exp(m), 1 - p1
    mu = p1 + p2 * g
    return mu / np.sqrt(p1 * (1 - mu) ** 2 + p2 * (g - mu) ** 2)


def test_the_ratios_are_functions_of_the_absolute_margin():
    values = [(0.1, 20.016664, 19.991669), (0.5, 4.082988, 3.958635), (2.0, 1.313035, 0.850918)]
    for m, plain, prior in values:
        for signed in (m, -m):
            assert sharpe_ratio(signed) == pytest.approx(plain, abs=1e-6) == by_definition(signed, 0.5)
            sigmoid = 1 / (1 + np.exp(-signed))
            assert sharpe_ratio(signed, prior=True) == pytest.approx(prior, abs=1e-6) == by_definition(signed, sigmoid)
    assert np.isinf(sharpe_ratio(0.0)) and sharpe_ratio(1e4, prior=True) == 0


def test_both_ratios_rank_as_the_negative_absolute_margin():
    m = np.random.default_rng(0).normal(size=50) * 3
    order = np.argsort(selection_scores(m, "sharp", ())).tolist()
    assert order == np.argsort(-np.abs(m)).tolist() == np.argsort(selection_scores(m, "w-sharp", ())).tolist()
    for prior in (False, True):
        assert np.argsort(sharpe_ratio(m, prior)).tolist() == order
    assert np.argsort(selection_scores(m, "certain", ())).tolist() == order[::-1]
    assert np.argsort(selection_scores(m, "random", ("k",))).tolist() != order


def test_margins_are_those_of_the_loss(context):
    """beta times the difference of summed log-ratios; 0 where the policy is the reference."""
    ctx = context("preferences")
    ctx.reference("ref", "policy")
    draw = BuyLabels(beta=0.5)
    pairs = [labels.unlabelled(ctx.bench.tasks.task("train", i), i) for i in range(3)]
    assert np.array_equal(asyncio.run(draw.margins(ctx, (), pairs)), np.zeros(3))
    said = {"policy": [[-1.0, -2.0], [-4.0]], "ref": [[-3.0, -2.5], [-1.0]]}  # h = 2.5 and -3
    rows = [
        [{f"{m}_logp": np.array(x) for m, x in zip(said, both, strict=True)}]
        for both in zip(said["policy"], said["ref"], strict=True)
    ]
    ctx.measure = lambda groups, needs: [rows]
    assert asyncio.run(draw.margins(ctx, (), pairs[:1])) == pytest.approx([0.5 * 5.5])


def test_the_order_of_a_pair_tells_nothing():
    """Records with the opposite label are the same pair, without a column that tells."""
    task = pl.Task(id="t", prompt=(pl.Message(role="user", content="1+1="),), meta={})
    given = [{"chosen": a, "rejected": b, "gap": 1.0} for a, b in (("x", "y"), ("y", "x"))]
    one, other = (labels.unlabelled(replace(task, meta=m), 0) for m in given)
    assert one == other and not one.task.meta and one.id == other.id
    assert one.with_label("first").meta == {"chosen": one.first, "rejected": one.second}
    assert one.with_label("second").meta == {"chosen": one.second, "rejected": one.first}


def test_what_is_bought_does_not_depend_on_the_labels(tmp_path):
    """With all labels turned round the first step buys the same pairs, and 2 of 6 candidates are read."""
    turned = [{**r, "chosen": r["rejected"], "rejected": r["chosen"]} for r in PAIRS]
    runs = [train(write(tmp_path / f"{n}.jsonl", rows), tmp_path / n, 1) for n, rows in (("a", PAIRS), ("b", turned))]
    one, other = (read(run.folder / "labels.jsonl") for run in runs)
    assert [r["id"] for r in one] == [r["id"] for r in other] and len(one) == 2
    opposite = {"first": "second", "second": "first"}
    assert [r["better"] for r in one] == [opposite[r["better"]] for r in other]
    right = {r["prompt"]: r["chosen"] for r in PAIRS}
    assert all(r[r["better"]] == right[r["prompt"]] for r in one)


def test_a_person_fills_in_the_queue(tmp_path):
    """The run pauses with its questions, and goes on where they are answered; nothing is asked twice."""
    data, out = write(tmp_path / "p.jsonl", ROWS), tmp_path / "run"
    with pytest.raises(pl.UserError, match=r"2 of 2 pairs wait for a label.*labels\.jsonl"):
        train(data, out, label="queue")
    file = out / "labels.jsonl"
    first = read(file)
    assert [r["better"] for r in first] == [None, None] and first[0].keys() >= {"prompt", "first", "second"}
    write(file, [{**first[0], "better": "second"}, first[1]])
    with pytest.raises(pl.UserError, match="1 of 2 pairs wait"):
        pl.train(resume=out, quiet=True)
    assert len(read(file)) == 2
    write(file, [{**r, "better": "second"} for r in first])
    with pytest.raises(pl.UserError, match=r"after step 1.*2 of 2 pairs wait"):
        pl.train(resume=out, quiet=True)
    assert len(read(file)) == 4
    write(file, [{**r, "better": "first"} for r in read(file)])
    run = pl.train(resume=out, quiet=True)
    assert read(run.folder / "metrics.jsonl")[-1]["labels"] == 4 and len(read(file)) == 4


@pytest.mark.parametrize(
    "line, words", [("no json", "1: not a JSON object"), ('{"id":1,"better":"x"}', "1: better is")]
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, words):
    file = tmp_path / "l.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(pl.UserError, match=words):
        labels.LabelFile(file, {})


def test_a_command_labels_and_its_failures_are_bought_again(tmp_path):
    script = tmp_path / "ask.sh"
    script.write_text(f"#!/bin/sh\ncat >> {tmp_path}/asked.jsonl\necho thinking\necho second\n")
    script.chmod(0o755)
    data = write(tmp_path / "p.jsonl", ROWS)
    run = train(data, tmp_path / "run", label=f"command:{script}", budget=3)
    bought = read(run.folder / "labels.jsonl")
    assert [r["better"] for r in bought] == ["second"] * 3 and len(read(tmp_path / "asked.jsonl")) == 3
    assert read(run.folder / "metrics.jsonl")[-1]["labels"] == 3
    pair = labels.unlabelled(pl.Task(id="t", prompt=(pl.Message(role="user", content="q"),), meta=ROWS[0]), 0)
    for command, cause in (("false", "label-command"), ("echo what", "label-unread"), ("sleep 9", "label-timeout")):
        with pytest.raises(pl.Fault) as fault:
            asyncio.run(labels.CommandLabel(command, timeout=0.3)(None, pair))
        assert fault.value.cause == cause
    with pytest.raises(pl.UserError, match=r"none of 2 pairs could be labelled.*ended with 1"):
        train(data, tmp_path / "failed", label="command:false")


def test_a_budget_that_is_spent_buys_nothing_more(context):
    """Ties cost labels and teach nothing; afterwards bought pairs come again."""
    ctx, asked = context("preferences"), []
    ctx.reference("ref", "policy")

    class Labels:
        at_once = 8

        async def __call__(self, ctx, pair):
            asked.append(pair.id)
            return "tie" if len(asked) == 1 else "first"

    draw = BuyLabels(Labels(), budget=3, factor=2)
    tasks, state = asyncio.run(draw(ctx, ("a",), 2, {}))
    assert (len(asked), len(tasks)) == (2, 1)
    tasks, state = asyncio.run(draw(ctx, ("b",), 2, state))
    assert (len(asked), len(tasks)) == (3, 1)
    tasks, state = asyncio.run(draw(ctx, ("c",), 2, state))
    assert (len(asked), len(tasks)) == (3, 2) and draw.draw_numbers(state) == {"labels": 3.0, "margin_gap": 0.0}


def test_at_the_terminal_a_person_is_asked(monkeypatch):
    pair = labels.unlabelled(pl.Task(id="t", prompt=(pl.Message(role="user", content="q"),), meta=ROWS[0]), 0)
    monkeypatch.setattr(sys, "stdin", io.StringIO("what\n2\nq\n"))
    assert asyncio.run(labels.TerminalLabel()(None, pair)) == "second"
    with pytest.raises(pl.Paused):
        asyncio.run(labels.TerminalLabel()(None, pair))


@pytest.mark.parametrize("always, better", [("[[A]]", "tie"), ("= 2", "first")])
def test_a_judge_sees_both_orders(always, better):
    """One that likes the first place says nothing; one that likes an answer decides."""

    def verdict(request):
        shown = request.messages[-1].content
        return always if always.startswith("[[") else "[[A]]" if shown.index(always) < shown.index("= 3") else "[[B]]"

    task = pl.Task(id="t", prompt=(pl.Message(role="user", content="q"),), meta=ROWS[1])
    judge = labels.JudgeLabel(pl.Pairwise(client=pl.Scripted(verdict)))
    assert asyncio.run(judge(None, labels.unlabelled(task, 0))) == better


def test_wrong_settings_say_what_to_write(tmp_path):
    for label, words in (("ask.py", "is no labeller; write file"), ("command:no-such", "no such program")):
        with pytest.raises(pl.UserError, match=words):
            sharpe_active.build(label=label)
    with pytest.raises(pl.UserError, match="factor"):
        sharpe_active.build(factor=0)
    with pytest.raises(pl.UserError, match="chosen"):
        train(write(tmp_path / "p.jsonl", ROWS), tmp_path / "run")
    only = pl.Task(id="t", prompt=(pl.Message(role="user", content="q"),), meta={"first": "x"})
    with pytest.raises(pl.UserError, match="no pair of answers"):
        labels.unlabelled(only, 0)


def test_a_command_of_a_stranger_is_asked_for():
    assert Executables.of({"set": {"label": "command:sh ask.sh"}}).programs == ("sh ask.sh",)


def test_few_pairs_are_said_once(context):
    """Six pairs, of which each step buys two among six, then four and two."""
    ctx = context("preferences")
    ctx.reference("ref", "policy")
    said = []
    ctx.say = said.append

    class Six:
        name, size = "six", 6

        def task(self, split, i):
            meta = {k: ROWS[i][k] for k in ("first", "second")}
            return pl.Task(id=f"t{i}", prompt=(pl.Message(role="user", content=ROWS[i]["prompt"]),), meta=meta)

    class First:
        at_once = 8

        async def __call__(self, ctx, pair):
            return "first"

    ctx.bench = replace(ctx.bench, tasks=Six())
    draw, state, notes = BuyLabels(First(), factor=3), {}, []
    for step in range(3):
        _, state = asyncio.run(draw(ctx, ("few", step), 2, state))
        notes.append(len(said))
    assert notes == [0, 1, 1] and "4 pairs without a label are left for the 2 of a step" in said[0]
