"""What a question to a language model tells of a simulator: what it is about, and the quantities that
a reward, a factor or a feature may read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from palaestra.control.language import Quantities, Quantity
from palaestra.control.simulators import Box, Paths, Simulator
from palaestra.errors import UserError
from palaestra.types import value_class

GENERAL = "Agents act in a simulator."


@runtime_checkable
class Described(Protocol):
    """A simulator that says what a step is made of."""

    @property
    def declared(self) -> Quantities: ...
    def quantities(self, paths: Paths) -> dict[str, np.ndarray]: ...


@runtime_checkable
class DescribedView(Protocol):
    """A simulator that says what an agent's observation is made of."""

    @property
    def visible(self) -> Quantities: ...
    def view(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        """[...] by name, of observations [..., O] alone."""
        ...


@runtime_checkable
class SeenWhole(Protocol):
    """A simulator that hides something, and can show it for an oracle."""

    @property
    def whole(self) -> Simulator: ...


@runtime_checkable
class NamedActions(Protocol):
    """A simulator whose actions, which can be counted, have names."""

    @property
    def action_names(self) -> Sequence[str]: ...


@runtime_checkable
class SpelledView(Protocol):
    """A simulator that says in words what an agent sees."""

    def spell_view(self, obs: np.ndarray) -> str:
        """An observation [O] in sentences."""
        ...


def action_words(sim: Simulator) -> tuple[str, ...]:
    """The names of a simulator's actions, else "action 0" and so on.

    Raises UserError for continuous actions, and for names that are too few, too many or equal.
    """
    if isinstance(sim.actions, Box):
        raise UserError("continuous actions have no names")
    if not isinstance(sim, NamedActions):
        return tuple(f"action {k}" for k in range(sim.actions))
    names = tuple(map(str, sim.action_names))
    if len(names) != sim.actions or len({n.strip().lower() for n in names}) != len(names):
        raise UserError(
            f"action_names has {len(names)} names for {sim.actions} actions; each needs one of its own"
        )
    return names


@value_class
class SimulatorWords:
    """What a question tells of a simulator, and how its quantities are computed."""

    about: str
    declared: Quantities
    compute: Callable[[Paths], dict[str, np.ndarray]]

    @classmethod
    def of(cls, sim: Simulator, games: Paths, about: str = GENERAL) -> SimulatorWords:
        """What the simulator says itself, else the numbers that an agent sees after its step and
        what they changed by, with the bounds that they have in `games`.
        """
        about = str(getattr(sim, "about", "") or about)
        if isinstance(sim, Described):
            return cls(about=about, declared=sim.declared, compute=sim.quantities)
        declared = quantities_of(observed(games), "of an agent's observation after a step")
        return cls(about=about, declared=declared, compute=observed)


@value_class
class ViewWords:
    """What a question tells of an agent's observation, and how its quantities are computed from it
    alone.
    """

    visible: Quantities
    compute: Callable[[np.ndarray], dict[str, np.ndarray]]

    @classmethod
    def of(cls, sim: Simulator, games: Paths) -> ViewWords:
        """What the simulator says itself, else the numbers of an observation, with the bounds that
        they have in `games`.
        """
        if isinstance(sim, DescribedView):
            return cls(visible=sim.visible, compute=sim.view)
        visible = quantities_of(numbers_of(games["obs"]), "of the agent's observation")
        return cls(visible=visible, compute=numbers_of)


def numbers_of(obs: np.ndarray) -> dict[str, np.ndarray]:
    """[...] each number of observations [..., O]."""
    return {f"number_{i}": obs[..., i] for i in range(obs.shape[-1])}


def quantities_of(columns: dict[str, np.ndarray], meaning: str) -> dict[str, Quantity]:
    """Quantities with the bounds that they have in columns."""
    return {
        name: Quantity(low=float(x.min()), high=float(x.max()), about=f"{name} {meaning}")
        for name, x in columns.items()
    }


def observed(paths: Paths) -> dict[str, np.ndarray]:
    """[n, A, T] each number of the observation after a step, and its change."""
    after, moved = paths["next_obs"], paths["next_obs"] - paths["obs"]
    numbers = range(after.shape[-1])
    return {f"number_{i}": after[..., i] for i in numbers} | {
        f"change_{i}": moved[..., i] for i in numbers
    }
