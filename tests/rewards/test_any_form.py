"""A part that reads where a reply answers reads every form in which replies answer."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.recipes.data import adcl_egsr, ampo
from palaestra.recipes.rewards import l2t, rlpr
from palaestra.rewards.intrinsic import answer_opening, reasoning_prefix
from palaestra.rollout.recorded import recorded_episode
from palaestra.types import Group, Message, Task
from palaestra.verifiers.answers.place import answer_place

FORMS = {
    "\\boxed{": "Add the tens: 30 + 12.\nSo it is $\\boxed{42}$.",
    "<answer>": "<think>\n30 + 12\n</think>\n<answer>42</answer>",
    "The answer is ": "30 + 12 makes it. The answer is 42.",
    "#### ": "30 + 12\n#### 42",
    "= ": "30 + 12\n= 42",
}
forms = pytest.mark.parametrize("opening", FORMS)


def a_group(ctx, *texts, prompt="What is 17 + 25?"):
    task = Task(id="0", prompt=(Message(role="user", content=prompt),), answer="42")
    episodes = (replace(recorded_episode(ctx, "policy", task.prompt, t, 0.0), reward=None) for t in texts)
    return Group(task=task, episodes=tuple(episodes))


@forms
def test_the_cut_stands_right_before_the_answer(opening):
    text = FORMS[opening]
    start, at = answer_place(text)
    assert text[start:at] == opening and text[at:].startswith("42")
    assert reasoning_prefix(text) == text[:at]


def test_a_box_in_a_thought_or_left_open_is_no_answer():
    assert answer_place("<think>\\boxed{4}</think> I do not know.") is None
    assert answer_place("so \\boxed{4") is None and answer_place("") is None
    assert reasoning_prefix("\n= 3x\n= 6\nso \\boxed{6}").endswith("boxed{")


@forms
def test_a_reward_by_probability_pays_every_form(context, opening):
    ctx = context()
    ctx.reference("ref", "policy")
    group = a_group(ctx, FORMS[opening], "no answer at all")
    for recipe in (rlpr.build(), rlpr.build(baseline="")):
        stated, none = asyncio.run(recipe.collect.links[1].reward(ctx, group))
        assert stated.parts["answer"] > 0 and stated.parts["format"] == 1
        assert none.parts["answer"] == none.parts["format"] == 0
    (swap,) = [link for link in ampo.build().collect.links if hasattr(link, "score")]
    comprehension = asyncio.run(swap.score(ctx, group))
    assert comprehension[0].parts["answer"] > 0


@forms
def test_gains_are_measured_behind_the_form_of_the_replies(context, opening):
    ctx = context()
    group = a_group(ctx, FORMS[opening], FORMS[opening], "no answer at all")
    assert answer_opening(ctx.bench.tasks, group) == opening
    reward = l2t.build(beta=0.0).collect.links[1].reward
    named = replace(reward, opening=opening)
    totals = [[r.total for r in asyncio.run(part(ctx, group))] for part in (reward, named)]
    assert totals[0] == pytest.approx(totals[1])


def test_an_unstated_answer_is_opened_as_the_prompt_asks(context):
    ctx = context()
    bench = pl.Bench("mine", tasks=object(), world=ctx.bench.world)
    asked = {"Put it in \\boxed{}.": "\\boxed{", "Use <answer> tags.": "<answer>", "17 + 25?": "The answer is "}
    for prompt, opening in asked.items():
        assert answer_opening(bench.tasks, a_group(ctx, "none", prompt=prompt)) == opening
    assert answer_opening(ctx.bench.tasks, a_group(ctx, "none")) == "= "


@forms
def test_a_vote_and_the_pay_for_form_read_every_form(context, opening):
    group = a_group(context(), FORMS[opening], FORMS[opening], "no answer at all")
    assert [r.total for r in asyncio.run(pl.rewards.Majority()(None, group))] == [1, 1, 0]
    form = pl.rewards.AccuracyAndFormat(0.1, accuracy=0.9)
    paid = [form.add(pl.Reward(total=1.0), pl.response_text(e)).parts["format"] for e in group.episodes]
    assert paid == [1, 1, 0]


@forms
def test_a_guided_answer_that_only_quotes_shows_no_work(opening):
    text = FORMS[opening]
    closing = {"\\boxed{": "}", "<answer>": "</answer>"}.get(opening, "")
    assert adcl_egsr.shows_work(text)
    assert not adcl_egsr.shows_work(f"{opening}42{closing}") and not adcl_egsr.shows_work("42")
    assert not adcl_egsr.shows_work("The final answer is: $\\boxed{42}$")
