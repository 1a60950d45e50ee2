"""Law 3: a NaN in a masked slot changes nothing; a NaN elsewhere stops that update, spares the weights, leaves a case."""

import asyncio
import errno
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from palaestra.credit.seats import Reader
from palaestra.errors import Fault
from palaestra.models.load import weights_sha256
from palaestra.objective.algebra import Algebra
from palaestra.objective.policy import Clipped
from palaestra.recipes.base import grpo
from palaestra.run import cases
from palaestra.run.cases import dump_case, replay_case
from palaestra.run.driver import train
from palaestra.types import Example, Row, Segment
from palaestra.update import backward, pack


def example(masked):
    heard = Segment(ids=(1, 2, 3))
    said = Segment(ids=(4, 5), policy="policy", trained=True, logp=(-1.0, -2.0), version=0)
    tool = Segment(ids=(6,), author="environment")
    advantage = np.array([masked, masked, masked, 1.0, 1.0, masked])
    return Example(row=Row(segments=(heard, said, tool)), columns={"advantage": advantage, "ref_logp": advantage})


def test_masked_nan_changes_nothing():
    def gradient(masked):
        batch = pack([example(masked), example(masked)])
        logp = torch.full_like(batch["behaviour_logp"], -1.5).requires_grad_()
        found = backward(lambda b: {"logp": logp[: len(b.unit_B)]}, Clipped(), batch, 10**6)
        return float(found["loss"]), logp.grad

    (clean, g0), (dirty, g1) = gradient(0.0), gradient(float("nan"))
    assert clean == dirty and np.isfinite(clean)
    assert torch.equal(g0, g1) and torch.isfinite(g1).all()


@dataclass(frozen=True)
class Poison(Algebra):
    """Turns the loss into NaN from a given clock on."""

    needs: ClassVar = ("logp",)

    def __call__(self, out, batch):
        return (out["logp"] * batch.mask).sum() * float("nan"), {}


def test_a_nan_loss_spares_the_weights_and_leaves_a_case(context, small, tmp_path):
    recipe = small(grpo.build())
    ctx = context(out=tmp_path, steps=1)
    before = weights_sha256(ctx.model("policy"))
    poisoned = replace(recipe, learners={"policy": replace(recipe.learners["policy"], objective=Poison())})
    result = asyncio.run(train(poisoned, ctx))
    assert result.metrics["weights_sha256"] == before
    assert all(p.grad is None for p in ctx.model("policy").module.parameters())
    assert [p.name for p in (tmp_path / "cases").iterdir()] == ["step-0-policy"]


def test_replay_names_what_is_not_finite(context, small, tmp_path):
    ctx = context()
    recipe = small(grpo.build())
    batch = pack([example(0.0)])
    batch.columns["advantage"][0, 3] = float("nan")
    dump_case(tmp_path / "case", ctx.model("policy"), recipe.learners["policy"], batch, {"loss": float("nan")})
    found = replay_case(tmp_path / "case")
    assert (
        np.isnan(found["loss"]) and found["columns_not_finite"] == ["advantage"] and found["gradients_not_finite"] > 0
    )


def test_a_case_is_whole_or_not_there(context, small, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    model, learner, place = context().model("policy"), small(grpo.build()).learners["policy"], tmp_path / "cases" / "a"
    with monkeypatch.context() as patch:
        patch.setattr(cases, "save_file", full)
        with pytest.raises(Fault, match=r"disk: writing .*/cases/a: no space left"):
            dump_case(place, model, learner, pack([example(0.0)]), {})
    assert not place.exists()
    for _ in range(2):
        dump_case(place, model, learner, pack([example(0.0)]), {})
    assert list(place.parent.iterdir()) == [place] and np.isfinite(replay_case(place)["loss"])


def test_updates_that_never_are_finite_end_the_run(context, small, tmp_path):
    recipe = small(grpo.build())
    poisoned = replace(recipe, learners={"policy": replace(recipe.learners["policy"], objective=Poison())})
    with pytest.raises(Fault, match="diverged"):
        asyncio.run(train(poisoned, context(out=tmp_path, steps=50)))


def test_updates_that_are_finite_now_and_then_go_on(context, small):
    def four_of_five(ctx, name, learner, batch, state):
        return {"skipped": float(ctx.step % 5 < 4)}, state

    recipe = small(grpo.build(), **{"schedule.prompts": 1, "collect.links.0.n": 2})
    held = replace(recipe, learners={"policy": replace(recipe.learners["policy"], update=four_of_five)})
    assert asyncio.run(train(held, context(steps=9))).metrics["steps"] == 9


@pytest.mark.parametrize("every", [1, 2])
def test_one_of_two_learners_that_never_is_finite_ends_the_run(context, small, every):
    """Also where it has its turn in every second step only: five updates, not five steps."""

    def never(ctx, name, learner, batch, state):
        return ({}, state) if ctx.step % every else ({"skipped": 1.0}, state)

    def always(ctx, name, learner, batch, state):
        return {"skipped": 0.0}, state

    recipe, ctx = small(grpo.build(), **{"schedule.prompts": 1, "collect.links.0.n": 2}), context(steps=20)
    learner = replace(recipe.learners["policy"], credit=replace(recipe.learners["policy"].credit, links=()))
    both = {
        "policy": replace(learner, update=always),
        "other": replace(learner, credit=Reader(learner.credit), update=never),
    }
    with pytest.raises(Fault, match="diverged: 5 updates in a row"):
        asyncio.run(train(replace(recipe, learners=both), ctx))
    assert ctx.step == 4 * every
