"""SALU: its table, abstentions, and the frozen confidence."""

import asyncio
import math

import numpy as np
import pytest
import torch
from palaestra.errors import Fault
from palaestra.recipes.rewards import salu
from palaestra.rewards.intrinsic import sequence_confidence
from palaestra.types import Episode, Row, Segment

from tests.rewards.labelled import group, reward_of


def test_salu_table():
    conf = math.sqrt(0.9 * 0.8)
    assert sequence_confidence(np.log([0.9, 0.8])) == pytest.approx(0.848528, abs=1e-6)
    assert salu.table(False, False, False, -1 - conf) == pytest.approx(-1.848528, abs=1e-6)
    assert salu.table(False, True, False, -1 - conf) == pytest.approx(-1.848528, abs=1e-6)  # right by luck is no answer
    assert salu.table(True, False, False, -1 - conf) == pytest.approx(-1.848528, abs=1e-6)
    assert (
        salu.table(True, True, False, -9),
        salu.table(True, False, True, -9),
        salu.table(False, False, True, -9),
    ) == (1, -0.5, 1)
    p, c = 0.473684, 0.85
    answer = p * salu.table(True, True, False, -1 - c) + (1 - p) * salu.table(True, False, False, -1 - c)
    assert answer == pytest.approx(salu.table(True, False, True, -1 - c), abs=1e-5)  # break-even
    assert 0.4 * salu.table(False, False, True, -9) + 0.6 * salu.table(True, False, True, -9) == pytest.approx(0.1)


def test_salu_abstentions():
    for text in ("I don't know.", " i DON\u2019T  know", '"I don\'t know!"', "= ?"):
        assert salu.is_abstention(text)
    for text in ("", "I don't know. = 4", "= 4", "= 4?", "I know", "2+2=4\n= ?"):
        assert not salu.is_abstention(text)


def test_salu_rewards_use_the_frozen_confidence(context):
    ctx = context("unanswerable")
    ctx.reference("ref", "policy")
    known, unknown = {"answerable": True}, {"answerable": False}
    right, wrong, empty, declined = reward_of(salu.Honest(), ctx, "= 4", "= 5", " ", "= ?", meta=known)
    assert right.total == 1 and declined.total == -0.5 and declined.parts["needlessly"] == 1
    assert wrong.total == pytest.approx(-1 - wrong.parts["confidence"]) and 0 < wrong.parts["confidence"] <= 1
    assert empty.total < -1 and empty.parts["abstained"] == 0
    made_up, declined = reward_of(salu.Honest(), ctx, "= 5", "= ?", meta=unknown, answer="?")
    assert declined.total == 1 and made_up.total == pytest.approx(wrong.total) and made_up.parts["hallucinated"] == 1
    with torch.no_grad():
        for p in ctx.model("policy").module.parameters():
            p.mul_(0.5)  # a policy that talks its confidence down pays the same
    assert reward_of(salu.Honest(), ctx, "= 5", meta=known)[0].total == pytest.approx(wrong.total, abs=1e-9)
    assert reward_of(salu.Honest(0.0, -2.0), ctx, "= 5", meta=known)[0].total == -2
    mute = Episode(rows=(Row(segments=(Segment(ids=(1,)),)),), status="finished")
    assert isinstance(asyncio.run(salu.Honest()(ctx, group(mute)))[0], Fault)


def test_salu_logs_what_confidence_adds_to_a_punishment(context):
    ctx = context("unanswerable")
    ctx.reference("ref", "policy")
    right, wrong, declined = reward_of(salu.Honest(2.0), ctx, "= 4", "= 5", "= ?", meta={"answerable": True})
    assert (right.parts["penalty"], declined.parts["penalty"]) == (0.0, 0.0)
    assert wrong.parts["penalty"] == pytest.approx(2 * wrong.parts["confidence"]) == pytest.approx(-1 - wrong.total)
    assert salu.build(steps=3).parts["sft"].runnable.schedule.steps == 3
