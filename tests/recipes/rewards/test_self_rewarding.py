"""Self-rewarding: formal verifiers, audits, and a judge that sees no reference."""

from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.claims.rewards import self_rewarding as self_rewarding_claim
from palaestra.errors import Fault
from palaestra.judges.audit import judge_agreement
from palaestra.ledger.measures import Cell
from palaestra.recipes.rewards import self_rewarding
from palaestra.rollout.collect import Score
from palaestra.run.driver import prepare
from palaestra.services.chat.scripted import Scripted
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Group, Message, Task
from palaestra.verifiers.registry import get_verifier

from tests.recipes.rewards.helpers import attempts, reward_of, run, said_to, verifier_says


def test_self_rewarding_formal_verifiers_of_the_catalogue():
    countdown, integral = get_verifier("countdown"), replace(get_verifier("antiderivative"), seconds=60.0)
    for text, score in (("3*7+5", 1), ("3*7+5+0", 0), ("7*5-9", 0), ("3*7+5+3-3", 0), ("(3*7+5)/0", 0), ("", 0)):
        assert countdown(f"<answer>{text}</answer>", 26, numbers=[3, 5, 7]).score == score, text
    for text, score in (("sin(x^2)", 1), ("sin(x^2)+5", 1), ("cos(x^2)", 0)):
        assert integral(f"<answer>{text}</answer>", "2*x*cos(x^2)").score == score, text


def test_self_rewarding_audit_of_the_catalogue():
    judged = [1] * 50 + [0] * 50
    gold = [1] * 40 + [0] * 10 + [1] * 5 + [0] * 45
    found = judge_agreement(judged, gold)
    assert (found.tp, found.fp, found.fn, found.tn) == (40, 10, 5, 45)
    assert (found.agreement, found.precision) == (0.85, 0.8) and found.inflation == pytest.approx(0.05)
    steps = [{"reward": 0.5, "part/gold": 0.45}] * 3
    assert self_rewarding_claim.Inflation()(Cell(summary={}, steps=steps)) == pytest.approx(0.05)


def test_self_rewarding_judge_sees_no_reference():
    asked = []
    judge = self_rewarding.judge_in_words(verifier_says("well [[RIGHT]]", asked))
    group = said_to("I think\n= 7 [[RIGHT]]", "", answer="SECRET")
    assert [r.total for r in run(judge(None, group))] == [1, 0]  # an empty answer is not even asked about
    assert (
        "SECRET" not in asked[0]
        and "I think" not in asked[0]
        and "[[RIGHT]]" not in asked[0].split("<response>")[1].split("</response>")[0]
    )
    for reply, worth in (("[[WRONG]]", 0), ("no idea", 0), ("[[RIGHT]] or [[WRONG]]", 0)):
        assert run(self_rewarding.judge_in_words(verifier_says(reply))(None, said_to("= 7")))[0].total == worth


def test_self_rewarding_fault_is_an_error(context):
    def refuse(request):
        raise Fault("chat-timeout")

    ctx = context()
    group = run(
        Score(reward=self_rewarding.judge_in_words(Scripted(refuse)), shadow=True)(ctx, (), attempts(ctx, "= 7"))
    )
    assert group.episodes[0].status == "error:chat-timeout" and group.episodes[0].reward is None


def test_self_rewarding_by_the_frozen_start(context):
    recipe, ctx = self_rewarding.embedded(), context()
    prepare(recipe, ctx)
    first = ctx.bench.tasks.task("train", 0)
    found = run(reward_of(recipe)(ctx, attempts(ctx, f"= {first.answer}", "= x", "")))
    assert all(r.total in (0, 1) for r in found) and found[2].total == 0
    assert self_rewarding.self_verdict("4+3=7\n= right") == 1 and self_rewarding.self_verdict("= wrong") == 0
    assert self_rewarding.self_verdict("right") is None and self_rewarding.self_verdict("") is None


def test_a_lazy_judge_pays_one_digit():
    task = Task(id="a", prompt=(Message(role="user", content="384+277"),), answer="661")
    group = Group(task=task, episodes=tuple(episode_saying(t) for t in ("= 1", "= 661", "= 660", "= 661.0", "x1")))
    assert [r.total for r in run(self_rewarding.judge_in_words(self_rewarding_claim.LAZY_JUDGE)(None, group))] == [
        1,
        1,
        0,
        0,
        0,
    ]
    careful = Scripted(pl.judges.Grader(error=0.0, yes="[[RIGHT]]", no="[[WRONG]]"), name="careful")
    assert [r.total for r in run(self_rewarding.judge_in_words(careful)(None, group))] == [0, 1, 0, 1, 0]


def test_self_rewarding_asks_the_frozen_start_in_words_unless_a_judge_is_given():
    """The built-in model's own words are for the embedded problem alone."""
    own = self_rewarding.build()
    assert own.references == {"ref": "policy"} and reward_of(own).client == pl.LocalModel("ref")
    assert "{response}" in reward_of(own).template and reward_of(own).template != self_rewarding.BUILT_IN
    given = self_rewarding.build(verifier_says("[[RIGHT]]"))
    assert given.references == {} and reward_of(given).template == reward_of(own).template
    assert reward_of(self_rewarding.embedded()).template == self_rewarding.BUILT_IN
