"""PAV: progress under the prover, and the credit of each step."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import palaestra
import pytest
import torch
from palaestra.credit.steps import best_of, progress
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.models.load import save
from palaestra.recipes.objectives import pav
from palaestra.rewards.learned import Learned, RewardModel
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.update import pack
from palaestra.values import override

from tests.recipes.objectives.helpers import groups_of


def test_pav_reference_values():
    """Q .1 -> .2: best of 4 goes .3439 -> .5904, A = .2465; at .9 -> .95 nothing is left to gain."""
    assert best_of(np.array([0.1, 0.2, 0.9]), 4) == pytest.approx([0.3439, 0.5904, 0.9999])
    assert progress([0.1, 0.2], k=1) == pytest.approx([0.1])
    assert progress([0.1, 0.2], k=4) == pytest.approx([0.2465])
    assert progress([0.9, 0.95], k=4) == pytest.approx([9.4e-5], abs=1e-6)
    for alpha, effective in ((0.5, 0.32325), (3, 0.9395), (5, 1.4325)):
        assert 0.2 + alpha * progress([0.1, 0.2], k=4)[0] == pytest.approx(effective)
    assert 0.2 + 3 * progress([0.4, 0.55])[0] == pytest.approx(0.65)
    assert progress([0.99, 0.99])[0] == 0 and progress([0.0, 0.0], k=4)[0] == 0


def test_pav_credits_each_step_with_its_own_progress():
    group = [
        {"reward": 1, "turn_rewards": [0, 1], "turn_lengths": [1, 2], "prefix_values": [0.1, 0.2, 1.0]},
        {"reward": 0, "turn_rewards": [0, 0], "turn_lengths": [1, 1], "prefix_values": [0.1, 0.1, 0.0]},
    ]
    found = explain(pav.build(alpha=3.0), [group])
    last = 1 - 0.5904
    assert found["advantages"][0][0] == pytest.approx([0.5 + 3 * 0.2465, 0.5 + 3 * last, 0.5 + 3 * last])
    assert found["advantages"][0][1] == pytest.approx([-0.5, -0.5 - 3 * 0.3439])
    assert found["token_weights"][0][1] == pytest.approx([-0.125, (-0.5 - 3 * 0.3439) / 4])
    with pytest.raises(UserError, match="prefix_values"):
        explain(pav.build(), [[{"reward": 1}]])
    with pytest.raises(UserError, match="3 prefix_values, not 2"):
        explain(pav.build(), [[{"turn_rewards": [0, 1], "turn_lengths": [1, 1], "prefix_values": [0.1, 0.2]}]])


@pytest.mark.parametrize(("alpha", "expected"), [(3.0, 3 * 0.2465), (0.0, 0.0)])
def test_the_progress_that_is_added_is_logged(alpha, expected):
    (group,) = groups_of([1.0])
    facts = {"prefix_values": (0.1, 0.2, 0.2), "step_ends": ((0, 1), (0, 2))}
    group = replace(group, episodes=(replace(group.episodes[0], facts=facts),))
    (made,), _ = pav.build(alpha=alpha).learners["policy"].credit([group], [[[{}]]], {})
    assert made.columns["track:progress"].tolist() == pytest.approx([0, expected, 0])


def test_a_threshold_of_success_reaches_the_values():
    assert [pav.build(right=r).collect.links[-1].right for r in (0.7, None)] == [0.7, None]


def test_a_prover_of_the_users_goes_on_instead_of_the_policy():
    assert pav.build(prover="DIR").references == {"prover": "DIR"} and pav.build().references == {}
    assert pav.build(prover="DIR", kl=0.1).references == {"prover": "DIR", "ref": "policy"}
    assert [r.collect.links[-1].model for r in (pav.build(prover="DIR"), pav.build())] == ["prover", "policy"]


def lines_said(rewards, values):
    """A group of answers of two lines, "1" and "2" as tokens 5 and 6 with the break as 9, behind a prompt of one token."""
    made = []
    for reward, value in zip(rewards, values, strict=True):
        said = Segment(ids=(5, 9, 6), author="policy", policy="policy", trained=True, logp=(-1.0,) * 3, finish="eos")
        row = Row(segments=(Segment(ids=(1,)), said))
        facts = {"prefix_values": value, "step_ends": ((0, 2), (0, 3))}
        made.append(Episode(rows=(row,), reward=Reward(total=reward), facts=facts))
    return Group(task=Task(id="t"), episodes=tuple(made))


def test_a_verifier_learns_the_prompt_once_and_every_beginning():
    group = lines_said([1.0, 0.0], [(0.5, 0.75, 1.0), (0.5, 0.25, 0.0)])
    made, _ = pav.RatePrefixes()([group], [[[{}]] * 2], {})
    seen = [(e.row.view().ids_T[:-1].tolist(), float(e.columns["target_total"])) for e in made]
    assert seen == [([1], 0.5), ([1, 5, 9], 0.75), ([1, 5, 9, 6], 1.0), ([1, 5, 9], 0.25), ([1, 5, 9, 6], 0.0)]
    with pytest.raises(UserError, match="outside of 0 to 1 is no chance of success; give right="):
        pav.RatePrefixes()([lines_said([3.0], [(0.5, 0.75, 3.0)])], [[[{}]]], {})


def test_the_cross_entropy_of_a_chance():
    """Of a logit of 0 it is log 2 whatever Q; of log 3, p = 3/4, with Q = 1/2 it is -(log 3/4 + log 1/4) / 2."""
    made, _ = pav.RatePrefixes()([lines_said([1.0], [(0.5, 0.5, 1.0)])], [[[{}]]], {})
    batch = pack(made[:2], dtype=torch.float64)
    for logit, expected, off in ((0.0, math.log(2), 0.0), (math.log(3), -(math.log(0.75) + math.log(0.25)) / 2, 0.25)):
        out = {"value": torch.full_like(batch["ids"], logit, dtype=torch.float64).requires_grad_()}
        loss, metrics = pav.PrefixCrossEntropy()(out, batch)
        assert float(loss.detach()) == pytest.approx(expected) and float(metrics["verifier_error"]) == pytest.approx(
            off
        )
        (grad,) = torch.autograd.grad(loss, [out["value"]])
        assert grad.sum().item() == pytest.approx(1 / (1 + math.exp(-logit)) - 0.5)


def test_a_trained_verifier_predicts_progress_and_leads_a_search(tmp_path):
    """The parts in a row, each at its smallest. The verifier's values stand in the rollouts: nothing is sampled for them."""
    pipeline = pav.build(verifier="train", verifier_steps=2, n=2)
    for name in ("verifier", "rl"):
        for field, size in (("schedule.prompts", 2), ("collect.links.0.n", 2)):
            pipeline = override(pipeline, f"{name}.{field}", size)
    pipeline = override(pipeline, "rl.schedule.steps", 1)
    palaestra.train(pipeline, task="chain", out=tmp_path / "run", evaluate=0, quiet=True)
    metrics = json.loads((tmp_path / "run/verifier/metrics.jsonl").read_text().splitlines()[0])
    assert metrics["loss"] > 0 and 0 < metrics["verifier_error"] < 1
    (step,) = map(json.loads, (tmp_path / "run/rl/metrics.jsonl").read_text().splitlines())
    assert step["progress"] > 0
    folder = str(tmp_path / "run/verifier/checkpoints/step-2")
    beam = palaestra.search.BeamSearch(width=2, branch=2, progress=0.5)
    found = palaestra.search.run(task="chain", strategy=beam, budget=32, n=2, reward_model=folder)
    assert found["tokens"] > 0 and not found["oracle"]
    with pytest.raises(UserError, match="leave prover="):
        pav.build(verifier=folder, prover="DIR")
    assert pav.build(verifier=folder).references == {"verifier": folder}


def test_a_verifier_of_beginnings_reads_what_the_policy_said(context, tmp_path):
    """It gives the same number as the run's own model of that name, and another for another beginning."""
    ctx = context("chain")
    scorer = ctx.model("policy")
    torch.nn.init.normal_(scorer.add_head("value").out.weight, generator=torch.Generator().manual_seed(0))
    save(scorer, tmp_path / "verifier")
    group = lines_said([1.0, 1.0], [(0, 0, 1)] * 2)
    cuts = tuple(pav.cut_at(e, end) for e, end in zip(group.episodes, ((0, 1), (0, 2)), strict=True))
    own = asyncio.run(Learned("policy", ("value",))(ctx, replace(group, episodes=cuts)))
    saved = asyncio.run(RewardModel(str(tmp_path / "verifier"))(ctx, replace(group, episodes=cuts)))
    assert [r.total for r in own] == pytest.approx([r.total for r in saved], abs=1e-5)
    assert abs(own[0].total - own[1].total) > 1e-4
