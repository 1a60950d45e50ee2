"""Eight simulators that differ, each with a description as a user would give it: what it is about, and
named quantities of the state after a step.

    palaestra train lero --env benchmarks/guides/simulators.py:rooms parts=reward --llm ...

n games, A agents, T steps, C cells.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.control.cells import steps_between
from palaestra.recipes.llm4rl.cache_posterior.grid import ABOUT as PHRASES
from palaestra.recipes.llm4rl.cache_posterior.grid import PhraseGrid
from palaestra.recipes.llm4rl.hib.pendulums import HiddenPendulums
from palaestra.recipes.llm4rl.mrlmn.network import COARSE, DroneNetwork
from palaestra.recipes.llm4rl.robohorizon.lid import LidTask

Of = pl.control.Quantity
Columns = Mapping[str, np.ndarray]


class DescribedSimulator:
    """A simulator with what is said of it: `about`, `declared`, and its quantities, computed from the
    observation after a step alone.
    """

    def __init__(
        self,
        sim: Any,
        about: str,
        declared: pl.control.Quantities,
        read: Callable[[np.ndarray], Columns],
    ):
        self.sim, self.about, self.declared, self.read = sim, about, declared, read
        self.agents, self.horizon, self.actions = sim.agents, sim.horizon, sim.actions
        self.observation = sim.observation

    def quantities(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        return dict(self.read(paths["next_obs"]))

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        return self.sim.reset(rng, n)

    def observe(self, state: Any) -> np.ndarray:
        return self.sim.observe(state)

    def legal(self, state: Any) -> np.ndarray | None:
        return self.sim.legal(state)

    def step(self, state: Any, act_nA: np.ndarray, rng: np.random.Generator) -> Any:
        return self.sim.step(state, act_nA, rng)


# ---- keys and doors

ROOMS = pl.control.Rooms(rooms=2, size=3)
ROOMS_ABOUT = """An agent walks in two rooms of 3 by 3 cells, beside one another. Columns are 0 to 6 from left to \
right and rows 0 to 2 from up to down; the left room has columns 0 to 2, the door is at column 3 and row 1, and the \
right room has columns 4 to 6. The door is locked until the agent has stood on the key, which lies in the left room. \
The goal is in the right room: reaching it pays 1 and ends the game, and each step costs 0.01; a game has 40 steps at \
most. In each step the agent goes one cell left, right, up or down. Places of agent, key and goal differ from game to \
game."""


def rooms_places() -> np.ndarray:
    """[C, 2] column and row of every cell, as Rooms numbers them: columns from left to right."""
    inside = lambda x, y: x != 3 or y == 1
    return np.array([(x, y) for x in range(7) for y in range(3) if inside(x, y)], float)


def read_rooms(obs: np.ndarray) -> Columns:
    seen, place = obs.reshape(*obs.shape[:-1], 3, -1), rooms_places()
    agent, goal = place[seen[..., 0, :].argmax(-1)], place[seen[..., 2, :].argmax(-1)]
    lies = seen[..., 1, :].any(-1)
    key = np.where(lies[..., None], place[seen[..., 1, :].argmax(-1)], agent)
    return {
        "agent_x": agent[..., 0],
        "agent_y": agent[..., 1],
        "key_x": key[..., 0],
        "key_y": key[..., 1],
        "has_key": (~lies).astype(float),
        "goal_x": goal[..., 0],
        "goal_y": goal[..., 1],
    }


def rooms_left(obs: np.ndarray) -> np.ndarray:
    """[...] steps of a shortest way to the key, if it lies, and on to the goal."""
    place = rooms_places()
    near = np.abs(place[:, None] - place).sum(-1) == 1
    far = steps_between(np.where(near, np.arange(len(place)), -1))
    seen = obs.reshape(*obs.shape[:-1], 3, -1)
    agent, goal = seen[..., 0, :].argmax(-1), seen[..., 2, :].argmax(-1)
    key = np.where(seen[..., 1, :].any(-1), seen[..., 1, :].argmax(-1), agent)
    return (far[agent, key] + far[key, goal]).astype(float)


def rooms() -> DescribedSimulator:
    column = lambda about: Of(low=0.0, high=6.0, about=about)
    row = lambda about: Of(low=0.0, high=2.0, about=about)
    declared = {
        "agent_x": column("column of the agent"),
        "agent_y": row("row of the agent"),
        "key_x": column("column of the key; that of the agent once it has the key"),
        "key_y": row("row of the key; that of the agent once it has the key"),
        "has_key": Of(low=0.0, high=1.0, about="1 once the agent has the key"),
        "goal_x": column("column of the goal"),
        "goal_y": row("row of the goal"),
    }
    return DescribedSimulator(ROOMS, ROOMS_ABOUT, declared, read_rooms)


# ---- a maze in which feet slip

MAZE = pl.control.Maze()


def maze() -> DescribedSimulator:
    about = (
        f"{MAZE.about}In each step the agent goes one cell left, right, up or down, and one step in ten goes in a "
        "direction drawn at random. Reaching the goal pays 1 and ends the game; nothing else pays."
    )
    declared = dict(MAZE.visible)
    return DescribedSimulator(MAZE, about, declared, lambda obs: MAZE.view(obs))


def maze_left(obs: np.ndarray) -> np.ndarray:
    """[...] steps of a shortest way to the goal."""
    place = MAZE.places
    near = np.abs(place[:, None] - place).sum(-1) == 1
    far = steps_between(np.where(near, np.arange(len(place)), -1))
    goal = int(np.abs(place - np.array(MAZE.goal)).sum(1).argmin())
    return far[obs[..., 2:].argmax(-1), goal].astype(float)


# ---- forty phrases

GRID = PhraseGrid()


def read_phrases(obs: np.ndarray) -> Columns:
    size = GRID.size
    cells = size**2
    agent, key = obs[..., :cells].argmax(-1), obs[..., cells : 2 * cells + 1].argmax(-1)
    door = obs[..., 2 * cells + 1 : 3 * cells + 1].argmax(-1)
    carried = key == cells
    names = {"agent": agent, "key": np.where(carried, agent, key), "door": door}
    rows = {f"{n}_row": (x // size).astype(float) for n, x in names.items()}
    columns = {f"{n}_column": (x % size).astype(float) for n, x in names.items()}
    return rows | columns | {"has_key": carried.astype(float)}


def phrases_left(obs: np.ndarray) -> np.ndarray:
    """[...] phrases that are needed at least."""
    at = read_phrases(obs)
    apart = lambda a, b: (
        np.abs(at[f"{a}_row"] - at[f"{b}_row"]) + np.abs(at[f"{a}_column"] - at[f"{b}_column"])
    )
    to_key = apart("agent", "key") + 1
    return np.where(at["has_key"] > 0, 0, to_key) + apart("key", "door") + 1


def phrases() -> DescribedSimulator:
    of = lambda about: Of(low=0.0, high=2.0, about=about)
    declared = {
        "agent_row": of("row of the agent, 0 is north"),
        "agent_column": of("column of the agent, 0 is west"),
        "key_row": of("row of the key; that of the agent while it carries the key"),
        "key_column": of("column of the key; that of the agent while it carries the key"),
        "has_key": Of(low=0.0, high=1.0, about="1 while the agent carries the key"),
        "door_row": of("row of the door"),
        "door_column": of("column of the door"),
    }
    about = f"{PHRASES} The game is on a grid of 3 by 3 cells; phrases such as 'go north' move the agent by one."
    return DescribedSimulator(GRID, about, declared, read_phrases)


# ---- pendulums whose mass nobody sees

PENDULUM_ABOUT = """A motor at the pivot of a pendulum should bring the pendulum to a target angle and hold it there. \
Angles are 0 where it hangs down. Mass, length and friction differ from game to game and are not seen. A game has 40 \
steps of 0.2 s; each pays -(angle - target)^2 - 0.01 speed^2 - 0.01 torque^2. The action is the torque of the motor, \
from -1 to 1."""


def read_pendulum(obs: np.ndarray) -> Columns:
    angle = np.arctan2(obs[..., 1], obs[..., 0])
    target = np.arctan2(obs[..., 4], obs[..., 3])
    return {"angle": angle, "speed": obs[..., 2] * 8.0, "target": target}


def pendulum() -> DescribedSimulator:
    declared = {
        "angle": Of(low=-np.pi, high=np.pi, about="of the pendulum in rad, 0 = hanging down"),
        "speed": Of(low=-8.0, high=8.0, about="of the angle in rad/s"),
        "target": Of(low=-1.2, high=1.2, about="angle at which it should be held, in rad"),
    }
    return DescribedSimulator(HiddenPendulums(), PENDULUM_ABOUT, declared, read_pendulum)


# ---- drones that carry traffic

DRONES = DroneNetwork()
DRONES_ABOUT = """Six drones fly over a square of 12 by 12 cells and serve 24 users on the ground. A user is served by a \
drone within 2 cells that has a way to one of two base stations at the left edge, over other drones: a hop is at most 3.5 \
cells long, between drones or from a drone to a base station. Drones start near the base stations; users stand in \
three crowds, farther to the right. A game has 20 steps; in each a drone stays or flies one cell left, right, down or \
up, and all drones are paid the share of users that are served."""


def read_drones(obs: np.ndarray) -> Columns:
    side, A = DRONES.side, DRONES.agents
    first = 3 + DRONES.groups + A
    base = obs[..., first : first + 4].reshape(*obs.shape[:-1], 2, 2)
    others = obs[..., first + 4 : first + 4 + 3 * (A - 1)].reshape(*obs.shape[:-1], A - 1, 3)
    users = obs[..., first + 4 + 3 * (A - 1) :] * DRONES.users / 4
    local = users[..., 2 * COARSE**2 :]
    return {
        "x": obs[..., 1] * side,
        "y": obs[..., 2] * side,
        "base_distance": np.linalg.norm(base, axis=-1).min(-1) * side,
        "nearest_drone": np.linalg.norm(others[..., :2], axis=-1).min(-1) * side,
        "linked": obs[..., -2],
        "users_near": local[..., :4].sum(-1),
        "users_in_reach": local[..., 4],
        "users_served": users[..., -1],
        "users_unserved": users[..., COARSE**2 : 2 * COARSE**2].sum(-1),
    }


def drones() -> DescribedSimulator:
    users = lambda about: Of(low=0.0, high=24.0, about=about)
    declared = {
        "x": Of(low=0.0, high=12.0, about="column of the drone, 0 is left"),
        "y": Of(low=0.0, high=12.0, about="row of the drone"),
        "base_distance": Of(low=0.0, high=17.0, about="to the nearest base station, in cells"),
        "nearest_drone": Of(
            low=0.0, high=17.0, about="distance to the nearest other drone, in cells"
        ),
        "linked": Of(low=0.0, high=1.0, about="1 where the drone has a way to a base station"),
        "users_near": users("users within five cells of the drone"),
        "users_in_reach": users("users within two cells of the drone"),
        "users_served": users("users that this drone serves"),
        "users_unserved": users("users that no drone serves"),
    }
    return DescribedSimulator(DRONES, DRONES_ABOUT, declared, read_drones)


# ---- those that say themselves what they are about

lid, coverage, car = LidTask, pl.control.Coverage, pl.control.CarFollowing

MAKE: Mapping[str, Callable[[], Any]] = {
    "rooms": rooms,
    "maze": maze,
    "phrases": phrases,
    "lid": lid,
    "coverage": coverage,
    "car": car,
    "pendulum": pendulum,
    "drones": drones,
}
# steps that are left on a shortest way, where they are known
LEFT: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "rooms": rooms_left,
    "maze": maze_left,
    "phrases": phrases_left,
}
