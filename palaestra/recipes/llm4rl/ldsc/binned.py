"""Continuous actions as a few: for values of single actions, which options learn."""

import itertools
from typing import Any

import numpy as np

import palaestra as pl

MOST = 256  # actions


class BinnedActions:
    """A simulator whose action k is the k-th of all combinations of `bins` values of each dimension, equally apart from its
    low to its high end, both among them; the last dimension changes first. All else is the simulator's.

    Raises UserError for dimensions without bounds, and for more than 256 combinations.
    """

    def __init__(self, sim: pl.control.Simulator, bins: int):
        box = sim.actions
        assert isinstance(box, pl.control.Box)
        if not np.isfinite((box.low, box.high)).all():
            raise pl.UserError("ldsc: actions without bounds cannot be cut into bins")
        if bins < 2 or bins**box.size > MOST:
            raise pl.UserError(
                f"ldsc: bins={bins} of {box.size} dimensions are {bins**box.size} actions; there may be 2 bins and "
                f"{MOST} actions"
            )
        each = [np.linspace(a, b, bins) for a, b in zip(box.low, box.high, strict=True)]
        self.value_KD = np.array(list(itertools.product(*each)))
        self.sim, self.actions = sim, len(self.value_KD)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "sim":  # a copy in the making has no simulator yet
            raise AttributeError(name)
        return getattr(self.sim, name)

    def legal(self, state: Any) -> None:
        return None

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Takes the combinations of actions [n, A]."""
        return self.sim.step(state, self.value_KD[act_nA.astype(int)], rng)


def countable(sim: pl.control.Simulator, bins: int) -> pl.control.Simulator:
    """The simulator, with its actions in bins where they are continuous."""
    binned: Any = BinnedActions(sim, bins) if isinstance(sim.actions, pl.control.Box) else sim
    return binned
