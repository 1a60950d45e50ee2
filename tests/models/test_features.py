"""Reductions of hidden states and of attention: against the naive computation, and by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.models.forward import forward
from palaestra.models.inside.attention import fai, read_maps, split_heads, waad
from palaestra.models.inside.features import effective_rank
from palaestra.models.load import load
from palaestra.types import Example, Row, Segment
from palaestra.update import pack


@pytest.fixture(scope="module")
def model():
    model = load("tiny")
    model.module.double()
    for name in ("value", "projection"):
        model.add_head(name)
    model.heads["value"].double()
    model.heads["projection"].double()
    torch.nn.init.normal_(model.heads["value"].out.weight, generator=torch.Generator().manual_seed(0))
    return model


def batch_of(replies, columns=None):
    """Two prompt tokens and replies of some lengths; the second reply has untrained tokens in its middle."""
    examples = []
    for b, n in enumerate(replies):
        said = tuple(int(x) for x in np.random.default_rng(b).integers(0, 250, n))
        row = Row(segments=(Segment(ids=(1, 2)), Segment(ids=said, trained=True, logp=(0.0,) * n)))
        if b == 1:
            row = row.add(Segment(ids=(9, 9))).add(Segment(ids=said, trained=True, logp=(0.0,) * n))
        examples.append(Example(row=row, columns=columns[b] if columns else {}))
    return pack(examples, dtype=torch.float64)


@torch.no_grad()
def hidden_before(model, batch, b):
    """[n, D] the states that chose the trained tokens of row b."""
    n = int(batch["length"][b])
    states = model.hidden(batch["ids"][b : b + 1, :n])[0]
    return states[(batch.mask[b, 1:n] > 0).nonzero()[:, 0]]


def naive_rank(z):
    s = np.linalg.svd(z - z.mean(0), compute_uv=False)
    p = s[s > 0] / s.sum()
    return float(np.exp(-(p * np.log(p)).sum())) if len(z) > 1 else 0.0


def test_effective_rank_by_hand():
    z = torch.tensor([[[1.0, 0], [-1, 0], [0, 1], [0, -1]]])
    assert effective_rank(z).item() == pytest.approx(2)
    assert effective_rank(torch.ones(1, 5, 3)).item() == 0  # equal states span nothing
    assert effective_rank(z[:, :1]).item() == 0


def test_prefix_rank(model):
    batch = batch_of([7, 4, 1])
    found = forward(model, batch, ("prefix_rank:3",))["prefix_rank:3"]
    for b in range(3):
        z, got = hidden_before(model, batch, b).numpy(), found[b][batch.mask[b] > 0].tolist()
        for k in range(1, len(z) + 1):
            expected = naive_rank(z[:k]) if k % 3 == 0 or k == len(z) else 0.0
            assert got[k - 1] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert not found[batch.mask == 0].any()


def test_head_gradient_is_the_difference_of_unembeddings(model):
    """W^T (onehot(y) - pi) / temperature, averaged over the row."""
    batch = batch_of([5, 3])
    batch.columns["temperature"][:] = 0.7
    found = forward(model, batch, ("head_gradient", "logp"))["head_gradient"]
    W = model.causal.get_output_embeddings().weight.detach()
    assert found.shape == (2, 1, W.shape[1]) and not found.requires_grad
    for b in range(2):
        h, y = hidden_before(model, batch, b), batch["ids"][b][batch.mask[b] > 0]
        expected = (W[y] - torch.softmax(h @ W.T / 0.7, -1) @ W).mean(0) / 0.7
        torch.testing.assert_close(found[b, 0], expected)


def test_embedding_weighs_a_span_by_values(model):
    spans = [{"span": np.array([0, 0, 1, 1, 0, 0.0])}, {"span": np.zeros(10)}]
    batch = batch_of([4, 3], spans)
    found = forward(model, batch, ("embedding",))["embedding"]
    h = hidden_before(model, batch, 0)[:2]
    weight = torch.softmax(model.heads["value"](h), 0)
    torch.testing.assert_close(found[0, 0], weight @ model.heads["projection"](h))
    assert not found[1].any()  # an empty span
    found[0].sum().backward()
    assert model.heads["projection"].out.weight.grad.abs().sum() > 0
    assert model.heads["value"].out.weight.grad.abs().sum() > 0


def test_attention_scores_by_hand():
    A = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.1, 0.2, 0.6]], dtype=torch.float64)
    on = torch.ones(4, dtype=torch.bool)
    assert waad(A, A, on, 10).tolist() == pytest.approx([0, 0.5, 0.7, 0.7])
    assert waad(A, A, on, 1).tolist() == pytest.approx([0, 0.5, 0.5, 0.4])
    assert fai(A, A, on, 1, 2).tolist() == pytest.approx([0.35, 0.2, 0.2, 0])
    assert not fai(A, A, on, 10, 50).any()  # shorter than the near end
    answer = torch.tensor([False, False, True, True])  # tokens of the prompt are looked at, and do not look
    assert fai(A, A, answer, 1, 2).tolist() == pytest.approx([0.2, 0.2, 0.2, 0])


def test_local_heads_are_those_with_the_shortest_span():
    here, back = torch.eye(3), torch.zeros(3, 3)
    back[:, 0] = 1
    local, globe = split_heads(torch.stack([back, here, (here + back) / 2]), torch.ones(3, dtype=torch.bool))
    assert torch.equal(local, here) and torch.equal(globe, back)
    wide, near = torch.zeros(4, 4), torch.eye(4)
    wide[[0, 1, 2, 3], [0, 0, 0, 3]] = 1  # far in the prompt alone
    near[3, 2:] = torch.tensor([1.0, 0.0])
    local, globe = split_heads(torch.stack([near, wide]), torch.tensor([False, False, False, True]))
    assert torch.equal(local, wide) and torch.equal(globe, near)


def test_layers_are_those_of_the_middle_third():
    """Of 24 the five from 8 to 16; of two, which are fewer than five, those there are."""
    maps = lambda L: lambda ids, seen: tuple(torch.full((1, 1, 1, 1), float(i)) for i in range(L))
    for layers, chosen in ((24, [8, 10, 12, 14, 16]), (2, [1])):
        found = read_maps(SimpleNamespace(attention=maps(layers)), torch.zeros(1, 1))
        assert found[0, :, 0, 0].tolist() == chosen


def test_maps_do_not_see_the_padding_and_leave_the_model_as_it_was(model):
    needs, batch = ("waad:10", "fai:1:4"), batch_of([7, 4, 2])
    assert model.packs  # whose first look sets the attention that stays
    before = model.causal.config._attn_implementation
    found = forward(model, batch, (*needs, "logp"))
    assert model.causal.config._attn_implementation == before
    torch.testing.assert_close(found["logp"], forward(model, batch, ("logp",))["logp"])
    alone = forward(model, batch.part(torch.tensor([2])), needs)
    for n in needs:
        torch.testing.assert_close(found[n][2, : alone[n].shape[1]], alone[n][0], atol=1e-6, rtol=1e-5)
        assert not found[n][batch.mask == 0].any() and found[n].any()


def test_features_reach_signals(context):
    """[1, D] for a row, also where nothing is trained; never a [T, D] array."""
    from palaestra.types import Episode, Group, Reward, Task

    said = Segment(ids=(5, 6, 7), trained=True, policy="policy", logp=(-1.0,) * 3)
    rows = (Row(segments=(Segment(ids=(1, 2)), said)), Row(segments=(Segment(ids=(1, 2, 3)),)))
    group = Group(task=Task(id="t"), episodes=(Episode(rows=rows, reward=Reward(total=1.0), status="finished"),))
    needs = (("policy", "head_gradient"), ("policy", "prefix_rank:2"), ("policy", "power_logp"))
    ctx = context()
    width = (1, ctx.model("policy").width)
    trained, silent = ctx.measure([group], needs)[0][0]
    assert trained["policy_head_gradient"].shape == silent["policy_head_gradient"].shape == width
    assert trained["policy_prefix_rank:2"].shape == (5,) and silent["policy_prefix_rank:2"].shape == (3,)
    uniform = Group(task=Task(id="t"), episodes=(
        Episode(rows=rows[:1], reward=Reward(total=1.0), status="finished", facts={"exponent": 0.0}),))  # fmt: skip
    found = context().measure([uniform], needs[2:])[0][0][0]["policy_power_logp"]
    assert found[2:] == pytest.approx([-np.log(263)] * 3, abs=1e-5)
