"""InternBootcamp: the score of a reply, and the audit of verifiers."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import internbootcamp as camp
from palaestra.rewards.verify import Verify
from palaestra.run.benches import from_data
from palaestra.types import Group, Reward


def test_scores_of_the_released_code():
    """None is 0, wrong is the form's .1, a partial judge .4; 200 characters with an answer of 64 are half."""
    assert camp.bootcamp_score(None, "x", form=0.1) == 0.0
    assert camp.bootcamp_score(0.0, "x", form=0.1) == 0.1
    assert camp.bootcamp_score(0.4, "x", form=0.1) == 0.4
    assert camp.bootcamp_score(1.0, "x", form=0.1) == 1.0
    text = "<think>" + "t" * (200 - 64 - 15) + "</think>" + "a" * 64
    assert len(text) == 200 and camp.bootcamp_score(1.0, text, short=True) == 0.5


@pytest.mark.parametrize(
    ("length", "answer", "score"),
    [(256, 128, 1.0), (255, 128, 255 / 256), (400, 127, 127 / 128), (400, 0, 0.0)],
)
def test_brief_replies_are_worth_less(length, answer, score):
    text = "<think>" + "t" * (length - answer - 15) + "</think>" + "a" * answer
    assert camp.bootcamp_score(1.0, text, short=True) == min(1.0, score)
    assert camp.bootcamp_score(1.0, text) == 1.0
    assert camp.bootcamp_score(1.0, "t" * 500, short=True) == 0.0  # nothing is thought: no answer behind it


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("<think>a</think>b", True),
        ("<think>a</think>", False),
        (" <think>a</think>b", False),
        ("b", False),
        ("<think>a</think>b<think>c</think>d", False),
        ("<think>a</think>b</think>c", False),
    ],
)
def test_thinking_stands_once_at_the_start(text, once):
    assert camp.is_thought_once(text) is once
    assert camp.bootcamp_score(1.0, text, thinking=True) == float(once)


def say(text, total):
    return camp.BootcampScore(form=0.1).score(Reward(total=total, solved=total == 1), text)


def test_form_is_paid_for_an_answer_in_its_place():
    assert say("= 3", 0.0).total == 0.1 and say("3", 0.0).total == 0.0
    assert say("\\boxed{3}", 0.0).total == say("<answer>3</answer>", 0.0).total == 0.1
    found = say("it is 3", 1.0)  # what the verifier finds is found
    assert (found.total, found.solved, found.parts["verified"]) == (1.0, True, 1.0)


def test_what_is_paid_for_form_is_a_part():
    assert say("= 3", 0.0).parts["form"] == 0.1 and say("= 3", 1.0).parts["form"] == 0.0


def test_families_that_are_not_trained_on_are_examined():
    assert camp.build(unseen="chain", n=5).evaluate["unseen"] == pl.run.Exam("chain", 5)
    assert set(camp.build().evaluate) == {"audit"} and not camp.build(audited=0).evaluate


def test_the_families_of_a_users_file_are_audited(context, tmp_path):
    split = lambda d, i: "test" if i < 3 and d != "c" else "train"  # none of "c" is held out
    rows = [
        {"prompt": f"{i} of {d}", "answer": f"{i}", "domain": d, "split": split(d, i)} for i in range(6) for d in "abc"
    ]
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = audit(context("chain").with_bench(from_data(str(file), "", "")), 1)
    assert found == {d: {"gold": 1.0, "changed": 0.0, "nothing": 0.0} for d in "ab"}


def test_a_failure_of_the_verifier_is_never_a_score(context):
    ctx = context("chain")

    async def broken(ctx, group):
        raise pl.Fault("reward", "gone")

    ctx = ctx.with_bench(replace(ctx.bench, reward=broken))
    group = asyncio.run(camp.build().collect(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0))))
    assert all(e.status == "error:reward" for e in group.episodes)
    with pytest.raises(pl.UserError, match="pays by itself"):
        asyncio.run(camp.BootcampScore()(context("grid"), group))


def audit(ctx, n=6):
    return asyncio.run(camp.VerifierAudit(n)(ctx))


def test_the_audit_sees_what_verifiers_pay(context):
    ctx = context("add(d=2)+bool(d=2)")
    assert audit(ctx) == {d: {"gold": 1.0, "changed": 0.0, "nothing": 0.0} for d in ("add(d=2)", "bool(d=2)")}
    generous = ctx.with_bench(replace(ctx.bench, reward=Verify(lambda text, task: 1.0)))
    assert audit(generous)["add(d=2)"] == {"gold": 1.0, "changed": 1.0, "nothing": 1.0}
    mean = ctx.with_bench(replace(ctx.bench, reward=Verify(lambda text, task: 0.5)))
    assert audit(mean)["bool(d=2)"] == {"gold": 0.0, "changed": 0.0, "nothing": 0.0}
    parrot = ctx.with_bench(replace(ctx.bench, reward=Verify(lambda text, task: float(text == task.prompt[0].content))))
    assert audit(parrot)["bool(d=2)"] == {"gold": 0.0, "changed": 0.0, "nothing": 1.0}
    assert list(audit(context("chain"))) == ["chain"] and audit(context("grid")) == {}


def test_one_character_is_another_one():
    rng = np.random.default_rng(0)
    for answer in ("384", "K", "(a, 1)", "-7.5"):
        for _ in range(20):
            found = camp.change_one(answer, rng)
            assert len(found) == len(answer) and sum(a != b for a, b in zip(found, answer, strict=True)) == 1
    assert camp.change_one("+", rng) == "+1"


@pytest.mark.gym
def test_verifiers_of_reasoning_gym_pay_their_oracle(context):
    names = ("chain_sum", "basic_arithmetic", "caesar_cipher", "gcd", "spell_backward", "letter_counting")
    found = audit(context("+".join(f"rg:{n}" for n in names)), 4)
    assert {d["gold"] for d in found.values()} == {1.0} and {d["nothing"] for d in found.values()} == {0.0}


def test_sets_of_families_lie_within_each_other_and_leave_some(context):
    ctx = context("add(d=2)+bool(d=2)+sort(d=2)+chain")
    names = [p.name for p in camp.families_in_order(ctx)]
    assert sorted(names) == ["add(d=2)", "bool(d=2)", "chain", "sort(d=2)"]
    for m in (1, 2):
        drawn, state = camp.SomeFamilies(m, 2)(ctx, ("k",), 40, {})
        assert {t.domain for t in drawn} == set(names[:m]) and len({t.id for t in drawn}) == 40
        more, _ = camp.SomeFamilies(m, 2)(ctx, ("k", 2), 8, state)
        assert not {t.id for t in more} & {t.id for t in drawn}
    with pytest.raises(pl.UserError, match=r"up to 4 families takes more than 4.* has 4"):
        camp.SomeFamilies(1, 4)(ctx, ("k",), 4, {})
    with pytest.raises(pl.UserError, match="numbers of families that rise"):
        camp.build(scaling=(2, 1))
    with pytest.raises(pl.UserError, match="give scaling"):
        camp.build(orders=2)
    orders = {tuple(p.name for p in camp.families_in_order(ctx, i)) for i in range(6)}
    assert len(orders) > 1 and tuple(names) in orders


def test_the_gain_by_doubling():
    """.1 .2 .3 at 1 2 4 is .1 a doubling; .1 .4 .1 is none; by hand, .1 .2 .5 at 1 2 8: x - mean = -4/3 -1/3 5/3."""
    assert camp.gain_by_doubling((1, 2, 4), (0.1, 0.2, 0.3)) == pytest.approx(0.1)
    assert camp.gain_by_doubling((1, 2, 4), (0.1, 0.4, 0.1)) == pytest.approx(0.0)
    by_hand = (-4 / 3 * 0.1 - 1 / 3 * 0.2 + 5 / 3 * 0.5) / (16 + 1 + 25) * 9
    assert camp.gain_by_doubling((1, 2, 8), (0.1, 0.2, 0.5)) == pytest.approx(by_hand)
    assert camp.gain_by_doubling((3,), (0.4,)) == 0


def test_families_of_a_users_file_scale_in_one_run(tmp_path):
    """Three families of a file; one is measured on, of which the models have seen nothing."""
    split = lambda i: "test" if i < 2 else "train"
    rows = [
        {"prompt": f"{i} of {d}", "answer": f"{i}", "domain": d, "split": split(i)} for i in range(6) for d in "abc"
    ]
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    pipeline = camp.build(audited=0, scaling=(1, 2), n=2, orders=2)
    for part in pipeline.parts:
        if part == "curve":
            continue
        for field, size in (("schedule.prompts", 2), ("schedule.steps", 1), ("collect.links.0.n", 2)):
            pipeline = pl.override(pipeline, f"{part}.{field}", size)
    run = pl.train(
        pl.override(pipeline, "curve.samples", 2),
        data=str(file),
        max_tokens=4,
        evaluate=0,
        out=tmp_path / "run",
        quiet=True,
    )
    found = run.summary
    assert [(x["order"], x["families"]) for x in found["scaling"]] == [(o, m) for o in (0, 1) for m in (0, 1, 2)]
    slopes = [found["scaling"][i + 2]["mean"] - found["scaling"][i + 1]["mean"] for i in (0, 3)]
    assert found["slope"] == pytest.approx(sum(slopes) / 2) == pytest.approx(found["slopes"]["mean"])
    assert all(x["n"] == 4 for x in found["scaling"]) and found["slopes"]["n"] == 2
    for part, unseen in zip(("families 2", "families 2, order 2"), found["unseen"], strict=True):
        assert len(unseen) == 1 and f"drawn/{unseen[0]}" not in (tmp_path / "run" / part / "metrics.jsonl").read_text()
