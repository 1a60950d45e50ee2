"""RLBFF: log-odds, principles quoted and shared, verdicts that are not the policy's."""

import asyncio
import math

import numpy as np
import pytest
from palaestra.errors import Fault
from palaestra.judges.principles import (
    PRINCIPLE_QUESTIONS,
    Entailed,
    Principled,
    annotator_consensus,
    has_agreement,
    has_quote,
    label_verdict,
    partial_ratio,
)
from palaestra.judges.prompt import defuse
from palaestra.judges.reading import Odds
from palaestra.recipes.rewards import rlbff
from palaestra.rewards.labels import Also
from palaestra.settings.overrides import make_smallest
from palaestra.types import Reward, Row, Segment, Task, stage
from palaestra.values import override

from tests.recipes.rewards.helpers import steps
from tests.rewards.labelled import group, reward_of, said


def test_rlbff_log_odds():
    value = Odds(form="log-odds").value
    assert value(math.log(0.8), math.log(0.15)) == pytest.approx(1.673976, abs=1e-6)
    assert value(math.log(0.15), math.log(0.8)) == pytest.approx(-1.673976, abs=1e-6)
    assert value(math.log(0.3), math.log(0.3)) == 0
    assert value(0.0, -99.0) == 10 and value(-99.0, 0.0) == -10  # heavy tails are cut


def test_rlbff_keeps_what_is_quoted_and_shared():
    assert not has_quote(60) and has_quote(61)
    assert not has_agreement((0.85, 0.79)) and has_agreement((0.85, 0.81)) and not has_agreement(())
    assert (
        partial_ratio("short", "it is short.") == 100 and partial_ratio("", "x") == 0 and partial_ratio("", "") == 100
    )
    assert partial_ratio("abcd", "abxd") == pytest.approx(75.0)
    assert partial_ratio("zz", "abc") == 0 < partial_ratio("az", "zbc")
    for quote, text in (("ebb", "ded"), ("ded", "ebb")):  # of equal length: either is the window, as in rapidfuzz 3
        assert partial_ratio(quote, text) == pytest.approx(50.0)
    near, far = np.array([1.0, 0.1]), np.array([0.1, 1.0])
    three = [[(near, True), (far, True)], [(near, True)], [(near, True), (far, False)]]
    assert annotator_consensus(three) == [[True, False], [True], [True, False]]
    assert annotator_consensus([[(near, True)], [(near, False)]]) == [
        [False],
        [False],
    ]  # the same words, another verdict
    assert annotator_consensus([[(near, True)]]) == [[False]]


def test_rlbff_policy_does_not_see_the_principle(context):
    ctx = context()
    recipe = override(make_smallest(rlbff.embedded()), "collect.links.0.n", 4)
    found = steps(recipe, ctx, 2)
    for g in ctx.seen:
        name, words = g.task.meta["asked"], g.task.meta["principle"]
        assert (name, words) in PRINCIPLE_QUESTIONS and not any(words in m.content for m in g.task.prompt)
        for e in g.episodes:
            policy, verdict = e.rows
            heard = "".join(s.text for s in verdict.segments)
            assert words in heard and words not in "".join(s.text for s in policy.segments)
            assert verdict.segments[-1].text == label_verdict(g.task, e)
            assert verdict.segments[-1].policy == "reward" and defuse(e.text) in heard
            assert abs(e.total) <= 10 and e.total == e.reward.parts["entailment"]
    assert found[-1]["reward/nll"] < found[0]["reward/nll"]


def test_rlbff_rows_of_the_verdict_are_not_the_policys():
    row = rlbff.embedded().collect.links[4]
    assert isinstance(row, Also)
    spoken = Segment(ids=(5,), author="demonstration", policy="reward", trained=True)
    assert not Row(segments=(spoken,)).view("policy").trained_T.any()


@stage
class Yes:
    """Says a number for each principle; fails for one."""

    async def __call__(self, ctx, group):
        words = group.task.meta["principle"]
        return [
            Fault("chat-500") if words == "in form?" and "x" in e.text else Reward(total=len(words))
            for e in group.episodes
        ]


def test_rlbff_several_principles_are_averaged(context):
    good, bad = reward_of(Entailed(Yes()), None, "= 4", "x")
    assert good.total == pytest.approx(np.mean([len(w) for _, w in PRINCIPLE_QUESTIONS])) and good.parts["right"] == 6
    assert isinstance(bad, Fault)
    asked = [asyncio.run(Principled()(None, (0, i), group(name=f"t/{i}"))).task.meta["asked"] for i in range(200)]
    assert min(asked.count(n) for n, _ in PRINCIPLE_QUESTIONS) > 30
    same = {asyncio.run(Principled()(None, (0,), group(name=f"t/{i}"))).task.meta["asked"] for i in range(40)}
    assert same == {n for n, _ in PRINCIPLE_QUESTIONS}  # of one key, by task
    task = Task(id="a", meta={"asked": "right"})
    labels = ({"right": 0.5}, {"right": 0.51}, {"right": 1.0, "label/right": 0.0}, {"right": 0.0, "label/right": 1.0})
    assert [label_verdict(task, said("= 4", 1.0, **parts)) for parts in labels] == ["No", "Yes", "No", "Yes"]
    with pytest.raises(Fault, match="no label 'right'"):
        label_verdict(Task(id="a", meta={"asked": "right"}), said("= 4", 1.0))


def test_rlbff_learns_the_verdicts_of_the_data(context):
    ctx, recipe = context(), rlbff.rate()
    ctx.reference("reward", "policy")
    for right, verdict in ((True, "Yes"), (0, "No")):
        meta = {"response": "= 4", "right": right, "principle": "Is it brief?"}
        (shown,) = asyncio.run(recipe.collect(ctx, ("k",), group(meta=meta))).episodes
        heard, said_last = shown.rows[-1].segments[-2].text, shown.rows[-1].segments[-1]
        assert said_last.text == verdict and said_last.policy == "reward"
        assert "Is it brief?" in "".join(s.text for s in shown.rows[-1].segments) and heard != verdict
    assert [type(x).__name__ for x in rlbff.build().parts["rl"].runnable.collect.links] == ["Sample", "Score"]
    named = rlbff.build(("Is it kind?",)).parts["rl"].runnable.collect.links[1]
    assert named.questions == (("Is it kind?", "Is it kind?"),)
