"""One optimiser step and the minibatches of a batch, against their formulas written out."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.method import Learner
from palaestra.models.master import MOMENTS, MasterWeights
from palaestra.objective.algebra import Algebra
from palaestra.types import Example, Row, Segment
from palaestra.update import AdamW, Cycle, Plain, backward, pack, step_optimiser

SLOPE = torch.tensor([1.0, 2.0])  # d logp / d theta, of every token


class Line:
    """A context with one learner whose log-probs are SLOPE . theta; `dumped` are the clocks of failed updates."""

    seed, step = 0, 0

    def __init__(self, dtype=torch.float64):
        self.theta = torch.nn.Parameter(torch.tensor([3.0, -1.0], dtype=dtype))
        self.told = SimpleNamespace(
            device=torch.device("cpu"), packs=False, position_bytes=1, trainable=lambda: [self.theta]
        )
        self.optimisers, self.dumped = {}, []

    def model(self, name):
        return self.told

    def optimiser(self, name, learner):
        return self.optimisers.setdefault(name, learner.optimiser.build([self.theta]))

    def forward(self, name, needs):
        return lambda batch: {"logp": (self.theta @ SLOPE.to(self.theta)).to(batch.mask) * torch.ones_like(batch.mask)}

    def backward(self, name, objective, batch, budget):
        return backward(self.forward(name, objective.needs), objective, batch, budget)

    def phase(self, name):
        return nullcontext()

    def moving(self, name):
        """Nothing is cached here."""

    def dump(self, name, learner, batch, metrics):
        self.dumped.append(metrics)


@dataclass(frozen=True)
class Pull(Algebra):
    """mean over tokens of -pull * logp: its gradient is -pull * SLOPE."""

    def __call__(self, out, batch):
        return -(out["logp"] * batch["pull"] * batch.mask).sum() / batch.n_tokens, {}


@dataclass(frozen=True)
class Cliff(Algebra):
    """0, with a gradient that is not finite."""

    def __call__(self, out, batch):
        return (out["logp"] - out["logp"].detach()).abs().sqrt().sum(), {}


def batch_of(*pulls, units=None):
    """A row of one to three trained tokens for each pull; rows of a unit share its name."""
    examples = []
    for i, pull in enumerate(pulls):
        said = Segment(ids=(1,) * (1 + i % 3), trained=True, policy="policy", logp=(0.0,) * (1 + i % 3))
        row = Row(segments=(Segment(ids=(0,)), said))
        columns = {"pull": np.full(2 + i % 3, pull), "place": float(i)}
        examples.append(Example(row=row, columns=columns, unit=units[i] if units else ""))
    return pack(examples, "policy", torch.float64)


def adamw(theta, gradients, lr, betas, eps, decay, clip, warmup):
    """arXiv:1711.05101, algorithm 2, of gradients whose norm is clipped; theta after every step."""
    (b1, b2), m, v, found = betas, 0.0, 0.0, []
    for t, g in enumerate(gradients, start=1):
        g = g * min(1.0, clip / np.linalg.norm(g))
        rate = lr * min(1.0, t / warmup)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        theta = theta - rate * decay * theta
        theta = theta - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        found.append(theta)
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_step_is_adamw_of_the_clipped_gradient(dtype):
    """Gradients of norm 2.2 and more are cut to 1.5, that of norm 1.1 is not; the rate rises over three steps."""
    settings = AdamW(lr=0.1, betas=(0.8, 0.9), eps=0.5, weight_decay=0.1, clip_norm=1.5, warmup=3)
    learner, ctx, pulls = Learner(credit=None, objective=Pull(), optimiser=settings), Line(dtype), (1.0, -3.0, 0.5, 2.0)
    slope = SLOPE.numpy().astype(float)
    expected = adamw(np.array([3.0, -1.0]), [-p * slope for p in pulls], 0.1, (0.8, 0.9), 0.5, 0.1, 1.5, 3)
    for clock, (pull, wanted) in enumerate(zip(pulls, expected, strict=True)):
        found = step_optimiser(ctx, "policy", learner, batch_of(pull, pull), clock, 10**6)
        assert found["grad_norm"] == pytest.approx(abs(pull) * 5**0.5, rel=1e-5) and found["skipped"] == 0.0
        optimiser = ctx.optimisers["policy"]
        assert isinstance(optimiser, MasterWeights) == (dtype == torch.bfloat16)
        (exact,) = optimiser.values() if dtype == torch.bfloat16 else optimiser.param_groups[0]["params"]
        assert exact.tolist() == pytest.approx(wanted, rel=1e-6)
        assert torch.equal(ctx.theta, exact.to(dtype)) and ctx.theta.grad is None
        assert optimiser.param_groups[0]["params"][0].grad is None


@pytest.mark.parametrize("narrow", [False, True])
def test_master_weights_go_on_from_what_was_saved(narrow):
    """Weights that were rounded on the way to disk get their masters and moments back: as if there had been no stop."""
    settings = AdamW(lr=0.01, clip_norm=0, narrow_moments=narrow)
    learner, straight = Learner(credit=None, objective=Pull(), optimiser=settings), Line(torch.bfloat16)
    for clock, pull in enumerate((1.0, -3.0, 0.5)):
        step_optimiser(straight, "policy", learner, batch_of(pull), clock, 10**6)
    resumed = Line(torch.bfloat16)
    with torch.no_grad():
        resumed.theta.copy_(straight.theta)
    saved = copy.deepcopy(straight.optimisers["policy"].state_dict())
    resumed.optimiser("policy", learner).load_state_dict(saved)
    for ctx in (straight, resumed):
        step_optimiser(ctx, "policy", learner, batch_of(2.0), 3, 10**6)
    (a,), (b,) = (ctx.optimisers["policy"].values() for ctx in (straight, resumed))
    assert torch.equal(a, b) and not torch.equal(a, straight.theta.float())
    first, second = (next(iter(ctx.optimisers["policy"].state.values())) for ctx in (straight, resumed))
    for name in MOMENTS:
        assert torch.equal(first[name], second[name])
        assert second[name].dtype == (torch.bfloat16 if narrow else torch.float32)


def test_the_noise_of_moments_is_of_the_seed_and_the_step():
    """Equal runs have equal moments; another seed has others, with the same weights but for noise."""
    settings, ends = AdamW(lr=0.01, narrow_moments=True), []
    for seed in (0, 0, 1):
        learner, ctx = Learner(credit=None, objective=Pull(), optimiser=settings), Line(torch.float32)
        ctx.seed, ctx.theta.data = seed, torch.tensor([3.0, -1.0])
        for clock, pull in enumerate((1.0, -3.1, 0.53, 0.7, 2.3)):
            step_optimiser(ctx, "policy", learner, batch_of(pull), clock, 10**6)
        ends.append(ctx.theta.detach())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])
    torch.testing.assert_close(ends[0], ends[2], rtol=0, atol=1e-3)


def test_a_gradient_that_is_not_finite_moves_neither_weights_nor_clock():
    settings = AdamW(lr=0.1, clip_norm=0, warmup=2)
    good, ctx = Learner(credit=None, objective=Pull(), optimiser=settings), Line()
    bad, before = replace(good, objective=Cliff()), ctx.theta.detach().clone()
    metrics, state = Plain()(ctx, "policy", bad, batch_of(1.0), {"clock": 0})
    assert metrics["loss"] == 0.0 and not np.isfinite(metrics["grad_norm"]) and metrics["skipped"] == 1.0
    assert torch.equal(ctx.theta, before) and state == {"clock": 0} and len(ctx.dumped) == 1
    Plain()(ctx, "policy", good, batch_of(1.0), state)
    assert (ctx.theta - before).tolist() == pytest.approx([0.05, 0.05])  # the first step of the warm-up: half the rate


@dataclass(frozen=True)
class Watch(Algebra):
    """Keeps which rows it was given, with their denominators; the loss is their number."""

    seen: list = field(default_factory=list, compare=False)

    def __call__(self, out, batch):
        rows = sorted(batch["place"].long().tolist())
        self.seen.append((rows, (batch.n_tokens, batch.n_rows, batch.n_units)))
        return (out["logp"] * 0).sum() + len(rows), {}


def test_minibatches_are_batches_of_their_own_and_every_epoch_and_step_shuffles_anew():
    """Nine rows in five units, the first of five rows; each minibatch has its own denominators, and its own step."""
    batch, watch = batch_of(*[1.0] * 9, units=("a",) * 5 + tuple("bcde")), Watch()
    lengths = [1 + i % 3 for i in range(9)]
    unit = [0] * 5 + [1, 2, 3, 4]
    ctx, learner = Line(), Learner(credit=None, objective=watch)
    update, state = Plain(epochs=2, minibatches=2), {}
    orders = []
    for n in range(2):
        metrics, state = update(ctx, "policy", learner, batch, state)
        assert state == {"clock": 4 * (n + 1)} and metrics["updates"] == 4
        assert metrics["loss"] == pytest.approx(np.mean([len(rows) for rows, _ in watch.seen]))
        for first, second in (watch.seen[:2], watch.seen[2:]):
            assert sorted(first[0] + second[0]) == list(range(9))
            for rows, counts in (first, second):
                units = {unit[i] for i in rows}
                assert set(rows) == {i for i in range(9) if unit[i] in units}
                assert counts == (sum(lengths[i] for i in rows), len(rows), len(units)) and len(units) in (2, 3)
        orders += [tuple(watch.seen[0][0]), tuple(watch.seen[2][0])]
        watch.seen.clear()
    assert len(set(orders)) == 4


def test_the_first_token_of_a_row_counts_for_nothing():
    """Nothing precedes it, so it has no log-prob: a demonstration without a prompt has a token less, and may have none."""
    rows = [Row(segments=(Segment(ids=ids, trained=True, policy="policy"),)) for ids in ((4, 5, 6), (7,))]
    batch = pack([Example(row=r, columns={}) for r in rows], "policy")
    assert batch.mask.tolist() == [[0.0, 1.0, 1.0]] and (batch.n_tokens, batch.n_rows) == (2, 1)


def test_a_batch_holds_its_learner_s_tokens_alone():
    """Of a row that two learners wrote each learns its own part; a row that the other one wrote is left out."""
    said = {who: Segment(ids=(4, 5), trained=True, policy=who) for who in "ab"}
    rows = [Row(segments=(Segment(ids=(1,)), *(said[who] for who in who_spoke))) for who_spoke in ("ab", "b")]
    examples = [Example(row=r, columns={}) for r in rows]
    assert pack(examples, "a").mask.tolist() == [[0, 1, 1, 0, 0]]
    assert pack(examples, "b").mask.tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 0, 0]]
    assert pack(examples).n_tokens == 6 and pack(examples, "c") is None


def test_turns_are_counted_from_the_end_of_the_warm_up():
    """Period 3 with steps 0 and 1 of each, after two steps of warm-up: steps 2, 3, 5, 6 move."""
    moved = []

    def update(ctx, *_):
        moved.append(ctx.step)
        return {}, {}

    for warms in (False, True):
        for n in range(8):
            Cycle(update, period=3, on=(0, 1), warmup=2, warms=warms)(SimpleNamespace(step=n), "p", None, None, {})
    assert moved == [2, 3, 5, 6, 0, 1, 2, 3, 5, 6]
