"""REFINE-AF: the rule of feedback, the filter of novelty, and who imitates whom."""

import asyncio
import math
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.claims.data import refine_af as claim
from palaestra.recipes.data import refine_af as af
from palaestra.types import Group, Reply, Reward

from tests.recipes.objectives.helpers import near


def test_the_rule():
    """Rew 2, Und .9, Nat .8, Coh .7: -0.046330."""
    assert af.feedback_score(2, 0.9, 0.8, 0.7) == near(-0.046330, 1e-9)


def test_an_instruction_is_novel_below_the_threshold():
    assert af.is_novel([0.69, 0.1]) and not af.is_novel([0.70]) and not af.is_novel([0.1, 0.9]) and af.is_novel([])


def said(*texts):
    """A group whose episodes said these."""
    from palaestra.tasks.oracle import episode_saying

    return Group(task=pl.Task(id="t", answer="3"), episodes=tuple(episode_saying(t) for t in texts))


def judge(ctx, group, reward=None):
    return asyncio.run((reward or claim.rule())(ctx, group))


def totals(ctx, group, reward):
    return [r.total for r in judge(ctx, group, reward)]


def test_qualities_by_programs(context):
    ctx = context("chain")
    group = said("1+2=3\n= 3", "= 3", "= 4", "hm", "x\nx\nx\n= 3", "\x00= 3")
    assert totals(ctx, group, claim.readable) == [1, 1, 1, 1, 0, 0]
    assert totals(ctx, group, claim.states_answer) == [1, 1, 1, 0, 1, 0]
    assert totals(ctx, group, claim.agreement) == near([3 / 6, 3 / 6, 1 / 6, 0, 3 / 6, 0], 1e-12)
    assert totals(ctx, said("= 3", "= 4"), claim.verdict) == [1, 0]
    unknown = replace(said("= 3"), task=pl.Task(id="t"))
    assert totals(ctx, unknown, claim.verdict) == [0.0]  # nobody knows the answer


def test_rewards_are_joined_by_the_rule(context):
    ctx = context("chain")
    right, wrong = judge(ctx, said("= 3", "= 4"))
    assert right.parts == {"rew": 1.0, "und": 1.0, "nat": 1.0, "coh": 0.5}
    assert right.total == near(0.0078 - 0.4421 + 0.3212 + 0.0760 - 0.0274, 1e-9)
    assert right.total - wrong.total == near(0.0078, 1e-9)

    async def two(ctx, group):
        return [Reward(total=2.0) for _ in group.episodes]

    own = judge(ctx, said("= 3", "= 4"), af.AutomaticFeedback(two, two, two, two))
    assert {r.total for r in own} == {af.feedback_score(2, 2, 2, 2)}


def test_a_judge_that_fails_is_a_fault(context):
    async def broken(ctx, group):
        raise pl.Fault("judge", "gone")

    assert isinstance(judge(context("chain"), said("= 3"), replace(claim.rule(), coh=broken))[0], pl.Fault)


def feedback_of(pipeline):
    return pipeline.parts["rl"].runnable.collect.links[1].reward


class YesTo:
    """A judge that is sure of what a question asks with one word in it, and of the opposite otherwise."""

    name, schema = "yes", False

    def __init__(self, word):
        self.word, self.asked = word, []

    def open(self, ctx):
        return self

    async def chat(self, request):
        self.asked.append(request.messages[-1].content)
        p = 0.9 if self.word in self.asked[-1] else 0.2
        return Reply(text="", choices={"Yes": math.log(p), "No": math.log(1 - p)})


def test_a_judge_says_how_good_an_instance_is_and_no_verifier_does(context):
    """p(yes) of each question, by its own words."""
    client = YesTo("natural")
    group = replace(said("a reply"), task=pl.Task(id="t", prompt=(pl.Message(role="user", content="say it"),)))
    (found,) = judge(context("chain"), group, feedback_of(af.build(judge=client)))
    assert found.parts == near({"rew": 0.2, "und": 0.2, "nat": 0.9, "coh": 0.2}, 1e-9)
    assert found.total == near(af.feedback_score(0.2, 0.2, 0.9, 0.2), 1e-9)
    assert len(client.asked) == 4 and all("say it" in a and "a reply" in a for a in client.asked)
    assert not pl.vary(af.build().parts["rl"].runnable).collect.links[1].shadow


def test_models_are_copies_of_the_start_unless_others_are_given():
    parts = af.build().parts
    assert {"author", "judge"} <= set(parts["rl"].runnable.references)
    assert set(parts["sft"].runnable.references) == {"writer", "author"}
    given = af.build(author=YesTo("x"), judge=YesTo("x")).parts
    assert not {"author", "judge"} & set(given["rl"].runnable.references)


def test_a_coin_says_nothing_of_the_instance(context):
    ctx = context("chain")
    found = totals(ctx, said(*["= 3"] * 64), claim.coin)
    assert set(found) == {0.0, 1.0} and 16 < sum(found) < 48
    assert totals(ctx, said(*["= 3"] * 64), claim.coin) == found


class Words:
    """Tasks of these texts, over and over."""

    name, size, test_size = "words", None, None

    def __init__(self, *texts):
        self.texts = texts

    def task(self, split, index):
        text = self.texts[index % len(self.texts)]
        return pl.Task(id=f"{split}-{index}", prompt=(pl.Message(role="user", content=text),))


def draw(ctx, stage, n, state=None):
    return asyncio.run(stage(ctx, ("k",), n, state or {}))


def test_what_is_too_much_alike_is_not_drawn(context):
    """Seven of ten words in their order: .7 is too much alike."""
    ctx = context("chain")
    texts = ("a b c d e f g h i j", "a b c d e f g x y z", "a b c d e f v x y z", "k l m")
    ctx = ctx.with_bench(replace(ctx.bench, tasks=Words(*texts)))
    found, state = draw(ctx, af.NovelInstructions(), 2)
    assert [pl.curriculum.prompt_text(t) for t in found] == [texts[0], texts[2]] and state["dropped"] == 1
    more, state = draw(ctx, af.NovelInstructions(), 2, state)
    assert (
        pl.curriculum.prompt_text(more[0]) == texts[3] and state["dropped"] == 1 + 16
    )  # then the small set starts over
    assert len(draw(ctx, af.NovelInstructions(most=2.0), 4)[0]) == 4


def test_a_model_makes_up_instructions_from_eight(context):
    asked = []

    def fn(request):
        asked.append(request.messages[-1].content)
        return f"\n- do thing number {len(asked)} {'x y z w' * len(asked)}\nand more"

    found, _ = draw(context("chain"), af.NovelInstructions(client=pl.Scripted(fn)), 2)
    assert all(pl.curriculum.prompt_text(t).startswith("do thing") and t.answer is None for t in found)
    assert asked[0].count("\n- ") == 8 and len({t.id for t in found}) == 2


@pytest.mark.parametrize(
    ("reply", "instruction"),
    [
        ("Name a river.", "Name a river."),
        ("\n 9. Name a river.\n10. x", "Name a river."),
        ('* "Hi"', "Hi"),
        (" \n", ""),
    ],
)
def test_an_instruction_is_the_first_line_that_says_something(reply, instruction):
    assert af.read_instruction(reply) == instruction


def test_an_author_that_writes_nothing_is_asked_again(context):
    said = []

    def fn(request):
        said.append(request)
        return "" if len(said) <= 3 else f"do thing {len(said)}"

    (task,), state = draw(context("chain"), af.NovelInstructions(client=pl.Scripted(fn), tries=8), 1)
    assert "do thing" in pl.curriculum.prompt_text(task) and state["dropped"] >= 1
    never = af.NovelInstructions(client=pl.Scripted(lambda request: ""), tries=2)
    with pytest.raises(pl.Fault, match="the author wrote no instruction in 2 tries"):
        draw(context("chain"), never, 1)


@pytest.mark.parametrize(
    ("keep", "muted"),
    [(af.KeepInstances(), [False, False, True, True]), (claim.KeepStated(), [False, True, True, True])],
)
def test_what_is_empty_or_cut_is_not_imitated(context, keep, muted):
    group = said("it is \\boxed{3}", "hm", " ")
    cut = replace(group.episodes[0], status="truncated:tokens")
    group = replace(group, episodes=(*group.episodes, cut))
    kept = asyncio.run(keep(context("chain"), ("k",), group))
    assert [e.muted for e in kept.episodes] == muted


def test_the_last_stage_imitates_the_writer_and_begins_fresh(context, small):
    built = af.build()
    assert list(built.parts) == ["rl", "sft"]
    assert built.parts["sft"].model is None and built.parts["sft"].models == {"writer": pl.Output("rl")}
    recipe, ctx = small(built.parts["sft"].runnable), context("chain")
    from palaestra.run.driver import prepare

    prepare(recipe, ctx)
    group = asyncio.run(recipe.collect(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0))))
    (row,) = group.episodes[0].rows
    assert all(s.policy == "policy" and s.version is None for s in row.segments if s.trained)
    examples, _ = recipe.learners["policy"].credit(
        [replace(group, episodes=(replace(group.episodes[0], muted=False),))], [[[{}]]], {}
    )
    assert len(examples) == 1
