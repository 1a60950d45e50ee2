"""Kimi k1.5: mirror descent, the length reward, long2short, and all of it in one run."""

import asyncio
import re

import numpy as np
import pytest
import torch
from palaestra.claims.objectives.kimi_k1_5 import EXPERIMENT
from palaestra.credit.length import shortness
from palaestra.credit.soft import soft_mean
from palaestra.explanation.method import explain
from palaestra.objective.residual import Balance
from palaestra.recipes.objectives import kimi_k1_5
from palaestra.run.driver import prepare
from palaestra.schedule import Jump
from palaestra.settings.overrides import build
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Example
from palaestra.update import pack
from palaestra.values import overrides

from tests.fake import episode


def test_kimi_reference_values():
    """tau = .5, log-ratios [.1, -.1] to the sampling policy: (r - rbar) - tau h = [.45, -.45], over k = 2."""
    group = [{"reward": r, "logp": [-1 + h], "behaviour_logp": [-1.0]} for r, h in ((1, 0.1), (0, -0.1))]
    found = explain(kimi_k1_5.build(tau=0.5), [group])["token_weights"][0]
    assert found == [pytest.approx([0.225]), pytest.approx([-0.225])]
    soft = explain(kimi_k1_5.build(tau=0.5, baseline="soft"), [group])["token_weights"][0]
    assert [2 * w[0] for w in soft] == pytest.approx([0.233110, -0.666890], abs=1e-6)
    assert soft_mean(np.array([1.0, 0.0]), np.array([0, 0]), 0.5)[0] == pytest.approx(0.716890, abs=1e-6)
    assert soft_mean(np.array([1.0, 0.0]), np.array([0, 0]), 1e4)[0] == pytest.approx(0.5, abs=1e-4)


def test_length_reward_reference_values():
    """lens [100, 200, 300]: lambda [.5, 0, -.5]; a wrong answer gets min(0, lambda); equal lengths nothing."""
    lengths = np.array([100, 200, 300])
    assert shortness(lengths, np.array([1, 1, 1], bool)) == pytest.approx([0.5, 0, -0.5])
    assert shortness(lengths, np.array([1, 1, 0], bool)) == pytest.approx([0.5, 0, -0.5])
    assert shortness(lengths, np.array([0, 1, 1], bool)) == pytest.approx([0, 0, -0.5])
    assert not shortness(np.array([7, 7]), np.array([1, 0], bool)).any()
    group = [{"reward": 1, "length": 1}, {"reward": 1, "length": 3}, {"reward": 0, "length": 2}]
    found = explain(kimi_k1_5.build(length=0.4, length_from=0), [group])["advantages"][0]
    assert found == pytest.approx([1.2 - 2 / 3, 0.8 - 2 / 3, -2 / 3])
    assert explain(kimi_k1_5.build(length=0.4, length_from=60), [group])["advantages"][0] == pytest.approx(
        [1 / 3, 1 / 3, -2 / 3]
    )


def test_long2short_takes_the_shortest_right_answer():
    """Lengths 2 and 4 right, 3 and 1 wrong: 4 >= 1.5 * 2 and the longer wrong one are rejected, the shorter wrong one is not."""
    group = [{"reward": r, "length": n, "ref_logp": [-1.0] * n} for r, n in ((1, 4), (1, 2), (0, 3), (0, 1))]
    imitated = explain(kimi_k1_5.build(long2short="rejection"), [group])["token_weights"][0]
    assert imitated == [[0.0] * 4, pytest.approx([0.5] * 2), [0.0] * 3, [0.0]]
    preferred = explain(kimi_k1_5.build(long2short="dpo"), [group])["advantages"][0]
    assert preferred == [-1.0, 1.0, -1.0, 0.0]
    near = [{"reward": 1, "length": n, "ref_logp": [-1.0] * n} for n in (2, 2)]  # neither is longer
    assert explain(kimi_k1_5.build(long2short="dpo"), [near])["advantages"] == [[0.0, 0.0]]


def test_length_weight_jumps():
    assert [Jump(0.0, 0.5, 20).at(i) for i in (0, 19, 20, 99)] == [0.0, 0.0, 0.5, 0.5]


def test_kimi_trains_with_everything_on(context, small):
    recipe = kimi_k1_5.build(length=0.5, length_from=0, sampling="curriculum", partial=12, baseline="soft")
    recipe = small(recipe, **{"collect.links.0.n": 2})
    ctx, state = context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert np.isfinite(metrics["loss"]) and state["draw"]["tried"]
    assert encode(decode(*encode(state)))[0] == encode(state)[0]


def test_fresh_moments():
    """With AdamW a first step from fresh moments has the size of the rate, whatever the gradient before."""
    from palaestra.method import Learner
    from palaestra.update import AdamW, Plain

    from tests.fake import FakeContext

    class Ctx(FakeContext):
        def optimiser(self, name, learner):
            if name not in self.optimisers:
                self.optimisers[name] = learner.optimiser.build(self.models[name].trainable())
            return self.optimisers[name]

    steps = []
    for fresh in (True, False):
        ctx = Ctx()
        learner = Learner(
            credit=None, objective=Balance(centred=False), update=Plain(fresh=fresh), optimiser=AdamW(lr=1e-2)
        )
        update = learner.update
        for A in ((99.0, -99.0), (-99.0, 99.0)):
            rows = [
                Example(
                    row=episode((1, 2), ids, 1.0).rows[0],
                    columns={"advantage": np.full(4, a), "episode": 0, "ref_logp": np.zeros(4)},
                )
                for ids, a in zip(((1, 2), (3, 4)), A, strict=True)
            ]
            before = ctx.models["policy"].U.detach().clone()
            update(ctx, "policy", learner, pack(rows, "policy", dtype=torch.float64), {})
        steps.append(float((ctx.models["policy"].U.detach() - before)[1].abs().max()))
    assert steps[0] == pytest.approx(1e-2, rel=1e-3) and steps[1] < 2e-3


def test_the_page_has_the_command_of_the_measured_arm():
    """It is the default: the length reward is on. Without it there is mirror descent alone."""
    (words,) = re.findall(r"`palaestra train (kimi-k1.5\s[^`]*)`", kimi_k1_5.__doc__)
    method, *given = words.split()
    assert build(method, overrides(given)) == EXPERIMENT.arms["length-late"] == kimi_k1_5.build()
    assert kimi_k1_5.build(length=0.0) == EXPERIMENT.arms["mirror-descent"] != kimi_k1_5.build()
