"""IGPO: turns paid for the probability of the gold answer, its pools and edges."""

import asyncio
import math

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import igpo
from palaestra.types import Episode, Group, Reward, Row, Segment

from tests.recipes.objectives.helpers import advantages, by_token, near, scored

TWO = [
    {"turn_rewards": [0, 0, 1.0], "turn_lengths": [1, 1, 1], "gold_prob": [0.1, 0.3, 0.25]},
    {"turn_rewards": [0, 0, 0], "turn_lengths": [1, 1, 1], "gold_prob": [0.2, 0.2, 0.3]},
]


def test_igpo():
    found = advantages(igpo.build(), *TWO)
    assert found[0] == near([1.444939, 1.467874, 2.178876]) and found[1] == near([-1.444939, -0.871550, -0.573388])


def test_igpo_by_position_centres_returns():
    """Returns 1.15 .95 1 and .1 .1 0, minus their means .625 .525 .5."""
    found = advantages(igpo.build("position"), *TWO)
    assert found[0] == near([0.525, 0.425, 0.5]) and found[1] == near([-0.525, -0.425, -0.5])


def test_igpo_separate_pools():
    """Outcomes 1 0 give 1 -1; gains .2 -.05 0 .1: mean .0625, std .0960."""
    found = advantages(igpo.build("separate"), *TWO)
    z = [(x - 0.0625) / np.std([0.2, -0.05, 0, 0.1]) for x in (0.2, -0.05, 0, 0.1)]
    assert found[0] == near([z[0] + z[1] + 1, z[1] + 1, 1], 1e-4)
    assert found[1] == near([z[2] + z[3] - 1, z[3] - 1, -1], 1e-4)


def test_igpo_discounts():
    found = advantages(igpo.build(gamma=0.5), *TWO)[0]
    assert found == near([-0.022936 + 0.5 * (-0.711002 + 0.5 * 2.178876), -0.711002 + 0.5 * 2.178876, 2.178876])


def test_igpo_edges():
    assert advantages(igpo.build(), *scored(1, 0)) == by_token(1, -1)  # one turn: GRPO, ddof 0
    equal = [{**t, "turn_rewards": [0, 0, 0]} for t in TWO]
    assert any(np.ptp(a) > 0.1 for a in advantages(igpo.build(), *equal))  # advantages do not collapse
    short = [{**TWO[0], "gold_prob": [0.1, 0.3]}, {**TWO[1], "gold_prob": [0.2]}]
    assert advantages(igpo.build(), *short) == by_token(
        1, -1, n=sum(TWO[0]["turn_lengths"])
    )  # the outcome alone, for every turn
    with pytest.raises(UserError, match="gold_prob"):
        advantages(igpo.build(), {"reward": 1, "turn_lengths": [1, 1]})


def test_shuffled_gains_are_the_same_gains():
    a = advantages(igpo.build("position", shuffle=True), *TWO)
    assert sum(x[-1] for x in a) == near(0) and a != advantages(igpo.build("position"), *TWO)


def test_gold_probability_is_that_of_the_answer(context):
    """Two turns: the fact equals the geometric mean that the model gives after each context."""
    ctx = context("hop")
    task = ctx.bench.tasks.task("train", 0)
    dialect = ctx.engine().dialect
    first, tool = dialect.encode_text("hello"), dialect.encode_text("there")
    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (-1.0,)}
    row = Row(
        segments=(
            Segment(ids=first),
            Segment(ids=first[:1], **said),
            Segment(ids=tool),
            Segment(ids=tool[:1], turn=1, **said),
        )
    )
    group = Group(task=task, episodes=(Episode(rows=(row,), reward=Reward(total=0.0)), Episode(status="error:x")))
    found = asyncio.run(igpo.GoldProbability("ANSWER({})")(ctx, ("k",), group)).episodes[0].facts["gold_prob"]
    ids = (*first, first[0], *tool, *dialect.encode_text("ANSWER("))
    gold, module, expected = dialect.encode_text(task.answer), ctx.model("policy"), 0.0
    for j, token in enumerate(gold):
        hidden = module.hidden(torch.tensor([[*ids, *gold[:j]]]))[0, -1:]
        expected += torch.log_softmax(module.logits(hidden)[0].float(), -1)[token].item()
    assert len(found) == 2 and found[1] == pytest.approx(np.exp(expected / len(gold)), rel=1e-3)


def test_kl_terms_of_weight_k3():
    """At ref_logp = -1.5 and logp = -1, d = .5: the loss k3 has the slope 1 - exp(-d)."""
    ref = {"ref_logp": [[-1.5] * 4] * 2}
    slope = 1 - math.exp(-0.5)
    one = explain(igpo.build(kl=0.1), [scored(1, 1, **ref)])["token_weights"][0]
    assert one[0] == near([-0.1 * slope / 8] * 4)
    assert igpo.build().references == {} and igpo.build(kl=0.1).references == {"ref": "policy"}


def test_an_answer_is_forced_alone_but_in_the_form_of_the_embedded_problem():
    forms = [r.collect.links[-1].template for r in (igpo.build(), igpo.embedded(), igpo.embedded(template="<{}>"))]
    assert forms == ["{}", "ANSWER({})", "<{}>"] and igpo.CARD.task == "hop"
