"""Simulators as arrays, and what playing them gives.

n games at a time, A agents in each, T time steps, O numbers of an observation, K actions, D
dimensions of a continuous action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from palaestra.types import Key, rng_of, value_class

# Columns by name: obs, next_obs [n, A, T, O]; act [n, A, T] or [n, A, T, D]; reward [n, A, T];
# alive and over [n, T], bool; of a simulator with masks legal and next_legal [n, A, T, K]; and what
# the player noted, such as logp and value [n, A, T], and the facts of a simulator that tells some,
# [n, A, T]. What is no longer alive counts for nothing.
Paths: TypeAlias = Mapping[str, np.ndarray]

# (observations [n, A, O], legal actions [n, A, K] or None, the stream) to columns, "act" among them
Acting: TypeAlias = Callable[
    [np.ndarray, np.ndarray | None, np.random.Generator], Mapping[str, np.ndarray]
]


@value_class
class Box:
    """Continuous actions between two bounds in each dimension; arrays and lists become tuples.

    Raises:
        ValueError: one has other dimensions than the other, or a lower bound is above the upper one.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bounds = tuple(float(x) for x in np.ravel(getattr(self, name)))
            object.__setattr__(self, name, bounds)
        if len(self.low) != len(self.high) or any(
            a > b for a, b in zip(self.low, self.high, strict=True)
        ):
            raise ValueError(
                f"Box: low {self.low} has to be as long as high {self.high}, and not above it"
            )

    @property
    def size(self) -> int:
        return len(self.low)

    def clip(self, act: np.ndarray) -> np.ndarray:
        return np.clip(act, self.low, self.high)


class Simulator(Protocol):
    """Several games in arrays. A state is a value: `step` leaves it as it was, so a fork is free.

    The same stream gives the same game. A game lasts `horizon` steps at most; one that is over may
    be stepped on, and what it pays then counts for nothing.
    """

    @property
    def agents(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def observation(self) -> int:
        """Numbers of an agent's observation."""
        ...

    @property
    def actions(self) -> int | Box: ...

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        """The state of `n` fresh games."""
        ...

    def observe(self, state: Any) -> np.ndarray:
        """[n, A, O]"""
        ...

    def legal(self, state: Any) -> np.ndarray | None:
        """[n, A, K] the actions that may be taken; None = all."""
        ...

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """The next state, the rewards [n, A], and which games are over [n]."""
        ...


@runtime_checkable
class TellsFacts(Protocol):
    """A simulator that tells of a state what agents do not see: for rewards and measures."""

    def facts(self, state: Any) -> Mapping[str, np.ndarray]:
        """[n, A] by name. `play_games` notes those of the state after a step."""
        ...


def play_games(sim: Simulator, act: Acting, n: int, key: Key) -> Paths:
    """`n` games from their start to their end or the horizon, by the random stream of `key`."""
    rng = rng_of((*key, "play"))
    state, alive_n = sim.reset(rng, n), np.ones(n, bool)
    obs, legal = sim.observe(state), sim.legal(state)
    kept: list[dict[str, np.ndarray]] = []
    for _ in range(sim.horizon):
        done = act(obs, legal, rng)
        taken = done["act"]
        bounded = sim.actions.clip(taken) if isinstance(sim.actions, Box) else taken
        state, reward_nA, over_n = sim.step(state, bounded, rng)
        after, legal_after = sim.observe(state), sim.legal(state)
        seen = {"obs": obs, "next_obs": after, "reward": reward_nA * alive_n[:, None], **done}
        if isinstance(sim, TellsFacts):
            seen |= sim.facts(state)
        if legal is not None and legal_after is not None:
            seen |= {"legal": legal, "next_legal": legal_after}
        kept.append(seen | {"alive": alive_n, "over": over_n & alive_n})
        alive_n = alive_n & ~over_n
        obs, legal = after, legal_after
        if not alive_n.any():
            break
    stacked = {name: np.stack([k[name] for k in kept]) for name in kept[0]}
    # time goes behind the games and their agents
    return {k: np.moveaxis(v, 0, 1 if k in ("alive", "over") else 2) for k, v in stacked.items()}


def returns_of(paths: Paths) -> np.ndarray:
    """[n] what each game paid, summed over agents and steps."""
    return paths["reward"].sum((1, 2))


def mean_return(sim: Simulator, act: Acting, games: int, key: Key) -> float:
    """What a game pays on average, all agents together."""
    return float(returns_of(play_games(sim, act, games, key)).mean())
