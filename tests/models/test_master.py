"""Weights of bfloat16 move by the steps that float32 would make, rounded once."""

import copy

import torch
from palaestra.models.load import frozen_copy, load, trainable_copy
from palaestra.models.master import MasterWeights
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
    assert all(torch.equal(a, b) for a, b in zip(optimiser.masters, other.masters, strict=True))
