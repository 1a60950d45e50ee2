"""A plan as goal states and rewards, and the simulator in which a policy follows it.

n games, A agents, E pairs of parts, N phases, d dimensions of a place.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.rmd_hoi.parts import MovementParts
from palaestra.recipes.llm4rl.rmd_hoi.plan import (
    APPROACH,
    CONTACT,
    SEPARATE,
    TRENDS,
    MovementFile,
    MovementPlan,
    MovementScene,
    MovementTarget,
    trends_of,
)

GRAPH, BODY, OBJECT = 0.5, 0.2, 0.3  # weights of r_RMD, of the body's and of the object's target
Places = Mapping[str, np.ndarray]
COLUMNS = ("plan_reward", "plan_phase", "plan_done")  # of a game, beside what the simulator gives


def edge_reward(p: np.ndarray, v: np.ndarray, trend: np.ndarray) -> np.ndarray:
    """[...] how far a pair moves as its trend says, from 0 to 1; c = -p.v / |p| is the closing speed.

        contact     exp(-5 |p|^2) exp(-5 |v|^2)
        approach    exp(-2 max(0, 1 - c)^2)
        separate    exp(-2 max(0, 1 + c)^2)
        free        1

    Args:
        p, v: relative place and velocity [..., d], in the scene's units.
    """
    square = lambda x: np.square(x).sum(-1)
    c = -(p * v).sum(-1) / np.maximum(np.sqrt(square(p)), 1e-9)
    contact = np.exp(-5 * (square(p) + square(v)))
    toward = lambda speed: np.exp(-2 * np.square(np.maximum(0.0, 1 - speed)))
    return np.select(
        [trend == CONTACT, trend == APPROACH, trend == SEPARATE],
        [contact, toward(c), toward(-c)],
        1.0,
    )


def target_reward(away: np.ndarray) -> np.ndarray:
    """[...] exp(-|x - d|^2) of the way [..., d] that is left, in the scene's units."""
    return np.exp(-np.square(away).sum(-1))


def goal_reward(
    graph: np.ndarray | None, body: np.ndarray | None, thing: np.ndarray | None
) -> np.ndarray:
    """r_G = 0.5 r_RMD + 0.2 r_body + 0.3 r_object, from 0 to 1; the weights of what a phase does not have
    go to the others.

    Raises UserError where it has none of them.
    """
    parts = [(w, x) for w, x in ((GRAPH, graph), (BODY, body), (OBJECT, thing)) if x is not None]
    if not parts:
        raise pl.UserError("a phase without a graph and without a target has no reward")
    return sum(w * x for w, x in parts) / np.asarray(sum(w for w, _ in parts))


@runtime_checkable
class HasRounds(Protocol):
    """A simulator whose games have several tasks, one after the other."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """What may be wanted, in words."""
        ...

    @property
    def rounds(self) -> int:
        """Tasks of a game."""
        ...

    def task_of(self, obs: np.ndarray) -> np.ndarray:
        """[...] the number of the task that counts, of observations [..., O]; any behind the last one."""
        ...

    def round_of(self, obs: np.ndarray) -> np.ndarray:
        """[...] how many tasks were done; `rounds` = all."""
        ...


@pl.value_class
class MovementState:
    inner: Any
    phase_nA: np.ndarray  # of the plan that is followed; N = it is done
    place: Places
    velocity: Places
    reward_nA: np.ndarray  # r of the step that led here


@pl.value_class
class MovementGoals:
    """What a plan says of places: goal states, rewards, and when a phase is done."""

    plan: MovementPlan
    scene: MovementScene

    @property
    def width(self) -> int:
        """Numbers of a goal state: of each pair 2 d + 4, and of two targets d and a flag each."""
        d = len(self.scene.low)
        return len(self.scene.pairs) * (2 * d + len(TRENDS)) + 2 * (d + 1)

    def relations(self, place: Places, velocity: Places) -> tuple[np.ndarray, np.ndarray]:
        """[..., E, d] relative places and velocities, in the scene's units: object less body."""
        gap = lambda x: np.stack([x[o] - x[b] for b, o in self.scene.pairs], -2)
        return gap(place) / self.scene.unit, gap(velocity) / self.scene.speed

    def way(self, target: MovementTarget | None, place: Places) -> np.ndarray | None:
        """[..., d] from a part to its target; None = there is none."""
        if target is None:
            return None
        goal = (
            place[target.place]
            if isinstance(target.place, str)
            else np.asarray(target.place, float)
        )
        return (goal - place[target.part]) / self.scene.unit

    def reward(self, phase: np.ndarray, place: Places, velocity: Places) -> np.ndarray:
        """[...] r_G of the phases [...]."""
        p, v = self.relations(place, velocity)
        rewards = list[np.ndarray]()
        for trend_E, now in zip(trends_of(self.plan, self.scene), self.plan.phases, strict=True):
            named = trend_E != max(TRENDS)
            edges = edge_reward(p, v, trend_E)[..., named]
            ways = (self.way(t, place) for t in (now.body_target, now.object_target))
            body, thing = (None if x is None else target_reward(x) for x in ways)
            graph = edges.mean(-1) if named.any() else None
            if graph is None and body is None and thing is None:
                graph = np.ones(phase.shape)  # a shuffled or spoiled phase may ask for nothing
            rewards.append(goal_reward(graph, body, thing))
        last = np.minimum(phase, len(rewards) - 1)
        return np.take_along_axis(np.stack(rewards, -1), last[..., None], -1)[..., 0]

    def arrived(self, phase: np.ndarray, place: Places, threshold: float) -> np.ndarray:
        """[...] whether a phase that asks for no contact has its targets: the weighted mean of exp(-|x - d|^2) is
        above the threshold, however its parts move.
        """
        there = list[np.ndarray]()
        for trend_E, now in zip(trends_of(self.plan, self.scene), self.plan.phases, strict=True):
            ways = (self.way(t, place) for t in (now.body_target, now.object_target))
            body, thing = (None if x is None else target_reward(x) for x in ways)
            if (trend_E == CONTACT).any() or (body is None and thing is None):
                there.append(np.zeros(phase.shape, bool))
            else:
                there.append(goal_reward(None, body, thing) > threshold)
        last = np.minimum(phase, len(there) - 1)
        return np.take_along_axis(np.stack(there, -1), last[..., None], -1)[..., 0]

    def state(self, phase: np.ndarray, place: Places, velocity: Places) -> np.ndarray:
        """[..., G] of each pair its relative place, velocity and the one-hot of its trend, then the ways
        to the targets of body and object, each with a 1 where there is one.
        """
        p, v = self.relations(place, velocity)
        last = np.minimum(phase, len(self.plan.phases) - 1)
        trend = trends_of(self.plan, self.scene)[last]
        graph = np.concatenate([p, v, np.eye(len(TRENDS))[trend]], -1)
        blocks = [graph.reshape(*phase.shape, -1)]
        for role in ("body_target", "object_target"):
            all_N = list[np.ndarray]()
            for now in self.plan.phases:
                way = self.way(getattr(now, role), place)
                flag = np.full((*phase.shape, 1), float(way is not None))
                way = np.zeros((*phase.shape, len(self.scene.low))) if way is None else way
                all_N.append(np.concatenate([way, flag], -1))
            blocks.append(
                np.take_along_axis(np.stack(all_N, -2), last[..., None, None], -2)[..., 0, :]
            )
        return np.concatenate(blocks, -1)


class MovementSimulator:
    """A simulator whose agents see the goal state of the plan's phase behind their observation. A phase
    is left for the next one when r_G is above the threshold; with `arrive` also when it asks for no contact and its
    targets are reached, see `MovementGoals.arrived`. What is paid stays the simulator's.

    A simulator with several tasks, see `HasRounds`, has a plan for each of them, in their order: of the task that counts
    it is followed from its first phase on, until the simulator says that the task is done.

    Its facts: "plan_reward", (k + (i + r_G) / N) / R in phase i of N, counted from 0, after k of R tasks; the last phase
    is how things should stay and is paid to the end, also after it was done. "plan_phase", phases of the plan that are
    done. "plan_done", the share of everything that is, (k + phases / N) / R.
    """

    def __init__(
        self,
        sim: pl.control.Simulator,
        goals: MovementGoals | Sequence[MovementGoals],
        places: Callable[[np.ndarray], Places],
        threshold: float,
        arrive: bool = False,
    ):
        self.sim, self.places, self.threshold, self.arrive = sim, places, threshold, arrive
        self.goals = (goals,) if isinstance(goals, MovementGoals) else tuple(goals)
        self.agents, self.horizon, self.actions = sim.agents, sim.horizon, sim.actions
        self.observation = sim.observation + self.goals[0].width
        self.rounds = sim.rounds if isinstance(sim, HasRounds) else 1
        self.phases = np.array([len(g.plan.phases) for g in self.goals])

    def rounds_of(self, inner: Any) -> tuple[np.ndarray, np.ndarray]:
        """[n, A] the number of the task that counts, and how many were done before."""
        obs = self.sim.observe(inner)
        if not isinstance(self.sim, HasRounds):
            return np.zeros(obs.shape[:2], int), np.zeros(obs.shape[:2], int)
        return self.sim.task_of(obs), self.sim.round_of(obs)

    def of_task(self, each: Sequence[np.ndarray], task: np.ndarray) -> np.ndarray:
        """[n, A, ...] of arrays by task, that of the task of each game."""
        stacked, index = np.stack(each), np.indices(task.shape)
        return stacked[(task, *index)]

    def reset(self, rng: np.random.Generator, n: int) -> MovementState:
        inner = self.sim.reset(rng, n)
        place = self.places(self.sim.observe(inner))
        phase = np.zeros((n, self.agents), int)
        still = {k: 0 * x for k, x in place.items()}
        return MovementState(
            inner=inner,
            phase_nA=phase,
            place=place,
            velocity=still,
            reward_nA=np.zeros(phase.shape),
        )

    def observe(self, state: MovementState) -> np.ndarray:
        task, _ = self.rounds_of(state.inner)
        each = [g.state(state.phase_nA, state.place, state.velocity) for g in self.goals]
        goal = self.of_task(each, task)
        return np.concatenate([self.sim.observe(state.inner), goal], -1)

    def legal(self, state: MovementState) -> np.ndarray | None:
        return self.sim.legal(state.inner)

    def step(
        self, state: MovementState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[MovementState, np.ndarray, np.ndarray]:
        inner, paid_nA, over_n = self.sim.step(state.inner, act_nA, rng)
        place = self.places(self.sim.observe(inner))
        velocity = {k: x - state.place[k] for k, x in place.items()}
        task, before = self.rounds_of(state.inner)
        _, then = self.rounds_of(inner)
        N = self.phases[task]
        each = [g.reward(state.phase_nA, place, velocity) for g in self.goals]
        r_G = self.of_task(each, task)
        done = state.phase_nA >= N
        # a switch never costs: what is done counts 1, so nobody waits below the threshold
        share = (np.minimum(state.phase_nA, N - 1) + r_G) / N
        reward = (
            np.where(then > before, then, np.minimum(before + share, self.rounds)) / self.rounds
        )
        ends = r_G > self.threshold
        if self.arrive:
            there = [g.arrived(state.phase_nA, place, self.threshold) for g in self.goals]
            ends = ends | self.of_task(there, task)
        phase = np.where(then > before, 0, state.phase_nA + (~done & ends))
        after = MovementState(
            inner=inner,
            phase_nA=phase,
            place=place,
            velocity=velocity,
            reward_nA=reward,
        )
        return after, paid_nA, over_n

    def facts(self, state: MovementState) -> Mapping[str, np.ndarray]:
        own = self.sim.facts(state.inner) if isinstance(self.sim, pl.control.TellsFacts) else {}
        task, rounds = self.rounds_of(state.inner)
        share = np.minimum(rounds + state.phase_nA / self.phases[task], self.rounds) / self.rounds
        values = (state.reward_nA, state.phase_nA.astype(float), share)
        return {**own, **dict(zip(COLUMNS, values, strict=True))}


def plan_rewards(paid: float, gamma: float, horizon: int) -> pl.control.Shaping:
    """r = paid * (what the simulator pays) + plan_reward, of a game that ends early as if its last state
    stayed until the horizon.
    """

    def shaping(paths: pl.control.Paths) -> np.ndarray:
        stay = pl.control.stay_rewards(paths["plan_reward"], paths, horizon, gamma)
        return (paid * paths["reward"] + stay) * paths["alive"][:, None]

    return shaping


def load_movement(sim: pl.control.Simulator, folder: Path | str) -> MovementSimulator:
    """The simulator as a saved policy saw it. Raises UserError for a folder without a plan."""
    file = MovementFile.read(folder)
    goals = [MovementGoals(plan=plan, scene=file.scene) for plan in file.plans]
    places = MovementParts.of(sim, file.body, file.objects).places
    return MovementSimulator(sim, goals, places, file.threshold, file.arrive)
