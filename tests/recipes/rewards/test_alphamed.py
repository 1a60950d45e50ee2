"""AlphaMed: one rule for the letter in the box, orders of options, and levels of difficulty."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.context import Bench
from palaestra.credit.links import Center, Scale, chain
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import alphamed
from palaestra.tasks.mixture import Mixture
from palaestra.toys.ladder import Add
from palaestra.toys.variants import Variants
from palaestra.values import vary

from tests.rewards.texts import asked, totals

CASE = asked("Fever and rash?", 1, options=("flu", "aspirin", "measles", "none of the above"))


def test_alphamed_reference_values():
    reward = alphamed.build().collect.links[1].reward
    texts = [
        "\\boxed{B}",
        "\\boxed{B. aspirin}",
        "\\boxed{A or B}",
        "The answer is B",
        "\\boxed{A} ... \\boxed{B}",
        "",
        "\\boxed{E}",
    ]
    assert totals(reward, CASE, *texts) == [1, 1, 0, 0, 1, 0, 0]
    group = [[{"reward": float(i < 2)} for i in range(8)]]
    found = explain(vary(alphamed.build(), credit=chain(Center("group"), Scale("group", ddof=0))), group)
    assert found["advantages"][0] == pytest.approx([1.732051] * 2 + [-0.577350] * 6, abs=1e-5)


@given(st.integers(0, 1000))
def test_alphamed_the_order_of_options_changes_no_reward(seed):
    reward = alphamed.build().collect.links[1].reward
    task = alphamed.show_options(CASE, ("k", seed))
    place = task.meta["order"].index(1)
    assert f"{'ABCD'[place]}. aspirin" in task.prompt[-1].content
    found = totals(reward, task, *(f"\\boxed{{{x}}}" for x in "ABCD"))
    assert found == [float(i == place) for i in range(4)]
    assert sorted(task.meta["order"]) == [0, 1, 2, 3]


def test_alphamed_draws_the_wanted_levels_in_fresh_orders():
    ctx = SimpleNamespace(
        bench=Bench(name="b", tasks=Mixture(tuple((Add(d, f"a{d}"), 1) for d in (1, 2, 4))), world=None), seed=0
    )
    tasks, state = alphamed.build((1, 4), "d").draw(ctx, ("a",), 12, {})
    assert {t.meta["d"] for t in tasks} == {1, 4} and len(tasks) == 12 and state["cursor"] >= 12
    with pytest.raises(UserError, match="too few tasks"):
        alphamed.build((9,), "d").draw(ctx, ("a",), 1, {})
    orders = {tuple(alphamed.show_options(CASE, ("epoch", i)).meta["order"]) for i in range(40)}
    assert len(orders) > 10 and alphamed.show_options(asked(), ()) == asked()
    ctx.bench = Bench(name="c", tasks=Variants(), world=None)
    with pytest.raises(UserError, match="no column 'level'"):
        alphamed.build((1,)).draw(ctx, ("a",), 1, {})


def test_alphamed_difficulty_counts_errors(context):
    ctx = context(task="bool")
    found = asyncio.run(alphamed.difficulty(ctx, 3, n=5))
    assert len(found) == 3 and all(0 <= level <= 5 for level in found.values())
