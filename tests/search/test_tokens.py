"""A budget of generated tokens is exact, and who gets how much of it depends on the order of requests alone."""

import asyncio

import palaestra as pl
import pytest
from palaestra.search.tokens import MeteredEngine, TokenBudget
from palaestra.types import Sampling

from tests.rows import every
from tests.search.fake import KEY, problem_of


async def requests(budget, wanted, used, order):
    """Requests of so many tokens, of which each uses some; they end in an order of their own. What each may have."""
    allowed, ends = {}, {i: asyncio.Event() for i in range(len(wanted))}

    async def one(i):
        try:
            allowed[i] = await budget.take(wanted[i])
        except pl.Fault as fault:
            allowed[i] = fault.cause
            return
        await ends[i].wait()
        budget.settle(allowed[i], min(used[i], allowed[i]))

    asked = [asyncio.create_task(one(i)) for i in range(len(wanted))]
    for i in order:
        for _ in range(5):
            await asyncio.sleep(0)
        ends[i].set()
    await asyncio.gather(*asked)
    return [allowed[i] for i in range(len(wanted))]


@every("order", [(0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_who_gets_how_much_does_not_depend_on_who_ends_first(order):
    """Of 30: 10 and 10 are held, 15 waits until the others gave back 5 and 8; then 30 - 5 - 2 - 15 = 8 are left."""
    budget = TokenBudget(30)
    found = asyncio.run(requests(budget, [10, 10, 15, 9], [5, 2, 15, 9], order))
    assert found == [10, 10, 15, 8]
    assert (budget.spent, budget.held, budget.left) == (30, 0, 0)


def test_a_small_request_does_not_overtake_a_large_one():
    """5 of 10 are held; 8 waits, and so does the 2 behind it, though 2 are there."""
    budget = TokenBudget(10)
    assert asyncio.run(requests(budget, [5, 8, 2], [5, 5, 2], (0, 1, 2))) == [5, 5, "budget"]


def test_a_budget_that_is_spent_is_a_fault_and_none_is_refused():
    budget = TokenBudget(4)
    assert asyncio.run(requests(budget, [4, 1], [4, 1], (0, 1))) == [4, "budget"]
    with pytest.raises(pl.UserError, match="at least 1 token, not 0"):
        TokenBudget(0)


def test_keys_of_nobody_pass_and_are_counted(context):
    problem, engine = problem_of(context(), lambda begun, key: "= 2", 3)
    metered = problem.ctx.engines["policy"]

    async def both():
        own = await metered.generate((), Sampling(max_tokens=9), (*KEY, "x"))
        return own, await metered.generate((), Sampling(max_tokens=9), ("judge",))

    own, other = asyncio.run(both())
    assert (len(own.ids), len(other.ids), metered.uncounted, problem.tokens.spent) == (3, 4, 4, 3)
    assert engine.sampled_tokens == 7


@every("most", [1, 3, 7, 30])
def test_what_is_kept_is_cut_as_it_would_have_been_sampled(context, most):
    """A completion that was sampled with a larger limit stands for one with a smaller limit, to the bit."""
    ctx = context()
    prompt = ctx.engine("policy").dialect.encode_text("1+1")
    sampling = Sampling(temperature=1.5, max_tokens=30)

    def said(engine, limits):
        engine.budgets[KEY] = TokenBudget(10**6)

        async def run():
            return [await engine.generate(prompt, Sampling(temperature=1.5, max_tokens=n), (*KEY, "a")) for n in limits]

        return asyncio.run(run())

    plain, keeping = MeteredEngine(ctx.engine("policy")), MeteredEngine(ctx.engine("policy"), keep=True)
    whole, cut = said(keeping, (sampling.max_tokens, most))
    assert cut == said(plain, (most,))[0] and whole == said(plain, (30,))[0]
    assert keeping.budgets[KEY].spent == len(whole.ids) + len(cut.ids)
    sampled = ctx.engine("policy").sampled_tokens
    assert said(keeping, (most, 30)) == [cut, whole] and ctx.engine("policy").sampled_tokens == sampled


def test_what_a_limit_cut_is_sampled_anew_where_more_is_allowed(context):
    _, engine = problem_of(context(), lambda begun, key: "1=1\n= 2", 10**6)
    keeping = MeteredEngine(engine, keep=True)
    keeping.budgets[KEY] = TokenBudget(100)

    async def run():
        return [await keeping.generate((), Sampling(max_tokens=n), (*KEY, "a")) for n in (3, 8, 8)]

    assert [c.text for c in asyncio.run(run())] == ["1=1", "1=1\n= 2", "1=1\n= 2"]
    assert len(engine.calls) == 2
