"""Optimiser steps that are differentially private in the lines of the data (DP-SGD,
arXiv:1607.00133).

    g = ( sum over lines i of g_i min(1, C / |g_i|) + N(0, sigma^2 C^2 I) ) / L

g_i is the gradient of one line alone, over all weights that learn; L is the expected number of lines
of a step, not the number that was drawn. A line more or less moves the sum by at most C.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.master import MasterWeights
from palaestra.privacy.accounting import Spend, composed_epsilon, composed_noise, noise_for
from palaestra.privacy.lines import INCLUSION, NO_SECRET, count_lines, sampling_rate
from palaestra.privacy.optimiser import VARIANCE
from palaestra.privacy.secret import PUBLIC, name_of_loss, secret_of, secret_rng
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Metrics, State, need_at_least, stage, value_class
from palaestra.update import Plain, recount

if TYPE_CHECKING:
    from palaestra.context import Context, Learns, Training


@value_class
class PrivacyTerms:
    """What a run promises: noise and delta are fixed at its first step, the rate is that of the
    step, and what was spent is the sum over all steps, each at the rate and noise that it had.

    Args:
        lines: of the data.
        rate: probability with which a line is drawn for a step.
        noise: sigma, the noise multiplier; 0 = no noise, and no promise.
        spends: of the steps so far.
    """

    lines: int
    rate: float
    noise: float
    delta: float
    spends: tuple[Spend, ...] = ()

    @property
    def spent(self) -> float:
        """epsilon of the steps so far."""
        return composed_epsilon(self.spends, self.delta)

    def after_step(self) -> Self:
        """The terms after one more step."""
        *before, last = self.spends or ((self.rate, self.noise, 0),)
        if last[:2] == (self.rate, self.noise):
            return replace(self, spends=(*before, (self.rate, self.noise, last[2] + 1)))
        return replace(self, spends=(*self.spends, (self.rate, self.noise, 1)))


@stage
class PrivateSteps:
    """One private optimiser step a batch, until the budget is spent; then the weights stay.

    The noise multiplier is the least with which the run's steps take `epsilon`. Lines come from
    `Poisson` by way of `EachLine`. The noise is secret, see `palaestra.privacy.secret`. Weights are
    private; what a run logs of its data is not.

    Args:
        epsilon: the whole budget; infinite = gradients are clipped and no noise is added.
        delta: 0 = 1 / (2 lines).
        clip: C.
        steps: of the run, where that does not say.
        lines: of the data; 0 = as many as it has.
        expected: L; 0 = the prompts of a step.
        public_seed: of noise that anybody can repeat, for tests; then no guarantee holds. 0 = secret.
    """

    epsilon: float = 8.0
    delta: float = 0.0
    clip: float = 1.0
    steps: int = 100
    lines: int = 0
    expected: int = 0
    public_seed: int = 0
    one_process_reason: ClassVar[str] = "clips the gradient of each line of the data alone"
    no_choice_reason: ClassVar[str] = (
        "looks at lines of the data without noise, which epsilon does not count"
    )

    def __post_init__(self) -> None:
        check_bounds("PrivateSteps.epsilon", self.epsilon, above=0)
        check_bounds("PrivateSteps.clip", self.clip, above=0)
        check_bounds("PrivateSteps.delta", self.delta, least=0, most=0.5)
        need_at_least(self, steps=1, lines=0, expected=0, public_seed=0)

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        return replace(self, expected=self.expected or prompts)

    def __call__(
        self, ctx: Context, name: str, learner: Learns, batch: Batch, state: State
    ) -> tuple[Metrics, State]:
        return self._step(ctx, name, learner, batch, state)

    def step_without_rows(
        self, ctx: Context, name: str, learner: Learns, state: State
    ) -> tuple[Metrics, State]:
        """The noise alone: that no line was drawn is a secret too."""
        return self._step(ctx, name, learner, None, state)

    def _step(
        self, ctx: Context, name: str, learner: Learns, batch: Batch | None, state: State
    ) -> tuple[Metrics, State]:
        clock, terms = state.get("clock", 0), self.terms(ctx, state)
        if batch is not None:
            self._check_rate(batch, terms)
        own = secret_of(state, self.public_seed)
        kept = {**own, "clock": clock, "noise": terms.noise, "delta": terms.delta}
        known = {"public_noise": float(own[PUBLIC])} if terms.noise else {}
        after = terms.after_step()
        if math.isfinite(self.epsilon) and after.spent > self.epsilon * (1 + 1e-9):
            if not state.get("told"):
                ctx.say(
                    f"the privacy budget epsilon={self.epsilon:g} is spent after {clock} steps: the "
                    "weights stay as they are; a longer run needs its number of steps from the start"
                )
            spent = {"epsilon": terms.spent, "delta": terms.delta, **known} if terms.noise else {}
            kept |= {"spends": _plain(terms.spends), "told": True}
            return {**spent, "noise": 0.0, "skipped": 0.0}, kept
        counted = f"{self.clip!r} {self.expected} {terms.noise!r} {terms.lines}"
        path = ctx.key("privacy", name, name_of_loss(learner.objective), counted, clock)
        metrics = self._move(ctx, name, learner, batch, terms, clock, secret_rng(own, path))
        if terms.noise:
            metrics |= {"epsilon": after.spent, "delta": terms.delta, **known}
        return metrics, {**kept, "clock": clock + 1, "spends": _plain(after.spends)}

    def terms(self, ctx: Context, state: State) -> PrivacyTerms:
        """The run's, as its first step fixed them; the first step says them."""
        if not self.expected:
            raise UserError("PrivateSteps.expected is the number of lines a step has on average")
        lines = count_lines(ctx, self.lines)
        rate = sampling_rate(self.expected, lines)
        if "noise" in state:
            return self._terms_of(state, lines, rate)
        delta, steps = self.delta or 1 / (2 * lines), int(ctx.budget.get("steps", self.steps))
        if math.isinf(self.epsilon):
            ctx.say("epsilon=inf: gradients are clipped, no noise is added, and nothing is private")
            return PrivacyTerms(lines=lines, rate=rate, noise=0.0, delta=delta)
        noise = noise_for(self.epsilon, delta, rate, max(1, steps))
        epochs = max(1.0, rate * steps)
        ctx.say(
            f"privacy: epsilon={self.epsilon:g}, delta={delta:.2g} for one line of {lines} added or "
            f"removed, drawn with probability {rate:.3g} in each of {steps} steps; noise multiplier "
            f"{noise:.3f} (composition by epochs, as in arXiv:2505.08849, would take "
            f"{composed_noise(self.epsilon, delta, epochs):.3f}). Settings chosen by comparing runs are "
            "not accounted, and the run folder holds the data: publish the weights alone"
        )
        if self.public_seed:
            ctx.say(NO_SECRET)
        return PrivacyTerms(lines=lines, rate=rate, noise=noise, delta=delta)

    def _terms_of(self, state: State, lines: int, rate: float) -> PrivacyTerms:
        """Those of a run that goes on. Raises UserError where its steps cannot be counted."""
        if "spends" not in state:
            raise UserError(
                "this checkpoint does not say at which rates its steps drew lines, so its privacy cannot "
                "be counted; begin a new run"
            )
        if state["noise"] == 0 and math.isfinite(self.epsilon) and state["clock"]:
            raise UserError(
                f"this run made {state['clock']} steps without noise, so epsilon={self.epsilon:g} is out of "
                "reach; begin a new run"
            )
        spends = tuple((rate, noise, int(steps)) for rate, noise, steps in state["spends"])
        return PrivacyTerms(
            lines=lines, rate=rate, noise=state["noise"], delta=state["delta"], spends=spends
        )

    def _check_rate(self, batch: Batch, terms: PrivacyTerms) -> None:
        if INCLUSION not in batch.columns:
            raise UserError(
                "privacy is counted by line; set credit=pl.privacy.EachLine(...) and "
                "draw=pl.privacy.Poisson()"
            )
        rates = batch[INCLUSION]
        if not torch.allclose(rates, torch.full_like(rates, terms.rate), rtol=1e-5, atol=0):
            raise UserError(
                f"lines were drawn with probability {float(rates[0]):g}, and {terms.rate:g} is "
                "accounted; give draw.lines and update.lines the same number"
            )

    def _move(
        self, ctx: Training, name: str, learner: Learns, batch: Batch | None, terms: PrivacyTerms,
        clock: int, rng: np.random.Generator,
    ) -> Metrics:  # fmt: skip
        ctx.moving(name)
        optimiser = ctx.optimiser(name, learner)
        moved = [p for group in optimiser.param_groups for p in group["params"]]
        try:
            with ctx.phase("backward"):
                sums, metrics = clipped_sum(ctx, name, learner, batch, self.clip)
            with ctx.phase("optimiser"):
                scale = terms.noise * self.clip
                add_noise(sums, scale, rng)
                for p, total in zip(moved, sums, strict=True):
                    p.grad = (total / self.expected).to(p.dtype)
                norm = torch.nn.utils.clip_grad_norm_(
                    moved, learner.optimiser.clip_norm or float("inf")
                )
                learner.optimiser.set(optimiser, clock)
                for group in optimiser.param_groups:
                    group[VARIANCE] = (scale / self.expected) ** 2
                if isinstance(optimiser, MasterWeights):
                    optimiser.key = (ctx.seed, "moments", name, clock)
                optimiser.step()
        finally:
            optimiser.zero_grad(set_to_none=True)
        return metrics | {
            "grad_norm": float(norm),
            "noise": scale / self.expected,
            "skipped": 0.0,
            "updates": 1,
            "lr": learner.optimiser.rate(clock),
        }


def clipped_sum(
    ctx: Training, name: str, learner: Learns, batch: Batch | None, clip: float
) -> tuple[list[Tensor], dict[str, float]]:
    """The sum over units of their gradients, each clipped to the norm `clip`, by weight; and the
    means of what the objective logs, beside "unit_norm" before clipping and the share "clipped".

    A unit's loss has the denominators of the unit alone. One whose gradient is not finite counts as
    0: to leave out the step would tell of it.
    """
    optimiser = ctx.optimiser(name, learner)
    moved = [p for group in optimiser.param_groups for p in group["params"]]
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in moved]
    seen: list[dict[str, float]] = []
    room = Plain().room(ctx.model(name))
    for unit in batch.unit_B.unique().tolist() if batch is not None else ():
        assert batch is not None
        optimiser.zero_grad(set_to_none=True)
        part = recount(batch.part((batch.unit_B == unit).nonzero()[:, 0]))
        logged = ctx.backward(name, learner.objective, part, room)
        grads = [None if p.grad is None else p.grad.float() for p in moved]
        norm = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
        finite = math.isfinite(norm)
        if finite:
            for total, g in zip(sums, grads, strict=True):
                if g is not None:
                    total.add_(g, alpha=min(1.0, clip / max(norm, 1e-30)))
        seen.append(
            {k: float(v) for k, v in logged.items()}
            | {"unit_norm": norm, "clipped": float(norm > clip), "not_finite": float(not finite)}
        )
    optimiser.zero_grad(set_to_none=True)
    return sums, {k: float(np.mean([m[k] for m in seen])) for k in seen[0]} if seen else {}


def add_noise(sums: list[Tensor], scale: float, rng: np.random.Generator) -> None:
    """Adds N(0, scale^2) to every coordinate."""
    if scale:
        for total in sums:
            drawn = rng.standard_normal(tuple(total.shape), dtype=np.float32)
            total.add_(torch.from_numpy(np.asarray(drawn)).to(total.device), alpha=scale)


def _plain(spends: tuple[Spend, ...]) -> list[list[float]]:
    """As a checkpoint keeps them."""
    return [list(spend) for spend in spends]
