"""A simulator of the user's own whose agents move in a plane, with what mrlmn asks of one."""

from typing import Any

import numpy as np

import palaestra as pl

HANDED = ("groups", "group_at", "forced")  # what a simulator may say itself, see `program`
SAMPLE = 32  # games of random actions, from which bounds are taken


class PlacedAgents:
    """The simulator, told where in an observation an agent's place stands and how actions move it.

    Targets lie within its own `bounds`, or where it has none within the places of some games with random actions,
    widened by half. A situation is what all agents see at the start of a game, to one decimal. Its groups and
    constraint hold.

    Args:
        sim: of discrete actions.
        place: the two numbers of an observation.
        moves: (dx, dy) of each action, in the units of places.

    Raises UserError where they do not fit the simulator.
    """

    def __init__(self, sim: Any, place: tuple[int, int], moves: tuple[tuple[float, float], ...]):
        if not isinstance(sim.actions, int) or len(moves) != sim.actions:
            raise pl.UserError(
                f"mrlmn: moves has {len(moves)} pairs, and the simulator's actions are {sim.actions}; give one pair for each"
            )
        if len(set(place)) != 2 or not 0 <= min(place) <= max(place) < sim.observation:
            raise pl.UserError(
                f"mrlmn: place is two different numbers from 0 to {sim.observation - 1}, not {place}"
            )
        self.sim, self.columns, self.moves = sim, list(place), np.array(moves, float)
        self.agents, self.horizon = sim.agents, sim.horizon
        self.observation, self.actions = sim.observation, sim.actions
        act = lambda obs, legal, rng: {"act": rng.integers(sim.actions, size=obs.shape[:2])}
        seen = self.place(pl.control.play_games(sim, act, SAMPLE, ("mrlmn", "bounds"))["obs"])
        low, high = seen.min((0, 1, 2)), seen.max((0, 1, 2))
        wide = (high - low) / 4
        random = (low - wide, high + wide)
        # those of a simulator that says places itself may be in other units than the numbers of `place`
        self.bounds = random if hasattr(sim, "place") else getattr(sim, "bounds", random)

    def __getattr__(self, name: str) -> Any:
        if name in HANDED and "sim" in self.__dict__:
            return getattr(self.sim, name)
        raise AttributeError(name)

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        return self.sim.reset(rng, n)

    def observe(self, state: Any) -> np.ndarray:
        return self.sim.observe(state)

    def legal(self, state: Any) -> Any:
        return self.sim.legal(state)

    def step(self, state: Any, act_nA: np.ndarray, rng: np.random.Generator) -> Any:
        return self.sim.step(state, act_nA, rng)

    def facts(self, state: Any) -> dict[str, np.ndarray]:
        """Those of the simulator; none where it tells none."""
        return dict(self.sim.facts(state)) if isinstance(self.sim, pl.control.TellsFacts) else {}

    def place(self, obs: np.ndarray) -> np.ndarray:
        return obs[..., self.columns]

    def situations(self, paths: pl.control.Paths) -> np.ndarray:
        first = paths["obs"][:, :, 0]
        return np.round(first.reshape(len(first), -1), 1)

    def spell(self, situation: np.ndarray) -> str:
        """What each agent sees, with its place in front."""
        rows = situation.reshape(self.agents, -1)
        low, high = self.bounds
        lines = [
            f"agent {a}: at ({x[self.columns[0]]:g}, {x[self.columns[1]]:g}), sees {', '.join(f'{v:g}' for v in x)}"
            for a, x in enumerate(rows)
        ]
        about = str(getattr(self.sim, "about", "") or "Agents move in a plane.")
        span = f"x is from {low[0]:.3g} to {high[0]:.3g}, y from {low[1]:.3g} to {high[1]:.3g}."
        return "\n".join((about, span, *lines))


def parse_place(text: str) -> tuple[int, int]:
    """Two numbers of an observation, as place=2,3. Raises UserError for another text."""
    parts = [x.strip() for x in text.split(",")]
    if len(parts) != 2 or not all(x.isdigit() for x in parts):
        raise pl.UserError(
            f"place={text}: two numbers of an observation, counted from 0: place=2,3"
        )
    return int(parts[0]), int(parts[1])


def parse_moves(text: str) -> tuple[tuple[float, float], ...]:
    """The moves of actions, as moves="0 0,-1 0,1 0". Raises UserError for another text."""
    pairs = [x.split() for x in text.split(",")]
    try:
        moves = [(float(x), float(y)) for x, y in pairs]
    except ValueError:
        raise pl.UserError(
            f'moves={text}: a pair for each action, with commas between: moves="0 0,-1 0,1 0,0 -1,0 1"'
        ) from None
    return tuple(moves)
