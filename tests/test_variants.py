"""Options of the objectives recipes that their papers or codes describe beside the default, by hand."""

import asyncio
import math

import numpy as np
import pytest
import torch

from palaestra.api.training import make_smallest
from palaestra.credit.links import chain
from palaestra.credit.table import Table, Values
from palaestra.explanation.method import explain
from palaestra.objective.policy import TargetEntropy
from palaestra.objective.residual import Balance, PathConsistency
from palaestra.objective.tokens import TopTokens
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import (
    agro,
    asymre,
    carft,
    confucius3,
    effective_rank,
    high_entropy_tokens,
    igpo,
    incorrect_synthetic_data,
    loop,
    oreo,
    rec,
    spa_rl,
)
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.update import backward, pack
from palaestra.values import vary

near = lambda x: pytest.approx(x, abs=1e-5)


def scored(*rewards, **fields):
    return [{"reward": r, **{k: v[i] for k, v in fields.items()}} for i, r in enumerate(rewards)]


def advantages(recipe, *group):
    return explain(recipe, [list(group)])["advantages"][0]


def batch_of(*rows, **columns):
    """Rows of so many trained tokens behind one prompt token; columns by row, [tokens] or a number."""
    examples = []
    for i, n in enumerate(rows):
        said = Segment(ids=tuple(range(1, n + 1)), trained=True, logp=(0.0,) * n)
        mine = {
            k: np.array([0.0, *v[i]]) if isinstance(v[i], list) else v[i] for k, v in columns.items() if k != "units"
        }
        unit = columns["units"][i] if "units" in columns else ""
        examples.append(Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=mine, unit=unit))
    return pack(examples, dtype=torch.float64)


def out_of(batch, **outputs):
    T = batch["ids"].shape[1]
    padded = lambda rows: [[0.0, *r, *[0.0] * (T - 1 - len(r))] for r in rows]
    return {k: torch.tensor(padded(v), dtype=torch.float64).requires_grad_() for k, v in outputs.items()}


# ---- rec


def test_rec_regularisers_by_name():
    """tau log^2 rho at log rho = -1 has the slope 2 tau log rho; imitation the slope -tau; over N = 8 tokens."""
    group = scored(1, 0, logp=[[-2.0] * 4] * 2, behaviour_logp=[[-1.0] * 4] * 2)
    weight = lambda **given: [w[0] for w in explain(rec.build("all", **given), [group])["token_weights"][0]]
    plain = weight()
    assert plain == near([0.5 / 8, -0.5 / 8])
    assert weight(tau=0.3, regulariser="opmd") == near([w / 1.3 for w in plain])
    assert weight(tau=0.3, regulariser="kimi") == near([w + 2 * 0.3 / 8 for w in plain])
    assert weight(tau=0.3, regulariser="asymre") == near([w + 0.3 / 8 for w in plain])
    assert weight(tau=0.0, regulariser="kimi") == plain


def test_rec_data_and_deviation():
    """[1, 0, 0, 0]: ddof 0, s = .433013. Dropped: +-.5 / s; weighted: A exp(A) of A = .75 / s and -.25 / s."""
    four, s = scored(1, 0, 0, 0), 0.433013
    assert advantages(rec.build(data="drop"), *four) == near([0.5, -0.5, 0, 0])
    assert advantages(rec.build(data="weight"), *four) == near([1.587750] + [-0.194700] * 3)
    assert advantages(rec.build(std=True), *four) == near([0.75 / s] + [-0.25 / s] * 3)
    assert advantages(rec.build(data="drop", std=True), *four) == near([0.5 / s, -0.5 / s, 0, 0])
    high, low = 0.75 / s, -0.25 / s
    found = advantages(rec.build(data="weight", std=True), *four)
    assert found == pytest.approx([high * math.exp(high)] + [low * math.exp(low)] * 3, abs=1e-4)


# ---- baselines


def test_loop_baselines():
    four = scored(1, 0, 0, 0.5)
    assert advantages(loop.build(), *four) == near([0.833333, -0.5, -0.5, 0.166667])
    assert advantages(loop.build(baseline="mean"), *four) == near([0.625, -0.375, -0.375, 0.125])
    assert advantages(loop.build(baseline="std"), *four) == near([1.305582, -0.783349, -0.783349, 0.261116])


def test_asymre_released_group_of_one():
    build = lambda: asymre.build(variant="released")
    assert advantages(build(), *scored(0.7)) == near([0.7])
    assert advantages(asymre.build(), *scored(0.7)) == near([0.1])
    assert advantages(build(), *scored(1, 0, 0, 0)) == near([0.85, -0.15, -0.15, -0.15])
    assert advantages(build(), *scored(1, 1)) == near([0.1, 0.1])


# ---- residuals


def test_agro_unbiased_variance():
    """d = [.9, .05], mean .475: sum of squares .36125 over 2 n = .0903125, over 2 (n - 1) = .180625."""
    batch = batch_of(1, 1, advantage=[[0.5], [-0.5]], ref_logp=[[-1.0], [-1.0]], episode=[0.0, 1.0], units=["g", "g"])
    out = out_of(batch, logp=[[-0.8], [-1.1]])
    loss = {u: Balance(beta=0.5, unbiased=u)(out, batch)[0].item() for u in (False, True)}
    assert loss[False] == near(0.0903125) and loss[True] == near(0.180625)
    assert agro.build(unbiased=True).learners["policy"].objective == Balance(beta=0.1, unbiased=True)
    lone = batch_of(1, advantage=[[0.0]], ref_logp=[[-1.0]], episode=[0.0])
    assert Balance(beta=0.5, unbiased=True)(out_of(lone, logp=[[-0.8]]), lone)[0].item() == 0.0


def test_oreo_by_step():
    """Steps {0, 1} and {2}; beta .5, l = [.2, -.1, .4], V at the steps' starts .6 and .8, R = 1.

    Step 0: .6 - 1 + .5 (.1 + .4) = -.15, carried by two tokens; step 1: .8 - 1 + .5 (.4) = 0. Loss 2 (.0225) / 3, slope of
    each l of step 0: 2 * beta * (2 * -.15) / 3; of step 1: 0, for its l in step 0's residual is held still.
    """
    batch = batch_of(3, reward=[1.0], ref_logp=[[-1.0] * 3], critic_value=[[0.6, 9.0, 0.8]], step=[[0.0, 0.0, 1.0]])
    out = out_of(batch, logp=[[-0.8, -1.1, -0.6]])
    loss, _ = PathConsistency(beta=0.5, level="step")(out, batch)
    assert loss.item() == near(2 * 0.15**2 / 3)
    slope = torch.autograd.grad(loss, out["logp"])[0][0, 1:].tolist()
    assert slope == near([2 * 0.5 * 2 * -0.15 / 3] * 2 + [0.0])


def test_one_token_steps_are_oreo_by_token():
    columns = {"reward": [1.0, 0.0], "ref_logp": [[-1.0, -2.0], [-0.5]], "critic_value": [[0.6, 0.8], [0.1]]}
    batch = batch_of(2, 1, **columns, step=[[0.0, 1.0], [0.0]])
    out = out_of(batch, logp=[[-0.8, -1.1], [-0.6]])
    found = [PathConsistency(beta=0.5, level=level)(out, batch)[0] for level in ("token", "step")]
    assert found[0].item() == near(found[1].item())
    slopes = [torch.autograd.grad(loss, out["logp"], retain_graph=True)[0] for loss in found]
    assert torch.allclose(*slopes)


# ---- terms


def test_squared_target_entropy():
    """H = .8, target .55: (H - target)^2 = .0625, slope 2 * .25 / N for each of two tokens; 0 at the target."""
    batch = batch_of(1, 1)
    out = out_of(batch, entropy=[[0.8], [0.8]])
    loss, _ = TargetEntropy(0.55, squared=True)(out, batch)
    assert loss.item() == near(0.0625)
    assert torch.autograd.grad(loss, out["entropy"])[0][:, 1].tolist() == near([0.25, 0.25])
    assert confucius3.build(phase=1, squared=True).learners["policy"].objective.parts[1].objective.squared


def test_imitation_of_preferred_answers():
    """Pairs (-1, -3 | rejected) and (-2 | rejected): the mean of 2 and 2; a token weighs 1 / (its answer's tokens * pairs)."""
    batch = batch_of(2, 1, 1, 2, sign=[1.0, -1.0, 1.0, -1.0], units=["a", "a", "b", "b"])
    out = out_of(batch, logp=[[-1.0, -3.0], [-7.0], [-2.0], [-8.0, -9.0]])
    loss, _ = incorrect_synthetic_data.ImitatePreferred()(out, batch)
    assert loss.item() == near(2.0)
    slope = torch.autograd.grad(loss, out["logp"])[0][:, 1:].tolist()
    assert slope == [near([-0.25, -0.25]), near([0, 0]), near([-0.5, 0]), near([0, 0])]


def test_top_tokens_of_a_micro_batch():
    """Entropies [.9, .8] and [.2, .1], share .5: the batch keeps the first row, micro-batches of one row a token of each."""
    batch = batch_of(2, 2, entropy=[[0.9, 0.8], [0.2, 0.1]])
    out = {"entropy": batch["entropy"]}
    assert TopTokens(0.5)(out, batch)[0][:, 1:].tolist() == [[1, 1], [0, 0]]
    micro = TopTokens(0.5, over="selected", micro=True)
    assert micro.couples == "row" and TopTokens(0.5).couples == "batch"
    for row, kept in ((0, [2.0, 0.0]), (1, [2.0, 0.0])):  # N / k of the row
        part = batch.part(torch.tensor([row]))
        assert micro({"entropy": part["entropy"]}, part)[0][0, 1:].tolist() == kept


def test_the_micro_batch_is_a_setting_of_that_method():
    objective = high_entropy_tokens.build(0.5, micro=True).learners["policy"].objective
    batch = batch_of(2, 2, entropy=[[0.9, 0.8], [0.2, 0.1]], advantage=[[1.0, 1.0], [1.0, 1.0]])
    found = {}
    for budget in (1, 100):
        lp = torch.zeros(4, dtype=torch.float64, requires_grad=True)

        def forward(part, lp=lp):
            at = torch.tensor([[0, 0, 1], [0, 2, 3]])[(part["entropy"][:, 1] < 0.5).long()]
            return {"logp": lp[at] * part.mask, "entropy": part["entropy"]}

        backward(forward, objective, batch, budget)
        found[budget] = lp.grad.tolist()
    assert found[100] == near([-0.25, -0.25, 0, 0]) and found[1] == near([-0.25, 0, -0.25, 0])


def test_kl_terms_of_weight_k3():
    """At ref_logp = -1.5 and logp = -1, d = .5: the loss k3 has the slope 1 - exp(-d)."""
    ref = {"ref_logp": [[-1.5] * 4] * 2}
    slope = 1 - math.exp(-0.5)
    one = explain(igpo.build(kl=0.1), [scored(1, 1, **ref)])["token_weights"][0]
    assert one[0] == near([-0.1 * slope / 8] * 4)
    assert igpo.build().references == {} and igpo.build(kl=0.1).references == {"ref": "policy"}


def test_spa_pays_the_kl_in_the_reward():
    """Two tokens of one turn, R = 1 at the last, d = .5 a token, V = 0: A_2 = 1 - .05, A_1 = -.05 + .95 A_2 (lambda .95)."""
    recipe = spa_rl.build(by="uniform", beta=0.0, kl=0.1)
    paid = vary(recipe, credit=chain(*recipe.learners["policy"].credit.links[:2]))  # not whitened
    group = scored(1, length=[2], value=[[0.0, 0.0]], ref_logp=[[-1.5, -1.5]])
    assert advantages(paid, *group) == [near([-0.05 + 0.95 * 0.95, 0.95])]
    assert recipe.references == {"ref": "policy"} and spa_rl.build().references == {}


def test_value_coefficients():
    value = lambda recipe: recipe.learners["policy"].objective.parts[1].weight
    assert value(carft.build()) == 0.1 and value(carft.build(value=5.0)) == 5.0


def test_rank_bonus_on_token_advantages():
    """Ranks 2 and 3 of prefixes: ER 3, ERV 1, ERA 0 against means 2, .5, 0: Phi = .5 tanh(.5) + .5 tanh(1) = .611856, at each
    token at most half of its own |A|."""
    said = Segment(ids=(1, 2, 3, 4), trained=True, logp=(-1.0,) * 4)
    episode = Episode(rows=(Row(segments=(Segment(ids=(0,)), said)),), reward=Reward(total=1.0), status="finished")
    ranks = {"policy_prefix_rank:2": np.array([0, 0, 2.0, 0, 3.0])}
    means = {"effective_rank": {"rank": 2.0, "velocity": 0.5, "acceleration": 0.0}, "batches": 1}
    table = Table([Group(task=Task(id="t"), episodes=(episode,))], [[[ranks]]], means)
    A = np.array([1.0, -4.0, 0.2, 2.0])
    found = effective_rank.RankBonus(stride=2)(Values(level="token", x_N=A), table).x_N
    assert (found - A).tolist() == near([0.5, 0.611856, 0.1, 0.611856])


def test_rank_bonus_on_gae():
    learner = effective_rank.build(base="gae").learners["policy"]
    assert [type(x).__name__ for x in learner.credit.links] == ["Gae", "Center", "Scale", "RankBonus"]
    assert learner.heads == ("value",) and effective_rank.build() == effective_rank.build(base="grpo")


STEPS = {
    "rec kimi": (rec.build("all", tau=1.0, regulariser="kimi"), "chain"),
    "rec drop std": (rec.build(data="drop", std=True), "chain"),
    "igpo kl": (igpo.build(kl=0.01), "hop"),
    "spa kl": (spa_rl.build(kl=0.1), "grid"),
    "oreo step": (oreo.build(level="step"), "chain"),
    "oreo step on-policy": (oreo.build(level="step", frozen=False), "chain"),
    "sft term": (incorrect_synthetic_data.build(sft=0.1), "chain"),
    "gae rank": (effective_rank.build(base="gae", kl=0.1), "chain"),
    "micro": (high_entropy_tokens.build(micro=True), "chain"),
    "ter squared": (confucius3.build(phase=1, squared=True), "chain"),
    "grpo": (grpo.build(), "chain"),
}


@pytest.mark.parametrize("name", STEPS)
def test_variants_train(name, context):
    recipe, world = STEPS[name]
    recipe, ctx, state = make_smallest(recipe), context(world), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert all(math.isfinite(v) for k, v in metrics.items() if k.endswith("loss"))
