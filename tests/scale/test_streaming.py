"""Groups that are learned from as they come: the same gradient, each row once, and what is no one sum is refused."""

import asyncio

import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.systems import asyncflow
from palaestra.run.driver import prepare
from palaestra.scale.refusals import refuse
from palaestra.scale.streaming import STREAMS, TransferQueue
from palaestra.step import start, step
from palaestra.update import Plain


def steps(context, recipe, n=2, seed=3):
    """Metrics of each step, and the weights after the last."""
    ctx, logged = context(seed=seed), []

    async def go():
        state = start(seed)
        for _ in range(n):
            state, metrics = await step(recipe, ctx, state)
            logged.append(metrics)

    prepare(recipe, ctx)
    asyncio.run(go())
    return logged, [p.detach().clone() for p in ctx.model("policy").trainable()]


def streaming(**objective):
    recipe = pl.vary(asyncflow.build(lag=0, groups=3), collect=pl.links(pl.Sample(n=4), pl.Score()))
    return pl.vary(recipe, objective=pl.Clipped(**objective)) if objective else recipe


@pytest.mark.parametrize("objective", [{}, {"reduce": "tokens"}, {"reduce": "constant", "length": 20}])
def test_gradients_that_come_one_by_one_are_that_of_the_batch(context, objective):
    """The same samples, learned from group by group and at once: losses, norms and weights agree to rounding."""
    recipe = streaming(**objective)
    streamed, one = steps(context, recipe)
    whole, other = steps(context, pl.vary(recipe, update=Plain()))
    for a, b in zip(streamed, whole, strict=True):
        assert a["streamed"] == pytest.approx(2 / 3) and "streamed" not in b
        for name in ("loss", "grad_norm", "ratio", "clipped"):
            assert a[name] == pytest.approx(b[name], rel=1e-4, abs=1e-6), name
        assert a["grad_norm"] > 0
    # Adam divides by the size of a gradient, so that single weights whose gradients are rounding differ by more
    _, first = steps(context, recipe, n=0)
    far = lambda to, since: sum(float((x - y).square().sum()) for x, y in zip(to, since, strict=True)) ** 0.5
    assert far(one, other) < 1e-3 * far(other, first)


def test_credit_that_compares_groups_is_learned_from_as_a_whole(context):
    """The advantages of the batch are not those of a group alone, so nothing of the way counts."""
    recipe = pl.vary(streaming(), credit=pl.chain(pl.Center("batch")))
    streamed, one = steps(context, recipe, n=1)
    whole, other = steps(context, pl.vary(recipe, update=Plain()), n=1)
    assert streamed[0]["streamed"] == 0 and streamed[0]["grad_norm"] == whole[0]["grad_norm"]
    assert all(map(torch.equal, one, other))


def test_gradients_of_a_step_that_failed_are_forgotten(context):
    """What was summed before the failure does not move the weights of the next step."""
    recipe = streaming()
    update, ctx = recipe.learners["policy"].update, context(seed=3)
    prepare(recipe, ctx)
    module, grads = ctx.model("policy").module, []
    groups = asyncio.run(recipe_groups(recipe, ctx))
    for n in (0, 1):
        update.begin(At(ctx, n), "policy", recipe.learners["policy"], groups, lambda: [])
        grads.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
    assert STREAMS[module].step == 1 and all(map(torch.equal, *grads))


class At:
    """A context at another step."""

    def __init__(self, ctx, step):
        self.ctx, self.step = ctx, step

    def __getattr__(self, name):
        return getattr(self.ctx, name)


async def recipe_groups(recipe, ctx):
    tasks, _ = recipe.draw(ctx, (3, "draw"), 1, {})
    return [await recipe.collect(ctx, (3, "groups", i), pl.Group(task=t)) for i, t in enumerate(tasks)]


@pytest.mark.parametrize(("under_way", "early"), [([], 1), ([False], 1), ([True, True], 0), ([True, False, True], 1)])
def test_a_group_is_early_while_another_of_its_batch_is_under_way(context, under_way, early):
    """Of three groups the first is there; attempts of later batches do not count."""
    recipe, ctx = streaming(), context(seed=3)
    prepare(recipe, ctx)
    groups = asyncio.run(recipe_groups(recipe, ctx))
    learner = recipe.learners["policy"]
    learner.update.begin(ctx, "policy", learner, groups, lambda: under_way)
    assert STREAMS[ctx.model("policy").module].early == early


def test_a_row_is_taken_once_when_its_columns_are_there():
    queue = TransferQueue()
    first, second = queue.put(answers="a"), queue.put(answers="b", reward=1.0)
    taken = lambda *columns: [row for row, _ in queue.take("credit", *columns)]
    assert taken("answers", "reward") == [second] and taken("answers", "reward") == []
    queue.put(first, reward=0.0)
    assert taken("answers", "reward") == [first]
    assert [row for row, _ in queue.take("other", "answers")] == [first, second]


def test_what_cannot_stream_is_refused(context):
    recipe = pl.vary(streaming(), objective=pl.Clipped() + 0.1 * pl.ValueLoss())
    update = recipe.learners["policy"].update
    with pytest.raises(UserError, match="streaming=false"):
        update(context(), "policy", recipe.learners["policy"], None, {})
    with pytest.raises(UserError, match="as they come"):
        refuse(pl.Cluster(workers=0, learners=2), asyncflow.build(), context())
