"""Critiques of steps: the oracle and its noise, and a model whose words are read strictly."""

import asyncio

import numpy as np
import pytest
from palaestra.errors import Fault
from palaestra.rewards.critic import Critique, ModelCritic, Oracle, read_steps
from palaestra.services.chat.endpoint import Endpoint
from palaestra.types import Group

from tests.chat_server import serving
from tests.rollout.helpers import answer


def test_the_oracle_finds_the_first_wrong_line(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    work = ctx.bench.tasks.steps(task)
    lines = [*work[:-1], work[-1] + "1", "= 3"]
    judge = lambda critic, key=(0,): asyncio.run(critic(ctx, key, task, lines))
    assert judge(Oracle()) == {len(work) - 1}
    assert judge(Oracle(noise=1.0)) == set(range(len(lines))) - {len(work) - 1}
    turned = [judge(Oracle(noise=0.3), (i,)) ^ {len(work) - 1} for i in range(300)]
    assert np.mean([len(t) for t in turned]) == pytest.approx(0.3 * len(lines), rel=0.2)


def test_every_critique_has_its_own_noise(context):
    ctx = context()
    group = Group(task=ctx.bench.tasks.task("train", 0), episodes=(answer(ctx, "1\n2\n3\n= 2"),) * 2)
    found = asyncio.run(Critique(Oracle(noise=0.5), n=8)(ctx, (0,), group)).episodes
    assert all(len(set(e.facts["critiques"])) > 1 for e in found)
    assert found[0].facts["critiques"] != found[1].facts["critiques"]


def test_the_oracle_of_a_mixture_is_the_tasks_own(context):
    ctx = context("chain+add")
    task = next(t for i in range(20) if (t := ctx.bench.tasks.task("train", i)).domain == "add")
    lines = [*task.meta["steps"], f"= {task.answer}"]
    assert asyncio.run(Oracle()(ctx, (0,), task, lines)) == frozenset()
    assert asyncio.run(Oracle()(ctx, (0,), task, ["1+1=3", *lines[1:]])) == {0}


def test_what_a_model_critic_says_is_read_strictly():
    assert read_steps("I see.\nwrong steps: 2, 4", 4) == {1, 3}
    assert read_steps("Wrong step: 1.", 3) == {0}
    assert read_steps("wrong steps: none", 3) == read_steps("all is well", 3) == read_steps("", 3) == frozenset()
    assert read_steps("wrong steps: 0, 3, 9", 3) == {2}  # the others do not exist


def test_a_model_critic_and_a_broken_one(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    group = Group(task=task, episodes=(answer(ctx, "1+2=3\n= 2"),))
    found = asyncio.run(Critique(ModelCritic(max_tokens=4), n=2)(ctx, (0,), group)).episodes[0]
    assert len(found.facts["critiques"]) == 2 and len(found.facts["step_ends"]) == 2
    assert found.rows == group.episodes[0].rows  # the critic's words are not in the context
    broken = asyncio.run(Critique(Broken(), n=2)(ctx, (0,), group)).episodes[0]
    assert broken.status == "error:critic" and "critiques" not in broken.facts


def test_an_endpoint_is_asked_once_a_critique(context):
    ctx = context()
    group = Group(task=ctx.bench.tasks.task("train", 0), episodes=(answer(ctx, "1+2=3\n= 2"),))
    with serving(lambda body: "The first line.\nwrong steps: 1") as (book, url):
        critic = ModelCritic(Endpoint(url=url, model="m"))
        found = asyncio.run(Critique(critic, n=2)(ctx, (0,), group)).episodes[0]
    assert found.facts["critiques"] == ((0,), (0,))
    asked = [body["messages"][0]["content"] for body in book.seen]
    assert len(asked) == 2 and all("1. 1+2=3\n2. = 2" in text for text in asked)
    assert len({body["seed"] for body in book.seen}) == 2


class Broken:
    async def __call__(self, ctx, key, task, lines):
        raise Fault("critic", "no answer")
