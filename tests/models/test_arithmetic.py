"""Arithmetic of weights by hand: vectors of the catalogue, merges that are refused, edits that leave no trace."""

import asyncio
import copy

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models import arithmetic as a
from palaestra.models.load import load, save
from palaestra.models.model import Model, trainable_copy
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.run.merging import Merged
from palaestra.types import Result
from torch import nn

from tests.rows import every

near = lambda x: pytest.approx(x, abs=1e-6)
ZERO = {"w": torch.zeros(5)}
D = [{"w": torch.tensor(x)} for x in ((1.0, -0.2, 0.5, 0.1, -0.9), (0.8, 0.3, -0.6, 0.05, -0.7))]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (a.Average(), (0.9, 0.05, -0.05, 0.075, -0.8)),
        (a.TaskArithmetic(0.7), (1.26, 0.07, -0.07, 0.105, -1.12)),
        (a.Ties(removed=0.4), (0.9, 0.3, -0.6, 0, -0.8)),
        (a.Ties(removed=0.8), (0.9, 0, 0, 0, -0.8)),
        (a.Ties(removed=0.8, scale=0.5), (0.45, 0, 0, 0, -0.4)),
        (a.Ties(removed=0.0), (0.9, 0.3, -0.6, 0.075, -0.8)),
        (a.Dare(drop=0.0, then=a.Ties(removed=0.4)), (0.9, 0.3, -0.6, 0, -0.8)),
    ],
)
def test_merges_of_the_catalogue(how, expected):
    """TIES at .4: the second smallest is the threshold and stays. The sum of 1 - .2 + .3 elects +: .3 stays alone."""
    assert how(ZERO, D)["w"].tolist() == near(list(expected))
    moved = {"w": ZERO["w"] + 10}
    shifted = how(moved, [{"w": d["w"] + 10} for d in D])["w"] - 10
    assert shifted.tolist() == pytest.approx(list(expected), abs=1e-5)


def test_a_sum_of_nothing_elects_plus():
    assert a.elect_and_average(torch.tensor([[1.0], [-1.0]])).tolist() == [1.0]
    assert a.elect_and_average(torch.zeros(2, 1)).tolist() == [0.0]


def test_soup_of_salsa():
    pair = [{"w": torch.tensor([1.0, 2, -1])}, {"w": torch.tensor([3.0, 0, 1])}]
    assert a.Average()(pair[0], pair)["w"].tolist() == [2, 1, 0]
    assert a.Average((0.25, 0.75))(pair[0], pair)["w"].tolist() == [2.5, 0.5, 0.5]


def test_interpolation_where_one_model_is_the_base():
    found = a.TaskArithmetic(0.25)({"w": torch.ones(2)}, [{"w": torch.ones(2)}, {"w": torch.tensor([3.0, -1])}])
    assert found["w"].tolist() == [1.5, 0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_model_averaged_with_itself_is_itself(n, dtype):
    w = {"w": (torch.from_numpy(np.random.default_rng(n).normal(0, 1e-2, 4000))).to(dtype)}
    assert torch.equal(a.Average()(w, [w] * n)["w"], w["w"]) and a.Average()(w, [w] * n)["w"].dtype == dtype
    assert torch.equal(a.TaskArithmetic()(w, [w] * n)["w"], w["w"])


def test_shares_of_0_and_1_are_the_models_to_the_bit():
    pair = [{"w": torch.randn(1000, generator=torch.Generator().manual_seed(i))} for i in range(2)]
    assert torch.equal(a.Average((1.0, 0.0))(pair[0], pair)["w"], pair[0]["w"])
    assert torch.equal(a.Average((0.0, 1.0))(pair[0], pair)["w"], pair[1]["w"])


def test_dare_keeps_the_mean():
    """Half are dropped, the others doubled; the same seed draws the same, and models differ."""
    one = {"w": torch.ones(20_000)}
    base = {"w": torch.zeros(20_000)}
    found = a.Dare(drop=0.5, then=a.TaskArithmetic(1.0))(base, [one])["w"]
    assert set(found.tolist()) == {0.0, 2.0} and found.mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(found, a.Dare(drop=0.5, then=a.TaskArithmetic(1.0))(base, [one])["w"])
    assert not torch.equal(found, a.Dare(drop=0.5, then=a.TaskArithmetic(1.0), seed=1)(base, [one])["w"])
    both = a.Dare(drop=0.5, then=a.TaskArithmetic(1.0))(base, [one, one])["w"]
    assert set(both.tolist()) == {0.0, 2.0, 4.0}


@every("how", [a.Average(), a.TaskArithmetic(), a.Ties(), a.Dare(), a.PermuteUnits()])
@every(
    ("other", "told"),
    [
        ({"w": torch.zeros(6)}, r"'w' is \(5,\) in one and \(6,\) in number 1"),
        ({"v": torch.zeros(5)}, "'v' is not in the first"),
        ({}, "'w' is only in the first"),
    ],
)
def test_other_shapes_are_refused(how, other, told):
    with pytest.raises(UserError, match=told):
        how(ZERO, [other])


def test_settings_that_make_no_merge_are_refused():
    with pytest.raises(UserError, match=r"Dare.drop is 1"):
        a.Dare(drop=1.0)
    with pytest.raises(UserError, match=r"Ties.removed is -1"):
        a.Ties(removed=-1)
    for shares in ((0.5, 0.6), (1.0,)):
        with pytest.raises(UserError, match="with the sum 1"):
            a.Average(shares)(ZERO, D)
    with pytest.raises(UserError, match="units of other MLPs"):
        a.PermuteUnits()(ZERO, [ZERO])


# ---- edits


def rows_of(*rows):
    layer = nn.Linear(2, len(rows), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(rows))
    return layer


def test_row_edit_of_the_catalogue():
    """v = (1, 0) on the row most opposed to it: h = (2, 0) moves from -2 to -1, h = (0, 2) stays at .4."""
    layer, v = rows_of((-1.0, 0.2), (0.5, 0.5), (-0.2, 1.0)), torch.tensor([1.0, 0.0])
    undo = a.add_to_rows(layer, {"weight": [0]}, v, 0.5)
    assert layer.weight.flatten().tolist() == near([-0.5, 0.2, 0.5, 0.5, -0.2, 1.0])
    assert layer(torch.tensor([2.0, 0]))[0].item() == near(-1.0)
    assert layer(torch.tensor([0.0, 2]))[0].item() == near(0.4)
    undo()
    assert torch.equal(layer.weight, torch.tensor([(-1.0, 0.2), (0.5, 0.5), (-0.2, 1.0)]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_edit_is_undone_to_the_bit(dtype):
    """Where subtraction would leave rounding behind; several edits of a row too."""
    torch.manual_seed(0)
    layer, v = nn.Linear(64, 256).to(dtype), torch.randn(64) * 3
    before = copy.deepcopy(layer.state_dict())
    first = a.add_to_rows(layer, {"weight": range(0, 256, 2)}, v, 0.37)
    second = a.add_to_rows(layer, {"weight": [0, 1]}, v, 1.1)
    with torch.no_grad():
        back = (layer.weight[2] - (0.37 * v).to(dtype)).to(dtype)
    assert not torch.equal(back, before["weight"][2]), "subtraction does not undo it, so the test can fail"
    second(), first()
    assert all(torch.equal(t, before[n]) for n, t in layer.state_dict().items())


def test_all_weights_of_a_model_are_set_and_put_back():
    model = load("tiny")
    before = copy.deepcopy(model.module.state_dict())
    weights = a.weights_of(model.module)
    undo = a.write_weights(model.module, {n: t + 1 for n, t in weights.items()})
    assert not any(torch.equal(p, before[n]) for n, p in model.module.named_parameters())
    undo()
    assert all(torch.equal(t, before[n]) for n, t in model.module.state_dict().items())


def test_edits_of_what_is_not_there_are_refused():
    layer = rows_of((-1.0, 0.2))
    for name, direction, told in (("up", torch.ones(2), "'up' is not there"), ("weight", torch.ones(3), r"\(1, 2\)")):
        with pytest.raises(UserError, match=told):
            a.add_to_rows(layer, {name: [0]}, direction)
    with pytest.raises(UserError, match="same shapes"):
        a.write_weights(layer, {"weight": torch.zeros(2, 2)})


# ---- barriers


def test_barrier_by_hand():
    """Losses 1 and 2 at the ends: the line is 1.5 in the middle."""
    assert a.linear_barrier((0, 0.5, 1), (1.0, 1.8, 2.0)) == near(0.3)
    assert a.linear_barrier((0, 0.25, 0.5, 1), (1.0, 1.1, 0.9, 2.0)) == 0.0


def tiny_loss(model, weights):
    ids = torch.tensor([model.tokenizer("12+34\n2+4+0=6\n1+3+0=4\n= 46")["input_ids"]])
    undo = a.write_weights(model.module, weights)
    with torch.no_grad():
        found = model.module(input_ids=ids, labels=ids).loss.item()
    undo()
    return found


def test_another_order_of_units_is_the_same_function_in_another_basin():
    model = load("tiny")
    here = a.weights_of(trainable_copy(model).module)
    there = a.PermuteUnits()(here, [here])
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    losses = [tiny_loss(model, a.Average((1 - s, s))(here, [here, there])) for s in shares]
    assert losses[0] == pytest.approx(losses[-1], abs=1e-4)
    assert a.linear_barrier(shares, losses) > 0.1
    assert a.linear_barrier(shares, [tiny_loss(model, here)] * 5) == 0.0


# ---- a part of a pipeline


class Nudge:
    """Adds to all weights."""

    def __init__(self, by):
        self.by = by

    async def run(self, ctx):
        model = ctx.model("policy")
        with torch.no_grad():
            for p in model.module.parameters():
                p.add_(self.by)
        save(model, ctx.folder / "model")
        return Result(artifacts={"policy": str(ctx.folder / "model")})


def merge_of(*by, how=a.Average(), names=("a", "b")):
    parts = {n: Part(Nudge(x)) for n, x in zip(names, by, strict=True)}
    merged = Part(Merged(names, how), models={n: Output(n) for n in names})
    return Pipeline(parts={**parts, "merged": merged})


def test_a_part_merges_models(context, tmp_path):
    ctx = context(out=tmp_path)
    start = a.weights_of(trainable_copy(ctx.model("policy")).module)
    result = asyncio.run(merge_of(0.25, -0.75).run(ctx))
    found = a.weights_of(load(result.artifacts["policy"]).module)
    assert all(torch.allclose(found[n], t - 0.25, atol=1e-6) for n, t in start.items())
    size = sum(t.numel() for t in start.values()) ** 0.5
    assert result.metrics["distance/a"] == pytest.approx(0.25 * size, rel=1e-3)
    assert result.metrics["distance/b"] == pytest.approx(0.75 * size, rel=1e-3)
    again = a.weights_of(ctx.model("policy").module)
    assert all(torch.equal(again[n], t) for n, t in start.items()), "the run's own model stays"


def test_a_vocabulary_of_another_model_is_refused(context, tmp_path):
    ctx = context(out=tmp_path)
    own = ctx.model("policy")
    other = own.tokenizer.train_new_from_iterator(["other words"] * 9, 300)
    ctx.models["other"] = Model("other", own.module, other, "elsewhere")
    with pytest.raises(UserError, match="elsewhere has another vocabulary"):
        asyncio.run(Merged(("other",), a.Average()).run(ctx))


# ---- arcs, ranks and relaxed changes


@pytest.mark.parametrize(
    ("first", "second", "share", "expected"),
    [
        ((1, 0), (0, 1), 1 / 3, (0.8660254, 0.5)),  # sin 60, sin 30
        ((2, 0), (0, 1), 0.5, (1.4142136, 0.7071068)),  # sin 45 of each, with its own length
        ((1, 0), (0.5, 0.8660254), 0.5, (0.8660254, 0.5)),  # of 60 degrees the middle
        ((1, 0), (0.5, 0.8660254), 0.25, (0.9659258, 0.2588190)),  # 15 degrees
        ((1, 1), (3, 3), 0.5, (2, 2)),  # one direction: the line
        ((1, 0), (-1, 0), 0.25, (0.5, 0)),  # opposite ones have no arc
        ((0, 0), (0, 4), 0.25, (0, 1)),
        ((1, 0), (0, 1), 0.0, (1, 0)),
        ((1, 0), (0, 1), 1.0, (0, 1)),
    ],
)
def test_arcs_by_hand(first, second, share, expected):
    pair = [{"w": torch.tensor(x, dtype=torch.float32)} for x in (first, second)]
    assert a.Slerp(share)(pair[0], pair)["w"].tolist() == near(list(expected))


def test_an_arc_is_that_of_the_whole_weight():
    """A matrix is one vector: rows of their own would have other angles."""
    pair = [{"w": torch.tensor(x)} for x in ([[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]])]
    assert a.Slerp(0.5)(pair[0], pair)["w"].flatten().tolist() == near([0.7071068, 0, 0, 0.7071068])
    with pytest.raises(UserError, match="two models, not 3"):
        a.Slerp()(pair[0], [pair[0]] * 3)
    with pytest.raises(UserError, match=r"Slerp.share is 2"):
        a.Slerp(2)


def test_the_largest_singular_values_by_hand():
    """diag(3, 1) turned by 45 degrees is [[2, 1], [1, 2]]; of rank one it is 3/2 everywhere."""
    turned = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    assert torch.allclose(a.low_rank(turned, 1), torch.full((2, 2), 1.5), atol=1e-6)
    row = turned[0]
    assert a.low_rank(turned, 2) is turned and a.low_rank(row, 1) is row
    stack = torch.stack([turned, torch.diag(torch.tensor([1.0, 4.0]))])
    assert torch.allclose(a.low_rank(stack, 1)[1], torch.diag(torch.tensor([0.0, 4.0])), atol=1e-6)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 5)))
    error = np.linalg.svd(x.numpy(), compute_uv=False)[3:]
    assert (x - a.low_rank(x, 3)).norm().item() == near(np.sqrt((error**2).sum())), "Eckart and Young"


def test_task_vectors_of_low_rank_by_hand():
    base = {"w": torch.eye(2), "b": torch.zeros(2)}
    model = {"w": torch.tensor([[3.0, 1.0], [1.0, 3.0]]), "b": torch.tensor([1.0, 2.0])}
    made = a.LowRank(rank=1, scale=0.5)(base, [model])
    assert made["w"].flatten().tolist() == near([1.75, 0.75, 0.75, 1.75]) and made["b"].tolist() == [0.5, 1.0]
    both = a.LowRank(rank=1, scale=0.5)(base, [model, model])
    assert both["w"].flatten().tolist() == near([2.5, 1.5, 1.5, 2.5])


def test_relaxed_changes_by_hand():
    """Inputs 1, 2 and 4 with omega .4: 1 - .6 times a quarter, a half and one."""
    scale = a.relaxation({"w": torch.tensor([1.0, 2.0, 4.0]), "dead": torch.zeros(2)}, 0.4)
    assert scale["w"].tolist() == near([0.85, 0.7, 0.4]) and scale["dead"].tolist() == [1, 1]
    base = {"w": torch.ones(2, 3), "b": torch.zeros(2)}
    model = {"w": torch.ones(2, 3) * 3, "b": torch.ones(2)}
    made = a.Relaxed(a.TaskArithmetic(0.5), scale)(base, [model])
    assert made["w"].tolist() == [near([1.85, 1.7, 1.4])] * 2 and made["b"].tolist() == [0.5, 0.5]
