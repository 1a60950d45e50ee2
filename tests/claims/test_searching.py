"""Demonstrations of searches, and the placebos of claims about them."""

import asyncio

import pytest
from palaestra.claims.agents.research import Elsewhere, TrainResults
from palaestra.claims.searching import DemonstrateSearch, TellSearches
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample, Score
from palaestra.types import Group


def group(ctx, index=0):
    return Group(task=ctx.bench.tasks.task("train", index))


def shown(ctx, index, hasty):
    (e,) = asyncio.run(DemonstrateSearch(hasty)(ctx, ("k", index), group(ctx, index))).episodes
    return e, [s.text.removesuffix("<|end|>") for s in e.rows[0].segments if s.trained]


def test_demonstrations_are_the_oracles_or_answer_too_early(context):
    ctx, right = context("wiki-2"), []
    for i in range(30):
        task = group(ctx, i).task
        e, said = shown(ctx, i, 0.0)
        *searches, answer = said
        assert len(searches) <= 2 and answer == f"<answer>{task.answer}</answer>"
        assert all(s.startswith("<search>") for s in searches)
        tool = [s for s in e.rows[0].segments if s.author == "environment"]
        assert tool and not any(s.trained for s in tool)
        said = shown(ctx, i, 0.4)[1]
        right.append(said[-1] == f"<answer>{task.answer}</answer>")
        assert right[-1] or said[-1] == f"<answer>{task.meta['path'][len(said) - 1]}</answer>"
    assert 0.1 < sum(right) / 30 < 0.7
    assert shown(ctx, 0, 1.0)[1] == [f"<answer>{group(ctx).task.meta['path'][0]}</answer>"]
    with pytest.raises(UserError, match="searches"):
        shown(context("hop"), 0, 0.0)


@pytest.mark.parametrize("where", ["retrieved", "shuffled"])
def test_arms_in_other_worlds(context, where):
    ctx = context("wiki-2")
    found = asyncio.run(Elsewhere(Sample(n=2, max_tokens=4), where)(ctx, ("k",), group(ctx)))
    texts = ["".join(s.text for s in e.rows[0].segments if s.author == "environment") for e in found.episodes]
    first = group(ctx).task.meta["gold"][0].replace("/", ": ").split(": ")
    if where == "retrieved":  # the pages that the question itself finds stand below it, before the policy speaks
        assert all(f"{first[0]}: {first[1]} of {first[0]} is" in t.split("<|assistant|>")[0] for t in texts)
        assert all(e.facts["turns"] <= 2 and e.facts["coverage"][0] >= 0.5 for e in found.episodes)
    else:
        world = ctx.bench.world
        assert all(e.facts["turns"] <= world.turns for e in found.episodes)
    with pytest.raises(UserError, match="searches"):
        asyncio.run(Elsewhere(Sample(n=1), where)(context("hop"), ("k",), group(context("hop"))))


def test_without_a_mask_results_are_trained_and_the_question_is_not(context):
    ctx = context("wiki-2")
    sampled = asyncio.run(Sample(n=2, max_tokens=6)(ctx, ("k",), group(ctx)))
    scored = asyncio.run(TellSearches()(ctx, ("k",), asyncio.run(Score()(ctx, ("k",), sampled))))
    for before, e in zip(scored.episodes, asyncio.run(TrainResults()(ctx, ("k",), scored)).episodes, strict=True):
        told = before.reward.parts
        assert told["searches"] == before.facts["calls"] and told["malformed"] == before.facts["malformed"]
        for old, s in zip(before.rows[0].segments, e.rows[0].segments, strict=True):
            assert s.trained == (old.trained or s.turn > 0) and s.ids == old.ids
        assert e.rows[0].view("policy").trained_T.sum() > before.rows[0].view("policy").trained_T.sum()
