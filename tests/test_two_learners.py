"""A policy and a verifier that learn in one run, each from what its own seat is paid."""

import asyncio
from dataclasses import replace

import pytest

from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.seats import Seat
from palaestra.models.load import weights_sha256
from palaestra.objective.policy import Clipped
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, Score, links
from palaestra.runtime.train import prepare, train
from palaestra.step import Learner, Recipe, Schedule, start, step
from palaestra.tasks.base import final
from palaestra.tasks.chain import Chain
from palaestra.types import Ask, Bench, Frame, Message, UserError, stage
from palaestra.update import AdamW, Cycle, Plain


@stage
class Judged:
    """One solves, the other says whether it is right; paid are right answers, and right verdicts."""

    seats: tuple[str, ...] = ("policy", "verifier")
    solver_paid: bool = True

    def reset(self, task, key):
        return Frame(state=(task, None), asks=(Ask(seat="policy", say=task.prompt),))

    def step(self, state, acts, key):
        (act,), (task, right) = acts, state
        if act.ask.seat == "policy":
            right = final(act.text) == task.answer
            shown = f"{task.prompt[0].content}\n{act.text}"
            ask = Ask(seat="verifier", say=(Message(role="user", content=shown),), max_tokens=1)
            return Frame(state=(task, right), asks=(ask,))
        agrees = float((act.text[:1] == "=") == right)  # a verdict that the tiny model gives now and then
        return Frame(state=state, pay={("policy", ""): float(right and self.solver_paid), ("verifier", ""): agrees})


GRPO = chain(Center("group"), Scale("group"))


def recipe(update=Plain(), lr=1e-3):
    def learner(seat, rate=1e-3, **more):
        return Learner(credit=Seat(seat, GRPO), objective=Clipped(), optimiser=AdamW(lr=rate), **more)

    return Recipe(
        draw=grpo.build().draw,
        collect=links(Sample(n=4, temperature=1.5, seats=(("verifier", "verifier"),)), Score()),
        learners={"policy": learner("policy"), "verifier": learner("verifier", lr, update=update)},
        schedule=Schedule(prompts=4, steps=5),
    )


def run(ctx, recipe, n):
    prepare(recipe, ctx)
    state, found = start(0), []
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        found.append((metrics, weights_sha256(ctx.model("policy")), weights_sha256(ctx.model("verifier"))))
    return found


def bench(**settings):
    return Bench(name="judged", tasks=Chain(operands=(2, 2)), world=Judged(**settings), max_tokens=4)


def test_both_learn_from_their_own_pay(context):
    ctx = context(bench=bench())
    begin = weights_sha256(ctx.model("policy"))
    found = run(ctx, recipe(), 5)
    assert {begin} < {p for _, p, _ in found} | {begin} and {begin} < {v for _, _, v in found} | {begin}
    assert found[-1][1] != found[-1][2]
    assert any("verifier/loss" in m for m, _, _ in found) and any("policy/loss" in m for m, _, _ in found)
    assert all("part/seat:verifier" in m for m, _, _ in found)
    rows = [r for g in ctx.seen for e in g.episodes for r in e.rows]
    assert {(r.seat, s.policy) for r in rows for s in r.segments if s.trained} == {
        ("policy", "policy"),
        ("verifier",) * 2,
    }


def test_a_seat_that_earns_nothing_moves_nobody(context):
    ctx = context(bench=bench(solver_paid=False))
    begin = weights_sha256(ctx.model("policy"))
    found = run(ctx, recipe(), 3)
    assert found[-1][1] == begin != found[-1][2]


def test_learners_take_turns(context):
    found = run(context(bench=bench()), recipe(update=Cycle(Plain(), period=3, on=(2,))), 5)
    verifier = [v for _, _, v in found]
    assert verifier[0] == verifier[1] and verifier[2] == verifier[3] == verifier[4]


def test_a_warm_up_comes_before_the_turns(context):
    found = run(context(bench=bench()), recipe(update=Cycle(Plain(), period=3, on=(1,), warmup=2, warms=True)), 4)
    verifier = [v for _, _, v in found]
    assert len(set(verifier)) == 3 and verifier[1] == verifier[2] != verifier[3]


def test_a_run_of_two_learners_keeps_both(context, tmp_path):
    ctx = context(bench=bench(), out=tmp_path, steps=2)
    result = asyncio.run(train(recipe(), ctx))
    assert set(result.artifacts) == {"policy", "verifier"}
    again = context(bench=bench(), out=tmp_path, steps=3)
    whole = asyncio.run(train(recipe(), again))
    straight = context(bench=bench(), out=tmp_path / "straight", steps=3)
    asyncio.run(train(recipe(), straight))
    for name in ("policy", "verifier"):
        assert weights_sha256(again.model(name)) == weights_sha256(straight.model(name))
    assert whole.metrics["steps"] == 3


def test_a_seat_that_is_not_paid_is_named(context):
    wrong = recipe()
    learners = {**wrong.learners, "verifier": replace(wrong.learners["verifier"], credit=Seat("critic", GRPO))}
    with pytest.raises(UserError, match="'critic'; the world pays policy, verifier"):
        run(context(bench=bench()), replace(wrong, learners=learners), 1)
