"""The gap between engine and trainer: measured, and corrected by truncated importance sampling."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra import catalogue
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.layout import Layout
from palaestra.models.load import load
from palaestra.objective.mismatch import TIS
from palaestra.objective.policy import Clipped, Imitation, Reinforce
from palaestra.objective.terms import KL
from palaestra.run import mismatch
from palaestra.run.driver import prepare
from palaestra.settings.overrides import add_tis, build
from palaestra.step import start, step
from palaestra.types import Batch, Episode, Group, Reward, Row, Segment, Task

MU = torch.tensor([[0.0, -1.0, -2.0, -1.0], [0.0, -0.5, -3.0, 0.0]])
OLD = torch.tensor([[0.0, -1.2, -0.5, -1.0], [0.0, -0.5, -3.3, 0.0]])
NOW = torch.tensor([[0.0, -1.1, -0.6, -1.4], [0.0, -0.3, -3.2, 0.0]])
ADVANTAGE = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, -2.0, -2.0, 0.0]])
MASK = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0]])


def batch(**more):
    columns = {"trained": MASK, "behaviour_logp": MU, "policy_logp": OLD, "advantage": ADVANTAGE, **more}
    return Batch(columns=columns, unit_B=torch.arange(2), n_tokens=5, n_rows=2, n_units=2)


def gradient(objective, given):
    now = NOW.clone().requires_grad_()
    loss, metrics = objective({"logp": now}, given)
    loss.backward()
    return now.grad, metrics


def test_reinforce_is_weighted_by_the_truncated_ratio():
    w = (OLD - MU).exp().clamp(max=2.0)
    found, metrics = gradient(TIS(Reinforce(reduce="tokens"), cap=2.0), batch())
    torch.testing.assert_close(found, -w * ADVANTAGE * MASK / 5)
    assert float(metrics["tis_weight"]) == pytest.approx(float((w * MASK).sum() / 5))
    assert float(metrics["tis_capped"]) == pytest.approx(1 / 5)  # exp(1.5) > 2


@pytest.mark.parametrize("low, high", [(0.2, 0.2), (0.05, 0.3)])
def test_clipping_is_around_the_trainer(low, high):
    """min(rho A, clip(rho) A) is positively homogeneous in A, so w A is w times it; rho = pi / pi_old."""
    found, metrics = gradient(TIS(Clipped(low=low, high=high, reduce="tokens")), batch())
    plain, _ = gradient(Clipped(low=low, high=high, reduce="tokens"), batch(behaviour_logp=OLD))
    torch.testing.assert_close(found, plain * (OLD - MU).exp().clamp(max=2.0))
    assert float(metrics["ratio"]) == pytest.approx(float(((NOW - OLD).exp() * MASK).sum() / 5))


def test_no_mismatch_changes_nothing():
    objective = Clipped() + 0.1 * KL("k3", model="policy")
    same = batch(behaviour_logp=OLD)
    torch.testing.assert_close(gradient(TIS(objective), same)[0], gradient(objective, same)[0])
    assert TIS(objective).needs == objective.needs and TIS(objective).couples == objective.couples


def test_terms_without_an_advantage_and_unknown_samplers_weigh_one():
    columns = {k: v for k, v in batch().columns.items() if k != "advantage"}
    given = replace(batch(), columns=columns)
    torch.testing.assert_close(gradient(TIS(Imitation()), given)[0], gradient(Imitation(), given)[0])
    unknown = batch(behaviour_logp=torch.full_like(MU, float("nan")))
    found, _ = gradient(TIS(Reinforce()), unknown)
    torch.testing.assert_close(found, gradient(Reinforce(), batch())[0])


def test_a_recipe_is_corrected_and_its_fields_stay_reachable():
    recipe = build("grpo", {"cap": "3"}, 2.0)
    learner = recipe.learners["policy"]
    assert isinstance(learner.objective, TIS) and learner.objective.cap == 3.0
    assert learner.needs == (("policy", "logp"),)
    plain = catalogue.find("grpo").build()
    twins = add_tis(replace(plain, learners=dict.fromkeys(("a", "b"), plain.learners["policy"])), 1.5)
    for name, learner in twins.learners.items():
        assert learner.objective == TIS(plain.learners["policy"].objective, model=name, cap=1.5)
        assert learner.needs == ((name, "logp"),)
    with pytest.raises(UserError, match="--tis"):
        add_tis(object(), 2.0)


class Shifted(OwnEngine):
    """An engine that says it is `by` nats surer than the model is."""

    exact = property(lambda self: False)
    by = 0.0

    async def generate(self, prompt, sampling, key):
        sample = await super().generate(prompt, sampling, key)
        return replace(sample, logp=tuple(x + self.by for x in sample.logp))


@pytest.mark.parametrize("by", [0.0, 0.1])
def test_the_gap_is_measured(context, small, by):
    recipe, ctx = small(catalogue.find("grpo").build()), context()
    prepare(recipe, ctx)
    engine = ctx.engines["policy"] = Shifted(ctx.model("policy"))
    engine.by = by
    _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert metrics["mismatch_gap"] == pytest.approx(by, abs=1e-5)
    assert metrics["mismatch_max"] == pytest.approx(by, abs=1e-4)
    assert metrics["mismatch_ratio"] == pytest.approx(np.exp(-by), abs=1e-5)
    assert metrics["mismatch_kl"] == pytest.approx(np.exp(-by) - 1 + by, abs=1e-5)


@pytest.mark.parametrize(("dtype", "exact"), [("float32", True), ("bfloat16", False)])
def test_the_own_engine_is_exact_in_float32_alone(context, small, dtype, exact, monkeypatch):
    """And measures the gap of bfloat16 on the first group of the step."""
    measured, whole = [], mismatch.gaps
    monkeypatch.setattr(
        mismatch, "gaps", lambda ctx, groups, name: measured.append(len(groups)) or whole(ctx, groups, name)
    )
    recipe, ctx = small(catalogue.find("grpo").build()), context()
    ctx.models["policy"] = load("tiny", dtype=dtype)
    prepare(recipe, ctx)
    _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert ctx.engines["policy"].exact == exact and measured == ([] if exact else [1])
    assert exact or 0 < metrics["mismatch_gap"] < 0.01


def test_a_token_that_nothing_precedes_has_no_gap(context):
    said = Segment(ids=(5, 6, 7), trained=True, policy="policy", logp=(-1.0, -2.0, float("nan")))
    episode = Episode(rows=(Row(segments=(said,)),), reward=Reward(total=1.0), status="finished")
    group, ctx = Group(task=Task(id="t"), episodes=(episode,)), context()
    logp = ctx.measure([group], (("policy", "logp"),))[0][0][0]["policy_logp"]
    assert mismatch.gaps(ctx, [group], "policy").tolist() == pytest.approx(
        [logp[1] + 2.0]
    )  # the last one's is not known


def test_the_own_engine_costs_nothing(context, small, monkeypatch):
    """Not a forward pass: a run that measures a gap makes more of them."""
    passes, layout = [], Layout.of
    monkeypatch.setattr(Layout, "of", lambda *given: passes.append(1) or layout(*given))

    def cost(engine):
        recipe, ctx = small(catalogue.find("grpo").build()), context()
        prepare(recipe, ctx)
        ctx.engines["policy"] = engine(ctx.model("policy"))
        passes.clear()
        _, metrics = asyncio.run(step(recipe, ctx, start(0)))
        return len(passes), [k for k in metrics if k.startswith("mismatch")]

    (exact, none), (more, some) = cost(OwnEngine), cost(Shifted)
    assert not none and some and exact < more
