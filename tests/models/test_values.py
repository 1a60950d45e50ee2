"""A head over the vocabulary: its needs, its gradient, and acting by it in engine and scorer alike."""

import asyncio

import numpy as np
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.models.forward import forward
from palaestra.models.load import load, save
from palaestra.models.score import score_pairs
from palaestra.types import Sampling

from tests.models.test_models import batch_of, build
from tests.rounding import agree


def with_values(model, strength=0.0):
    head = model.add_head("q")
    torch.nn.init.normal_(head.out.weight, std=0.05, generator=torch.Generator().manual_seed(1))
    head.strength = strength
    return model


def test_it_starts_at_zero_and_changes_nothing():
    model, batch = build(), batch_of([5, 3])
    before = forward(model, batch, ["logp"])["logp"]
    head = model.add_head("q")
    out = forward(model, batch, ["q", "q_logsumexp", "logp"])
    on = batch.mask > 0
    assert torch.equal(out["logp"], before) and not out["q"].any()
    assert torch.allclose(out["q_logsumexp"][on], torch.tensor(model.vocabulary).double().log())
    assert not out["q_logsumexp"][~on].any() and head.out.weight.shape == (model.vocabulary, model.width)


def test_its_needs_and_their_gradient():
    """The gradient of logsumexp Q - Q(token) to the head's bias is softmax(Q) - onehot, summed over tokens."""
    model, batch = with_values(build()), batch_of([6, 4])
    head, ids = model.heads["q"].double(), batch["ids"]
    out = forward(model, batch, ["q", "q_logsumexp"])
    row, at = (batch.mask[:, 1:] > 0).nonzero(as_tuple=True)
    q = head(model.hidden(ids)[row, at])
    token = ids[row, at + 1]
    torch.testing.assert_close(out["q"][row, at + 1], q.gather(1, token[:, None])[:, 0])
    torch.testing.assert_close(out["q_logsumexp"][row, at + 1], q.logsumexp(1))
    (slope,) = torch.autograd.grad((out["q_logsumexp"] - out["q"]).sum(), head.out.bias)
    expected = (q.softmax(1) - torch.nn.functional.one_hot(token, model.vocabulary)).sum(0)
    torch.testing.assert_close(slope, expected)


def test_acting_by_hand():
    """pi = (.5, .3, .2), Q = (0, 1, 0), w = ln 2: (.5, .6, .2) / 1.3; the model learns by acting, the head does not."""
    model = load("tiny")
    head = model.add_head("q")
    head.out.weight.data, head.out.bias.data = torch.zeros(3, model.width), torch.tensor([0.0, 1.0, 0.0])
    head.strength = float(np.log(2))
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().requires_grad_()
    p = head.act(head(torch.zeros(1, model.width)), logits).softmax(-1)
    assert p[0].tolist() == pytest.approx([0.5 / 1.3, 0.6 / 1.3, 0.2 / 1.3])
    p[0, 1].backward()
    assert logits.grad.abs().sum() > 0 and head.out.bias.grad is None


@pytest.mark.parametrize("strength", [0.0, 1.5])
def test_engine_and_scorer_act_alike(strength):
    model, prompt = with_values(load("tiny"), strength), (3, *b"384+277")
    asked = OwnEngine(model).generate(prompt, Sampling(temperature=1.0, max_tokens=16), (0,))
    said = asyncio.run(asked)
    assert agree(np.abs(said.logp - score_pairs(model, [(prompt, said.ids)])[0]))
    plain = score_pairs(load("tiny"), [(prompt, said.ids)])[0]
    assert agree(np.abs(said.logp - plain)) == (strength == 0)


def test_twins_act_by_the_lesser_of_their_slow_copies():
    """Slow values (0, 2) and (1, 0): the least is (0, 0) at two tokens, whatever the heads that learn say."""
    model = load("tiny")
    for name, bias in (("q", (9.0, 9.0)), ("q2", (9.0, 9.0)), ("slow_q", (0.0, 2.0)), ("slow_q2", (1.0, 0.5))):
        head = model.add_head(name)
        head.out.bias.data[:2] = torch.tensor(bias)
        assert head.out.weight.requires_grad == (not name.startswith("slow"))
    values = model.action_values(torch.zeros(1, model.width))
    assert values[0, :2].tolist() == [0.0, 0.5]
    del model.heads["slow_q"], model.heads["slow_q2"]
    assert model.action_values(torch.zeros(1, model.width))[0, :2].tolist() == [9.0, 9.0]


def test_how_strongly_it_acts_is_saved(tmp_path):
    save(with_values(load("tiny"), 1.5), tmp_path)
    assert load(str(tmp_path)).heads["q"].strength == 1.5
