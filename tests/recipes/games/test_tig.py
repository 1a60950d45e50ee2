"""tig: labels are imitated or a teacher's replies, agreement is paid, and the lane is played live."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.games.tig import LaneExam, ShowAction, TellPlay, build, embedded
from palaestra.toys.lane import LaneTasks
from palaestra.types import Group, Reward, Task

from tests.fake import episode

TASK = LaneTasks().task("train", 0)
SAYING = Task(id="t", answer="push", meta={"macro_actions": ("defend", "push"), "ahead": 2.0, "legal": ("push",)})


def told(link, episodes, task=SAYING):
    return asyncio.run(link(None, ("k",), Group(task=task, episodes=tuple(episodes)))).episodes


def said(text, reward=1.0):
    made = episode((0,), (1, 2), reward)
    row = made.rows[0]
    last = replace(row.segments[-1], text=text)
    rows = (replace(row, segments=(*row.segments[:-1], last)),)
    return replace(made, rows=rows, reward=Reward(total=reward, parts={}))


def test_parts_say_what_was_filled_unread_and_impossible():
    right, wrong, none = told(TellPlay(), [said("push"), said("I **defend**"), said("hm")])
    assert right.reward.parts == {"filled": 1.0, "unread": 0.0, "impossible": 0.0}
    assert wrong.reward.parts == {"filled": 1.0, "unread": 0.0, "impossible": 1.0}
    assert none.reward.parts == {"filled": 1.0, "unread": 1.0, "impossible": 0.0} and none.total == 1.0
    own = replace(SAYING, meta={"macro_actions": ("push",), "ahead": 0.0, "legal": ()})
    assert told(TellPlay(), [said("push")], own)[0].reward.parts == {"filled": 0.0, "unread": 0.0}
    failed = replace(said("x"), reward=None, status="error:engine")
    assert told(TellPlay(), [failed])[0] == failed


def show(ctx, teacher):
    link = ShowAction(teacher)
    return asyncio.run(link(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0)))).episodes


def test_labels_are_imitated_or_replies_of_a_teacher_that_are_right(context):
    ctx = context("lane")
    answer = ctx.bench.tasks.task("train", 0).answer
    (bare,) = show(ctx, None)
    assert bare.rows[0].segments[-1].text == answer and not bare.reward.judged
    thought = f"The front is near. {answer}"
    (taught,) = show(ctx, pl.Scripted(lambda request: thought))
    assert taught.rows[0].segments[-1].text == thought
    assert show(ctx, pl.Scripted(lambda request: "sing")) == ()

    def fails(request):
        raise pl.Fault("chat-timeout", "it does not answer")

    assert show(ctx, pl.Scripted(fails)) == ()


def test_the_advantage_of_the_catalogue():
    """r = 1, 0, 0, 1: mean 1/2, A in the ratio 1, -1, -1, 1; all equal: 0."""
    credit = build().parts["reinforce"].runnable.learners["policy"].credit

    def advantages(*rewards):
        group = Group(task=SAYING, episodes=tuple(episode((0,), (1, 2), r) for r in rewards))
        examples, _ = credit([group], [[[{}] for _ in rewards]], {})
        return [float(max(np.ravel(x.columns["advantage"]), key=abs)) for x in examples]

    a, b, c, d = advantages(1.0, 0.0, 0.0, 1.0)
    assert a == d == -b == -c and a == pytest.approx(0.5 / (1 / 3) ** 0.5, rel=1e-3)  # deviation with ddof 1
    assert not any(advantages(1.0, 1.0, 1.0))


def test_the_live_exam_counts_games_and_agreement(context):
    ctx = context("lane")
    found = asyncio.run(LaneExam(20)(ctx))
    assert found["unread"] > 0.5 and found["agreement"] < 0.5 and found["wins"] < 0.3
    assert found["wins_of_the_rule"] > 0.6 and 0 < found["wins_at_random"] < 0.6


def test_a_policy_that_says_the_rule_wins_as_the_rule(context, monkeypatch):
    async def rule(self, ctx):
        return {s: pl.toys.expert_action(s) for s in pl.toys.LaneState.every()}

    monkeypatch.setattr(LaneExam, "_actions", rule)
    found = asyncio.run(LaneExam(20)(context("lane")))
    assert found["wins"] == found["wins_of_the_rule"] and found["agreement"] == 1.0 and found["unread"] == 0.0


def test_options():
    alone = build()
    assert list(alone.parts) == ["reinforce"] and alone.parts["reinforce"].model is None
    both = build(teacher=pl.Scripted(lambda request: "x"), samples=4, steps=7)
    assert list(both.parts) == ["imitate", "reinforce"] and both.parts["imitate"].runnable.schedule.steps == 100
    rl = both.parts["reinforce"]
    assert rl.model == pl.Output("imitate") and rl.runnable.schedule.steps == 7 and rl.runnable.collect.links[0].n == 4
    assert list(build(imitate=5).parts) == ["imitate", "reinforce"] and list(embedded(imitate=0).parts) == ["reinforce"]
    assert (
        "play" in embedded().parts["imitate"].runnable.evaluate
        and not embedded(exam=0).parts["reinforce"].runnable.evaluate
    )
    with pytest.raises(UserError, match="drop one of both"):
        build(teacher=pl.Scripted(lambda request: "x"), imitate=0)
    with pytest.raises(UserError, match="imitate"):
        build(imitate=-1)
