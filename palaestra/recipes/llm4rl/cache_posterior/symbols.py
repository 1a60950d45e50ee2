"""Continuous actions as symbols that a language model can name."""

import itertools
from typing import Any

import numpy as np

import palaestra as pl

MOST = 256
SAID = ("spell_view", "visible", "view", "facts")  # what a simulator may say beside its games


class SymbolicActions:
    """A simulator with continuous actions, of which each dimension has `levels` equally far apart: its
    actions are their combinations, and can be counted. What it says of its states stays.

    Raises UserError for bounds that are infinite, and for more than 256 combinations.
    """

    def __init__(self, sim: pl.control.Simulator, levels: int = 3):
        box = sim.actions
        if not isinstance(box, pl.control.Box):
            raise pl.UserError("SymbolicActions is for continuous actions")
        if not np.isfinite((*box.low, *box.high)).all():
            raise pl.UserError("cache-posterior needs actions between finite bounds")
        if levels < 2 or levels**box.size > MOST:
            raise pl.UserError(
                f"levels={levels} makes {levels**box.size} symbolic actions of {box.size} dimensions; "
                f"take 2 or more levels, and {MOST} actions at most"
            )
        self.inner, self.agents, self.horizon = sim, sim.agents, sim.horizon
        self.observation = sim.observation
        self.about = str(getattr(sim, "about", ""))
        for name in SAID:
            if hasattr(sim, name):
                setattr(self, name, getattr(sim, name))
        lines = [np.linspace(a, b, levels) for a, b in zip(box.low, box.high, strict=True)]
        self.centres = np.array(list(itertools.product(*lines)))  # [K, D]
        self.actions = len(self.centres)

    @property
    def action_names(self) -> tuple[str, ...]:
        return tuple("push " + " ".join(f"{x:.3g}" for x in row) for row in self.centres)

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        return self.inner.reset(rng, n)

    def observe(self, state: Any) -> np.ndarray:
        return self.inner.observe(state)

    def legal(self, state: Any) -> np.ndarray | None:
        return self.inner.legal(state)

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        return self.inner.step(state, self.centres[act_nA], rng)
