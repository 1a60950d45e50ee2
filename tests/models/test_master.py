"""Weights of bfloat16 move by the steps that float32 would make, rounded once."""

import copy

import pytest
import torch
from palaestra.models import master
from palaestra.models.load import frozen_copy, load, trainable_copy
from palaestra.models.master import (
    MasterWeights,
    join_halves,
    load_optimiser,
    round_at_random,
    rounded_bits,
    split_halves,
)
from palaestra.update import AdamW


def fitted(module, optimiser, steps, seed=0):
    torch.manual_seed(seed)
    for _ in range(steps):
        optimiser.zero_grad()
        for _ in range(2):  # micro-batches
            module(torch.randn(5, 4).to(module.weight)).float().pow(2).mean().backward()
        for group in optimiser.param_groups:
            group["lr"] = 1e-4
        optimiser.step()


def test_small_steps_are_not_rounded_away():
    torch.manual_seed(1)
    low = torch.nn.Linear(4, 3).bfloat16()
    start = low.weight.detach().clone()
    high = copy.deepcopy(low).float()
    fitted(low, AdamW().build(list(low.parameters())), 30)
    fitted(high, AdamW().build(list(high.parameters())), 30)
    assert not torch.equal(low.weight, start)
    torch.testing.assert_close(low.weight.float(), high.weight, atol=1e-3, rtol=2**-8)


def test_micro_batches_sum_in_float32():
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimiser = AdamW().build([p])
    for _ in range(300):
        p.sum().backward()  # bfloat16 counts to 256 and no further
    assert optimiser.param_groups[0]["params"][0].grad.item() == 300


def test_state_goes_round_and_copies_are_free():
    model = load("tiny", dtype="bfloat16")
    optimiser = AdamW(lr=1e-3).build(model.trainable())
    assert isinstance(optimiser, MasterWeights)
    for twin in (trainable_copy(model), frozen_copy(model)):
        assert twin.dtype == torch.bfloat16
    twin = trainable_copy(model)
    twin.hidden(torch.tensor([[1, 2, 3]])).float().sum().backward()
    assert all(m.grad is None for m in optimiser.masters)  # a copy does not feed the original's masters
    state = optimiser.state_dict()
    other = AdamW(lr=1e-3).build(twin.trainable())
    other.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(optimiser.values(), other.values(), strict=True))


def numbers():
    """Float32 numbers of all sizes and both signs, all that bfloat16 has between, and the middles between two of its."""
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32) << 16
    x = torch.cat([(upper + low).view(torch.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    return x[x.isfinite() & x.bfloat16().isfinite()]


def test_a_master_is_its_weight_and_what_this_lacks():
    """Every number comes back but a middle whose even neighbour is the smaller, which comes back as the one before it."""
    x, bits = numbers(), numbers().view(torch.int32)
    upper, lower = torch.empty_like(x, dtype=torch.bfloat16), torch.empty_like(x, dtype=torch.int16)
    split_halves(x, upper, lower)
    moved = bits & 0x1FFFF == 0x8000
    assert torch.equal(upper, x.bfloat16()) and moved.sum() > 30000
    back = join_halves(upper, lower)
    assert torch.equal(back.view(torch.int32), bits - moved.int()) and torch.equal(back.bfloat16(), upper)
    again = torch.empty_like(upper)
    split_halves(back, again, lower)
    assert torch.equal(join_halves(again, lower).view(torch.int32), back.view(torch.int32))


def test_a_weight_that_was_set_to_zero_is_zero():
    zeros, lower = torch.tensor([0.0, -0.0]).bfloat16(), torch.tensor([-9, -9], dtype=torch.int16)
    assert join_halves(zeros, lower).tolist() == [0.0, 0.0]


def test_between_steps_there_is_no_float32_weight(monkeypatch):
    """And the steps are those of masters that are whole, bit for bit, however few take a step together."""
    torch.manual_seed(2)
    low = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)).bfloat16()
    twin = copy.deepcopy(low)
    masters = [torch.nn.Parameter(p.detach().float()) for p in twin.parameters()]
    plain = torch.optim.AdamW(masters, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ours = AdamW(weight_decay=0.1).build(list(low.parameters()))
    assert isinstance(ours, MasterWeights)
    monkeypatch.setattr(master, "PIECE", 8)
    for n in range(20):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(n)).bfloat16()
        for module in (low, twin):
            module(x).float().pow(2).mean().backward()
        for p, m in zip(twin.parameters(), masters, strict=True):
            m.grad, p.grad = p.grad.float(), None
        plain.step()
        ours.param_groups[0]["lr"] = 1e-2
        ours.param_groups[0]["weight_decay"] = 0.1
        ours.step()
        with torch.no_grad():
            for p, m in zip(twin.parameters(), masters, strict=True):
                p.copy_(m)
        assert all(m.untyped_storage().nbytes() == 4 and m.grad is None for m in ours.masters)
        assert all(torch.equal(a, b) for a, b in zip(ours.values(), masters, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(low.parameters(), twin.parameters(), strict=True))


def test_a_weight_of_float32_is_its_own_master():
    """As the heads of a model in bfloat16 are."""
    head, low = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3).bfloat16())
    ours = AdamW().build([head, low])
    assert isinstance(ours, MasterWeights)
    assert ours.masters[0] is head and ours.masters[1] is not low
    assert not isinstance(AdamW().build([head]), MasterWeights)


# ---- moments in bfloat16


def test_rounding_at_random_is_right_in_the_mean():
    """Over all 65536 values of the noise the mean is the number itself, exactly; each result is a neighbour."""
    noise = torch.arange(1 << 16, dtype=torch.int32)
    for x in (1.0, 1.0 + 2**-23, -3.14159274, 1.9999999, 6.1e-39, -1e30):
        given = torch.full((1 << 16,), x, dtype=torch.float32)
        rounded = rounded_bits(given, noise).to(torch.int16).view(torch.bfloat16).double()
        assert rounded.mean().item() == given[0].double().item()
        assert len(rounded.unique()) <= 2


def test_noise_is_even_apart_in_a_pair_and_of_its_key():
    """Halfway between two neighbours half of the numbers go up, in either of a pair, and a quarter in both."""
    x = torch.full((1 << 16,), 1.0 + 2**-8)
    a, b = round_at_random((x, x), ("run", 0))
    up, also = a > 1, b > 1
    for share, expected in ((up, 0.5), (also, 0.5), (up & also, 0.25)):
        assert abs(share.double().mean().item() - expected) < 0.01  # five standard deviations
    assert torch.equal(a, round_at_random((x, x), ("run", 0))[0])
    assert not torch.equal(a, round_at_random((x, x), ("run", 1))[0])


def test_narrow_moments_follow_what_rounding_to_the_nearest_would_leave(monkeypatch):
    """b2 = 0.999 moves v by less than half of bfloat16's last bit: at random it goes to 1 - 0.999^t all the same."""
    p = torch.nn.Parameter(torch.zeros(4096))
    ours = AdamW(betas=(0.9, 0.999), narrow_moments=True).build([p])
    assert isinstance(ours, MasterWeights)
    for n in range(600):
        ours.key = (n,)
        p.grad = torch.ones(4096)
        ours.step()
    moments = ours.state[p]
    assert {m: moments[m].dtype for m in master.MOMENTS} == dict.fromkeys(master.MOMENTS, torch.bfloat16)
    assert moments["exp_avg_sq"].double().mean().item() == pytest.approx(1 - 0.999**600, rel=2e-3)
    nearest = torch.zeros(()).bfloat16()
    for _ in range(600):
        nearest = (0.999 * nearest.float() + 0.001).bfloat16()
    assert abs(nearest.item() - (1 - 0.999**600)) > 0.05  # which is why


@pytest.mark.parametrize("narrow", [False, True])
def test_a_run_goes_on_with_moments_of_the_other_kind(narrow):
    """Moments are those that were stored, rounded to bfloat16 where they become narrow."""

    def stepped(stage):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 64))
        optimiser = stage.build([p])
        p.grad = torch.linspace(1, 3, 64)
        stage.set(optimiser, 0)
        if isinstance(optimiser, MasterWeights):
            optimiser.key = (0,)
        optimiser.step()
        return optimiser

    before, after = (stepped(AdamW(lr=0.1, narrow_moments=n)) for n in (not narrow, narrow))
    stored = copy.deepcopy(before.state_dict())
    load_optimiser(after, stored)
    (old,), (new,) = before.state.values(), after.state.values()
    for name in master.MOMENTS:
        assert new[name].dtype == (torch.bfloat16 if narrow else torch.float32)
        assert torch.equal(new[name], old[name].to(new[name].dtype))
    after.step()
