"""Two objectives that share the weights, and an update that learns how much each of them counts.

    L = (1 - mu) L_1 + mu L_2

mu follows what a step at the present one would do to held-out data, and the policy's entropy (AMFT,
arXiv:2508.06944; M with the sign that its text means, where the released code has the other one):

    M   = d U(theta') / d mu = lr <grad L_val(theta'), g_2 - g_1>,   U = -L_val
          theta' = theta - lr ((1 - mu) g_1 + mu g_2)
    mu <- clip(mu + eta_M M + eta_H (H* - H), low, high)

g_1 and g_2 are gradients as they are, before an optimiser divides them by anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.objective.algebra import ORDER, Algebra, Couples
from palaestra.objective.policy import Imitation
from palaestra.schedule import check_bounds
from palaestra.types import (
    MARK_PREFIX,
    Batch,
    Metrics,
    Objective,
    Outputs,
    State,
    need_at_least,
    stage,
    value_class,
)
from palaestra.update import Plain, recount

if TYPE_CHECKING:
    from palaestra.context import Context, Learns, Training

__all__ = [
    "AdaptiveMixture",
    "Interpolation",
    "MetaWeight",
    "MixtureReadings",
    "WeightRule",
]

ENTROPY = "policy_entropy"  # the column of a learner that needs ("policy", "entropy")


@stage
class Interpolation(Algebra):
    """(1 - weight) first + weight second. The metrics are those of both."""

    first: Objective
    second: Objective
    weight: float = 0.5

    def __post_init__(self) -> None:
        check_bounds("Interpolation.weight", self.weight, least=0, most=1)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.first.needs, *self.second.needs)))

    @property
    def couples(self) -> Couples:
        return ORDER[max(ORDER.index(p.couples) for p in (self.first, self.second))]

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        first, metrics = self.first(out, batch)
        second, more = self.second(out, batch)
        return (1 - self.weight) * first + self.weight * second, metrics | more


@value_class
class MixtureReadings:
    """What a rule for a weight may read. Entropies are means over tokens, in nats.

    `gain` is M, the slope of the utility in the weight, and 0 between two look-aheads; `entropy` is
    that of the policy on what it sampled, `target` what it had on what is imitated.
    """

    gain: float
    entropy: float
    target: float


WeightRule: TypeAlias = Callable[[float, MixtureReadings], float]


@stage
class MetaWeight:
    """clip(mu + gain_rate M + entropy_rate (H* - H), low, high): more of the second objective where
    held-out data gain by it, and where the entropy is below its target.
    """

    gain_rate: float = 1e-4
    entropy_rate: float = 5e-4
    low: float = 0.05
    high: float = 0.95

    def __post_init__(self) -> None:
        check_bounds("MetaWeight.low", self.low, least=0, most=1)
        check_bounds("MetaWeight.high", self.high, least=0, most=1)

    def __call__(self, mu: float, readings: MixtureReadings) -> float:
        mu += self.gain_rate * readings.gain + self.entropy_rate * (
            readings.target - readings.entropy
        )
        return min(max(mu, self.low), self.high)


@stage
class AdaptiveMixture:
    """`update` of an `Interpolation`, whose weight a `rule` sets before every update; without one it
    is what the objective says, e.g. a schedule. The weight begins as the objective's, and is of the
    run's state.

    The first `warmup` updates are of the second objective alone; on its rows, which the fact `mark`
    marks, the mean entropy over that time is H*. Rows with the fact `held` are trained on by
    nobody: on them M is taken by `valid`, in every `every`-th update, 0 = in none. An update that
    was due and had no such row leaves it to the next. `cosine` makes M the cosine of the two
    directions, in [-1, 1]: the product has the size of lr times two gradients, which is nothing
    beside a difference of entropies.

    The credit has to leave "is:`mark`" and "is:`held`" (`Fact`), and the learner needs
    ("policy", "entropy"). Raises UserError where the objective is no `Interpolation`, or one of
    these is missing.
    """

    update: Plain = Plain()
    rule: WeightRule | None = MetaWeight()
    every: int = 20
    cosine: bool = True
    warmup: int = 20
    mark: str = "demonstration"
    held: str = "held"
    valid: Objective = Imitation()
    clock: ClassVar[str] = "warmup"

    def __post_init__(self) -> None:
        need_at_least(self, every=0, warmup=0)

    def __call__(
        self, ctx: Context, name: str, learner: Learns, batch: Batch, state: State
    ) -> tuple[Metrics, State]:
        if not isinstance(learner.objective, Interpolation):
            raise UserError(
                f"AdaptiveMixture moves the weight of an Interpolation, not of {type(learner.objective).__name__}"
            )
        held, trained = self._parted(batch)
        if trained is None:
            return {}, state
        done, mu = state.get("updates", 0), state.get("mu", learner.objective.weight)
        inner, mix_metrics = state.get("update", {}), {}
        new_state = {**state, "updates": done + 1}
        if done < self.warmup:
            here = mean_entropy(trained, self.mark, True)
            seen = [*state.get("entropies", []), *([] if here is None else [here])]
            new_state, mu = {**new_state, "entropies": seen}, 1.0
        elif self.rule is None:
            mu = learner.objective.weight
        else:
            gain, new_state["due"] = 0.0, state.get("due", 0) + 1
            if self.every and new_state["due"] >= self.every and held is not None:
                rate = learner.optimiser.rate(inner.get("clock", 0))
                mixed = replace(learner.objective, weight=mu)
                gain = self._gain(ctx, name, mixed, trained, held, rate)
                mix_metrics, new_state["due"] = {"mix/gain": gain}, 0
            readings = self._readings(gain, trained, state.get("entropies", []))
            mu = new_state["mu"] = self.rule(mu, readings)
            mix_metrics |= {"mix/entropy": readings.entropy, "mix/entropy_target": readings.target}
        moved = replace(learner, objective=replace(learner.objective, weight=mu))
        metrics, new_state["update"] = self.update(ctx, name, moved, trained, inner)
        return {**metrics, "mix/weight": mu, **mix_metrics}, new_state

    def _parted(self, batch: Batch) -> tuple[Batch | None, Batch | None]:
        """The rows that are held out, and those to train on; None = there are none."""
        lacking = [c for c in (ENTROPY, *self._marks) if c not in batch.columns]
        if lacking:
            raise UserError(
                f"the batch has no column {lacking[0]!r}: AdaptiveMixture reads the facts {self.mark!r} and "
                f'{self.held!r}, which Fact leaves in the credit, and needs=(("policy", "entropy"),)'
            )
        held_B = (batch[self._marks[1]] * batch.mask > 0).any(1)
        parts = [rows.nonzero()[:, 0] for rows in (held_B, ~held_B)]
        held, trained = (recount(batch.part(r)) if len(r) else None for r in parts)
        return held, trained

    @property
    def _marks(self) -> tuple[str, str]:
        return f"{MARK_PREFIX}{self.mark}", f"{MARK_PREFIX}{self.held}"

    def _readings(self, gain: float, trained: Batch, targets: Sequence[float]) -> MixtureReadings:
        """Where one of the two entropies is unknown they are taken to be equal."""
        entropy = mean_entropy(trained, self.mark, False)
        target = sum(targets) / len(targets) if targets else entropy
        if entropy is None or target is None:
            entropy = target = 0.0
        return MixtureReadings(gain=gain, entropy=entropy, target=target)

    def _gain(
        self,
        ctx: Context,
        name: str,
        objective: Interpolation,
        trained: Batch,
        held: Batch,
        rate: float,
    ) -> float:
        """M of one look-ahead; 0 where something in it is not finite."""
        room = self.update.room(ctx.model(name))
        return look_ahead(
            ctx, name, objective, (trained, held), self.valid, rate, room, self.cosine
        )


def mean_entropy(batch: Batch, mark: str, marked: bool) -> float | None:
    """Of the policy before the update, over the trained tokens that are marked, or over the others;
    None = there are none.
    """
    on_BT = (batch.mask > 0) & ((batch[f"{MARK_PREFIX}{mark}"] > 0) == marked)
    return float(batch[ENTROPY][on_BT].double().mean()) if on_BT.any() else None


def look_ahead(
    ctx: Training,
    name: str,
    objective: Interpolation,
    batches: tuple[Batch, Batch],
    valid: Objective,
    rate: float,
    budget: int,
    cosine: bool = False,
) -> float:
    """The slope, in the weight of the second objective, of minus the loss `valid` after one step of
    gradient descent at `rate`; with `cosine` the cosine of its two factors. The weights of the model
    are left as they were, bit for bit. 0 where a gradient is not finite.

    Args:
        ctx: of the run; what samples from the model is told that its weights move.
        name: of the model.
        objective: the mixture, at its weight.
        batches: to train on, and held out.
        valid: the loss on what is held out.
        rate: of the step.
        budget: tokens of a forward pass.
        cosine: whether the size of the two factors is left out.
    """
    trained, held = batches
    weights = ctx.model(name).trainable()

    def gradient(of: Objective, batch: Batch) -> list[Tensor]:
        ctx.backward(name, of, batch, budget)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in weights]
        for p in weights:
            p.grad = None
        return gradients

    with ctx.phase("backward"), torch.no_grad():
        kept, mu = [p.clone() for p in weights], objective.weight
        with torch.enable_grad():
            first, second = (gradient(f, trained) for f in (objective.first, objective.second))
        ctx.moving(name)
        for p, g, h in zip(weights, first, second, strict=True):
            p.sub_(rate * ((1 - mu) * g + mu * h))
        try:
            with torch.enable_grad():
                uphill = gradient(valid, held)
        finally:
            for p, before in zip(weights, kept, strict=True):
                p.copy_(before)
        change = [h - g for g, h in zip(first, second, strict=True)]
        slope = dot(uphill, change)
        if cosine:
            size = math.sqrt(dot(uphill, uphill) * dot(change, change))
            slope = slope / size if size else 0.0
        else:
            slope *= rate
    return slope if math.isfinite(slope) else 0.0


@runtime_checkable
class Sliced(Protocol):
    """A tensor of which every rank holds a part."""

    def full_tensor(self) -> Tensor: ...


def dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """The inner product of two lists of tensors; of slices that several ranks hold, the whole."""
    parts = [(x.double() * y.double()).sum() for x, y in zip(a, b, strict=True)]
    return sum(float(p.full_tensor() if isinstance(p, Sliced) else p) for p in parts)
