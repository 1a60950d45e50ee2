"""Probes: pass rates of today's policy before a draw, and what they order."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.curriculum import difficulty
from palaestra.curriculum.difficulty import EasyToHard, ProbedArms, inversion_rate, learnable, pass_rates
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.values import vary

TWO = "knights(d=1)+knights(d=6)"


def test_inversions_of_the_catalogue():
    """a b c d become b a d c: 2 of 6 pairs."""
    assert inversion_rate([0, 1, 2, 3], [1, 0, 3, 2]) == pytest.approx(0.333333, abs=1e-6)
    assert inversion_rate([0, 1, 2], [2, 1, 0]) == 1.0 and inversion_rate([0, 1], [3, 3]) == 0.0
    assert inversion_rate([1], [2]) == inversion_rate([], []) == 0.0


def test_pass_rates_are_those_of_attempts(context):
    ctx = context(TWO)
    tasks = [ctx.bench.tasks.task("train", i) for i in range(3)]
    found = asyncio.run(pass_rates(ctx, ("k",), tasks, Sample(n=4)))
    assert found.shape == (3,) and set(found * 4) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert (asyncio.run(pass_rates(ctx, ("k",), tasks, Sample(n=4))) == found).all()
    assert learnable(np.array([0.0, 0.5, 1.0])).tolist() == [0.0, 0.25, 0.0]


def test_probed_arms_are_drawn_by_what_the_probe_found(context, monkeypatch):
    ctx, asked = context(TWO), []

    async def rates(ctx, key, tasks, sample):
        asked.append([t.id for t in tasks])
        return np.array([0.5 if t.domain.endswith("6)") else 1.0 for t in tasks])

    monkeypatch.setattr(difficulty, "pass_rates", rates)
    draw, state = ProbedArms(every=2, tasks=3), {}
    for k in range(3):
        tasks, state = asyncio.run(draw(ctx, (k,), 4, state))
        assert {t.domain for t in tasks} == {"knights(d=6)"}
    assert len(asked) == 2 and [len(a) for a in asked] == [6, 6] and not set(asked[0]) & set(asked[1])
    assert state["weights"] == [0.0, 0.25] and state["given"] == {"knights(d=1)": 6, "knights(d=6)": 18}
    assert decode(*encode(state)) == state


def test_an_arm_of_solved_and_hopeless_tasks_has_nothing_to_teach(context, monkeypatch):
    async def rates(ctx, key, tasks, sample):
        return np.array([i % 2 if t.domain.endswith("1)") else 0.25 for i, t in enumerate(tasks)])

    monkeypatch.setattr(difficulty, "pass_rates", rates)
    tasks, state = asyncio.run(ProbedArms(tasks=2)(context(TWO), (0,), 20, {}))
    assert state["weights"] == [0.0, 0.1875] and {t.domain for t in tasks} == {"knights(d=6)"}


def test_arms_that_weigh_nothing_are_drawn_alike(context, monkeypatch):
    async def rates(ctx, key, tasks, sample):
        return np.where(np.arange(len(tasks)) % 2 == 0, np.nan, 1.0)

    monkeypatch.setattr(difficulty, "pass_rates", rates)
    tasks, state = asyncio.run(ProbedArms(tasks=2)(context(TWO), (0,), 40, {}))
    assert state["weights"] == [0.0, 0.0] and len({t.domain for t in tasks}) == 2


def test_a_step_awaits_its_draw_and_counts_what_it_samples(context, small):
    ctx = context(TWO)
    recipe = small(vary(pl.recipe("grpo"), draw=ProbedArms(every=1, tasks=2, sample=Sample(n=2))))
    state, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert metrics["episodes"] == 8 and state["draw"]["draws"] == 1 and len(state["draw"]["weights"]) == 2
    assert ctx.sampled_tokens > metrics["length"] * 8, "the probes too"


def test_easy_to_hard_without_a_probe(context):
    ctx, draw = context("chain"), EasyToHard(tasks=8, batches=2, difficulty=lambda t: -len(t.prompt[0].content))
    tasks, state = asyncio.run(draw(ctx, (0,), 5, {}))
    more, state = asyncio.run(draw(ctx, (1,), 5, state))
    lengths = [-len(t.prompt[0].content) for t in (*tasks, *more)]
    assert lengths[:8] == sorted(lengths[:8]) and (more[3].id, more[4].id) == (tasks[0].id, tasks[1].id)
    assert state["cursor"] == 10 and decode(*encode(state)) == state
    with pytest.raises(UserError, match="too few"):
        EasyToHard(tasks=2, batches=3)


def test_a_part_is_sorted_again_before_it_begins(context, monkeypatch):
    """Six tasks in two parts; the policy of later finds the second part the other way round, but for a tie."""
    ctx, asked = context("chain"), []
    rate = [dict(enumerate((0.9, 0.1, 0.8, 0.2, 0.7, 0.3))), {1: 0.3, 3: 0.1, 5: 0.1}]

    async def rates(ctx, key, tasks, sample):
        numbers = [next(i for i in range(6) if ctx.bench.tasks.task("train", i).id == t.id) for t in tasks]
        asked.append(numbers)
        return np.array([rate[len(asked) - 1][i] for i in numbers])

    monkeypatch.setattr(difficulty, "pass_rates", rates)
    draw, state, seen = EasyToHard(tasks=6, batches=2, probe=Sample(n=4)), {}, []
    said = []
    monkeypatch.setattr(ctx, "say", said.append)
    for k in range(3):
        tasks, state = asyncio.run(draw(ctx, (k,), 2, state))
        seen += [next(i for i in range(6) if ctx.bench.tasks.task("train", i).id == t.id) for t in tasks]
    assert asked == [[0, 1, 2, 3, 4, 5], [5, 3, 1]]
    assert said[0].startswith("note: 6 tasks are tried 4 times each") and "0.667 of the pairs" in said[1]
    assert seen == [0, 2, 4, 1, 5, 3], "5 and 3 are equally hard now, and keep their order"
    assert state["inversions"] == [pytest.approx(2 / 3)]
    assert decode(*encode(state)) == state
