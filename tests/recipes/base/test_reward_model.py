"""The reward model of pairs: its loss and its exam by hand, and the folder that it leaves."""

import asyncio
import json
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.credit.preferences import Compare
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.objective.reward_model import BradleyTerry, BradleyTerryAhead
from palaestra.recipes.base import reward_model
from palaestra.rewards.learned import RewardModel
from palaestra.run.pair_exam import PairExam, calibration_error, describe_pairs
from palaestra.tasks.files import first_tasks
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.update import pack
from transformers import AutoModelForSequenceClassification


def pair(**facts):
    def episode(token, reward):
        said = Segment(ids=(token,), author="policy", policy="policy", trained=True, logp=(0.0,))
        row = Row(segments=(Segment(ids=(1, 2)), said))
        return Episode(rows=(row,), reward=Reward(total=reward), status="finished", facts=facts)

    return Group(task=Task(id="t/0"), episodes=(episode(5, 1.0), episode(6, 0.0)))


def loss(objective, better, worse, **facts):
    batch = pack(Compare()([pair(**facts)], [], {})[0])
    out = {"score": batch["marker"] * torch.tensor([better, worse])[:, None]}
    return float(objective(out, batch)[0])


@pytest.mark.parametrize(("margin", "gap"), [(1.0, 0.0), (1.0, 1.5), (0.5, 3.0)])
@pytest.mark.parametrize("center", [0.0, 0.01])
def test_a_margin_is_taken_from_the_lead(margin, gap, center):
    expected = math.log1p(math.exp(-(1.2 + 0.4 - margin * gap))) + center * (1.2 - 0.4) ** 2
    assert loss(BradleyTerryAhead(margin=margin, center=center), 1.2, -0.4, gap=gap) == pytest.approx(expected)
    assert loss(BradleyTerry(center=center), 1.2, -0.4, gap=gap) == pytest.approx(
        math.log1p(math.exp(-1.6)) + center * 0.64
    )


def test_a_margin_needs_its_column():
    with pytest.raises(UserError, match="column `gap` of each pair, and the data has none"):
        loss(BradleyTerryAhead(), 1.0, 0.0)
    objective = lambda **given: reward_model.build(**given).learners["reward"].objective
    assert objective() == pl.BradleyTerry() and objective(margin=0.5).margin == 0.5


def test_the_margin_of_trl_is_the_gap(tmp_path):
    row = {"prompt": "1?", "chosen": "a", "rejected": "b", "margin": 1.5}
    (tmp_path / "d.jsonl").write_text(json.dumps(row))
    (task,) = first_tasks(str(tmp_path / "d.jsonl"), 1)
    assert task.meta["gap"] == 1.5


def test_calibration_error_by_hand():
    """Two pairs of confidence 0.75, one right, and two of 0.9, both right: (2 * 0.25 + 2 * 0.1) / 4."""
    low, high = math.log(3), math.log(9)
    d_P = np.array([high, -low, high, low])
    assert calibration_error(d_P, 2) == pytest.approx(0.175)
    assert calibration_error(np.zeros(4), 5) == 0 and math.isnan(calibration_error(np.zeros(0), 5))
    assert calibration_error(np.full(3, -50.0), 2) == pytest.approx(1.0)


def test_accuracy_by_margin_and_by_gap():
    told = describe_pairs(np.array([3.0, -0.1, 2.0, 0.2]), np.array([1.0, 2.0, np.nan, 4.0]), 2)
    assert told["accuracy"]["mean"] == 0.75
    assert [x["mean"] for x in told["accuracy by margin"].values()] == [0.5, 1.0]
    assert told["margin up to"] == {"1 of 2": 0.2, "2 of 2": 3.0}
    assert [(x["mean"], x["n"]) for x in told["accuracy by gap"].values()] == [(0.5, 2), (1.0, 1)]
    assert "accuracy by gap" not in describe_pairs(np.ones(2), np.full(2, np.nan), 2)


def test_a_run_leaves_a_classifier_that_is_a_reward(tmp_path):
    pairs = [{"prompt": f"{i} + 1", "chosen": f"= {i}", "rejected": "no", "margin": 1.0} for i in range(24)]
    run = pl.train(
        reward_model.build(center=0.01, margin=0.5), data=pairs, steps=2, set={"schedule.prompts": 4},
        out=tmp_path / "run", quiet=True,
    )  # fmt: skip
    found = run.summary["evaluations"]["pairs"]
    assert found["after"]["accuracy"]["n"] == 2 and 0 <= found["after"]["calibration_error"] <= 1
    assert "accuracy by gap" in found["after"] and found["before"]["accuracy"]["mean"] == 0.5
    folder = run.summary["artifacts"]["reward"]
    model, theirs = load(folder), AutoModelForSequenceClassification.from_pretrained(folder).eval()
    asked = [(Task(id="t", prompt=(Message(role="user", content="1 + 1"),)), "a" * n) for n in (1, 9, 40)]
    reward = RewardModel(folder)
    together = reward.scores(model, asked)
    alone = [float(reward.scores(model, [x])[0]) for x in asked]
    assert np.allclose(together, alone, atol=1e-5) and np.abs(together).max() > 0
    text = [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "a" * 9}]
    ids = model.tokenizer.apply_chat_template(text, tokenize=True, return_dict=False)
    bias = float(model.heads["score"].out.bias.detach())
    with torch.no_grad():
        assert theirs(torch.tensor([ids])).logits.item() + bias == pytest.approx(together[1], abs=1e-5)


def test_the_exam_refuses_what_is_no_pair(context):
    ctx = context()
    with pytest.raises(UserError, match="chosen"):
        asyncio.run(PairExam("policy", n=2)(ctx))
