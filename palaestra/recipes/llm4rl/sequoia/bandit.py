"""Restless arms that a combinatorial action moves together, and sets of feasible actions.

J arms, S states of each, n binary actions.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.sequoia.milp import (
    Feasible,
    IntegerProgram,
    add_piecewise,
)

Domain = Literal["capacity", "schedule", "path", "interventions", "budget"]
KEYS = ("transitions", "up", "rewards", "start", "horizon", "limit", "weights", "link")
LIMITS = {
    "budget": ("budget",),
    "capacity": ("costs", "capacities"),
    "schedule": ("workers", "arms"),
    "path": ("edges", "depot", "length", "budget"),
    "rows": ("matrix", "low", "high"),
}


@pl.value_class
class RestlessBandit:
    """Arms that move whether they are acted on or not, and pay by the state that they come to.

        P_j(s' | s, a) = (1 - f_j(a)) P_j0(s' | s) + f_j(a) P_j1(s' | s)

    f_j(a), how strongly arm j is acted on, is a_j; or link(weights_j . a), piecewise linear.

    Args:
        transitions: [J, 2, S, S], idle and acted on.
        rewards: [J, S].
        start: [J] states, or None: drawn evenly.
        weights: [J, n] of the actions, where they are no arms.
        link: (x, y) of its corners.
    """

    transitions: np.ndarray
    rewards: np.ndarray
    feasible: Feasible
    horizon: int
    start: np.ndarray | None = None
    weights: np.ndarray | None = None
    link: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def arms(self) -> int:
        return len(self.rewards)

    @property
    def states(self) -> int:
        return self.rewards.shape[1]

    def strength(self, action: np.ndarray) -> np.ndarray:
        """[..., J] of actions [..., n]."""
        if self.weights is None or self.link is None:
            return np.asarray(action, float)
        return np.interp(action @ self.weights.T, *self.link)

    def expected(self, state: np.ndarray) -> np.ndarray:
        """[..., J, 2] what each arm pays in the next state on average, idle and acted on, of [..., J]."""
        paid = np.einsum("jast,jt->jas", self.transitions, self.rewards)
        return paid[np.arange(self.arms), :, state]

    def cost(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        """[...] less what a step pays on average, of states [..., J] and actions [..., n]."""
        idle, acted = np.moveaxis(self.expected(state), -1, 0)
        return -(idle + self.strength(action) * (acted - idle)).sum(-1)

    def step(self, state: np.ndarray, action: np.ndarray, u: np.ndarray) -> np.ndarray:
        """[..., J] the next states, by numbers u [..., J] that are even between 0 and 1."""
        j = np.arange(self.arms)
        f = self.strength(action)[..., None]
        p = (1 - f) * self.transitions[j, 0, state] + f * self.transitions[j, 1, state]
        return (u[..., None] > p.cumsum(-1)[..., :-1]).sum(-1)

    def paid(self, state: np.ndarray) -> np.ndarray:
        """[...] by states [..., J]."""
        return self.rewards[np.arange(self.arms), state].sum(-1)

    def first(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """[n, J] states at the start."""
        if self.start is not None:
            return np.tile(self.start, (n, 1))
        return rng.integers(self.states, size=(n, self.arms))

    def least_myopic(self, state: np.ndarray, seconds: float) -> np.ndarray | None:
        """[n] the feasible action whose next step pays most on average."""
        idle, acted = self.expected(state).T
        program = IntegerProgram(self.feasible)
        cost = list[tuple[int, float]]()
        for j, gain in enumerate(acted - idle):
            arm = j
            if self.weights is not None and self.link is not None:
                terms = list(enumerate(map(float, self.weights[j])))
                arm = add_piecewise(program, terms, *self.link)
            cost.append((arm, -float(gain)))
        return program.solve(cost, seconds)


# ---- sets of feasible actions


def budget_set(actions: int, most: int) -> Feasible:
    """At most so many actions."""
    return Feasible(
        actions=actions, matrix=np.ones((1, actions)), low=np.zeros(1), high=np.array([float(most)])
    )


def capacity_set(costs: Sequence[float], capacities: Sequence[float]) -> Feasible:
    """Each arm that is acted on is some worker's, whose arms cost no more than the worker's capacity."""
    J, W = len(costs), len(capacities)
    rows, low, high = list[np.ndarray](), list[float](), list[float]()
    pair = lambda w, j: J + w * J + j
    for j in range(J):
        row = np.zeros(J + W * J)
        row[j] = -1
        row[[pair(w, j) for w in range(W)]] = 1
        rows.append(row)
        low.append(0)
        high.append(0)
    for w, most in enumerate(capacities):
        row = np.zeros(J + W * J)
        row[[pair(w, j) for j in range(J)]] = costs
        rows.append(row)
        low.append(0)
        high.append(float(most))
    return Feasible(actions=J, matrix=np.stack(rows), low=np.array(low), high=np.array(high))


def schedule_set(workers: Sequence[Sequence[int]], arms: Sequence[Sequence[int]]) -> Feasible:
    """Each arm that is acted on takes one slot of one worker, free for both; a worker's slot serves one arm.

    Args:
        workers, arms: the slots in which each of them is free.
    """
    J = len(arms)
    visits = [
        (w, t, j) for w, free in enumerate(workers) for t in free for j in range(J) if t in arms[j]
    ]
    slots = sorted({(w, t) for w, t, _ in visits})
    matrix = np.zeros((J + len(slots), J + len(visits)))
    high = np.concatenate([np.zeros(J), np.ones(len(slots))])
    matrix[range(J), range(J)] = -1
    for i, (w, t, j) in enumerate(visits):
        matrix[j, J + i] = 1
        matrix[J + slots.index((w, t)), J + i] = 1
    return Feasible(actions=J, matrix=matrix, low=np.zeros(len(high)), high=high)


def path_set(
    arms: int, edges: Sequence[Sequence[int]], depot: int, length: int, budget: int
) -> Feasible:
    """Arms that are acted on, at most `budget`, lie on a walk of `length` moves from the depot back to it,
    along edges in both directions; a move may stay.
    """
    moves = sorted(
        {(j, j) for j in range(arms)}
        | {(int(a), int(b)) for a, b in edges}
        | {(int(b), int(a)) for a, b in edges}
    )
    size = arms + length * len(moves)
    at = lambda t, test: [arms + t * len(moves) + i for i, m in enumerate(moves) if test(m)]
    rows, low, high = list[np.ndarray](), list[float](), list[float]()

    def add(parts: Sequence[tuple[list[int], float]], least: float, most: float) -> None:
        row = np.zeros(size)
        for where, weight in parts:
            row[where] += weight
        rows.append(row)
        low.append(least)
        high.append(most)

    add([(list(range(arms)), 1.0)], 0, budget)
    add([(at(0, lambda m: m[0] == depot), 1.0)], 1, 1)
    add([(at(length - 1, lambda m: m[1] == depot), 1.0)], 1, 1)
    for t in range(length):
        add([(at(t, lambda m: True), 1.0)], 1, 1)
    for t in range(length - 1):
        for j in range(arms):
            into, out = at(t, lambda m, j=j: m[1] == j), at(t + 1, lambda m, j=j: m[0] == j)
            add([(into, 1.0), (out, -1.0)], 0, 0)
    for j in range(arms):
        visits = [i for t in range(length) for i in at(t, lambda m, j=j: m[1] == j)]
        add([([j], -1.0), (visits, 1.0)], 0, np.inf)
    return Feasible(actions=arms, matrix=np.stack(rows), low=np.array(low), high=np.array(high))


# ---- built in, and a user's


def climbing(up: np.ndarray, states: int) -> np.ndarray:
    """[J, 2, S, S] of arms that go up one state with probability up [J, 2], else down one."""
    made = np.zeros((*up.shape, states, states))
    for s in range(states):
        made[..., s, min(s + 1, states - 1)] += up
        made[..., s, max(s - 1, 0)] += 1 - up
    return made


def draw_bandit(
    domain: Domain, arms: int, budget: int, horizon: int, rng: np.random.Generator
) -> RestlessBandit:
    """Arms of four states: up with 0 to 0.2 idle and 0.7 to 0.9 acted on; they pay 0.1, 0.15, 0.2 or, every
    second one, 0.2, 0.15, 0.1, and at the top 1 to 3 or, `budget` of them, 4 to 6: what pays at once is
    not what pays later.
    """
    up = np.stack([rng.uniform(0, 0.2, arms), rng.uniform(0.7, 0.9, arms)], 1)
    rewards = np.zeros((arms, 4))
    rewards[:, :3] = np.where(np.arange(arms)[:, None] % 2, (0.2, 0.15, 0.1), (0.1, 0.15, 0.2))
    rewards[:, 3] = rng.uniform(1, 3, arms)
    rich = rng.choice(arms, min(budget, arms), replace=False)
    rewards[rich, 3] = rng.uniform(4, 6, len(rich))
    weights, link = None, None
    if domain == "capacity":
        capacities = np.sort(rng.integers(4, 9, budget))
        feasible = capacity_set(rng.integers(2, 7, arms).tolist(), capacities.tolist())
    elif domain == "schedule":
        free = lambda n: [sorted(rng.choice(4, 2, replace=False).tolist()) for _ in range(n)]
        feasible = schedule_set(free(budget), free(arms))
    elif domain == "path":
        edges = [(j, (j + 1) % arms) for j in range(arms)] + [(0, arms // 2)]
        feasible = path_set(arms, edges, 0, 2 * budget, budget)
    elif domain == "interventions":
        feasible = budget_set(arms, budget)
        weights = rng.uniform(0, 1, (arms, arms)) * (rng.random((arms, arms)) < 0.5)
        weights[range(arms), range(arms)] += 0.5
        link = (
            (0.0, 0.5, 1.0, 1.5, max(2.0, float(weights.sum(1).max()))),
            (0.0, 0.1, 0.6, 0.9, 1.0),
        )
    else:
        feasible = budget_set(arms, budget)
    return RestlessBandit(
        transitions=climbing(up, 4),
        rewards=rewards,
        feasible=feasible,
        horizon=horizon,
        weights=weights,
        link=link,
    )


def load_bandit(spec: str) -> RestlessBandit:
    """A bandit of FILE.json, or of FILE.py:NAME, a `RestlessBandit`, the same record, or a function without
    arguments that makes one of them.

    Raises UserError where it is none, with the key that is wrong.
    """
    if spec.endswith(".json"):
        try:
            given: Any = json.loads(Path(spec).read_text())
        except (OSError, ValueError) as error:
            raise pl.UserError(f"{spec} cannot be read: {error}") from None
    else:
        made: Any = pl.tasks.load(spec, "bandit")
        given = made() if callable(made) else made
    if isinstance(given, RestlessBandit):
        return given
    if not isinstance(given, Mapping):
        raise pl.UserError(f"{spec} is no bandit: it needs an object with {', '.join(KEYS)}")
    return read_bandit(given, spec)


def read_bandit(given: Mapping[str, Any], spec: str) -> RestlessBandit:
    """A bandit of a record. Raises UserError with the key that is wrong."""
    if unknown := set(given) - set(KEYS):
        raise pl.UserError(f"{spec}: there is no {min(unknown)}; there are {', '.join(KEYS)}")
    try:
        rewards = np.array(given["rewards"], float)
        if rewards.ndim != 2:
            raise pl.UserError(
                f"{spec} is no bandit: rewards are a list an arm, of a number for each of its states"
            )
        if "up" in given:
            transitions = climbing(np.array(given["up"], float), rewards.shape[1])
        else:
            transitions = np.array(given["transitions"], float)
        horizon, limit = int(given["horizon"]), dict(given["limit"])
        start = None if given.get("start") is None else np.array(given["start"], int)
        weights = None if given.get("weights") is None else np.array(given["weights"], float)
        link = given.get("link")
        corners = (
            None if link is None else (tuple(map(float, link["x"])), tuple(map(float, link["y"])))
        )
    except KeyError as error:
        raise pl.UserError(f"{spec} has no {error.args[0]}") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise pl.UserError(f"{spec} is no bandit: {error}") from None
    actions = len(rewards) if weights is None else weights.shape[-1]
    bandit = RestlessBandit(
        transitions=transitions,
        rewards=rewards,
        feasible=read_limit(limit, actions, spec),
        horizon=horizon,
        start=start,
        weights=weights,
        link=corners,
    )
    check_bandit(bandit, spec)
    return bandit


def read_limit(given: Mapping[str, Any], actions: int, spec: str) -> Feasible:
    """The feasible actions of "limit". Raises UserError where it is none."""
    kind = next((name for name, keys in LIMITS.items() if set(given) == set(keys)), None)
    if kind is None:
        forms = "; or ".join(", ".join(keys) for keys in LIMITS.values())
        raise pl.UserError(f"{spec}: limit has {forms}, not {', '.join(given) or 'nothing'}")
    try:
        if kind == "budget":
            made = budget_set(actions, int(given["budget"]))
        elif kind == "capacity":
            made = capacity_set(given["costs"], given["capacities"])
        elif kind == "schedule":
            made = schedule_set(given["workers"], given["arms"])
        elif kind == "path":
            depot, length = int(given["depot"]), int(given["length"])
            ends = [depot, *(int(x) for edge in given["edges"] for x in edge)]
            if wrong := [x for x in ends if not 0 <= x < actions]:
                raise pl.UserError(
                    f"{spec}: limit: there is no arm {wrong[0]}; edges and depot are numbers from 0 to {actions - 1}"
                )
            made = path_set(actions, given["edges"], depot, length, int(given["budget"]))
        else:
            unbounded = lambda values, x: np.array([x if v is None else v for v in values], float)
            made = Feasible(
                actions=actions,
                matrix=np.array(given["matrix"], float).reshape(len(given["low"]), -1),
                low=unbounded(given["low"], -np.inf),
                high=unbounded(given["high"], np.inf),
            )
    except (TypeError, ValueError, IndexError) as error:
        raise pl.UserError(f"{spec}: limit is not of its form: {error}") from None
    if made.actions != actions or made.hidden < 0 or len(made.low) != len(made.high):
        raise pl.UserError(f"{spec}: limit is of {made.actions} actions, and there are {actions}")
    return made


def check_bandit(bandit: RestlessBandit, spec: str) -> None:
    """Raises UserError for sizes and probabilities that do not fit."""
    J, S = bandit.rewards.shape
    p = bandit.transitions
    if p.shape != (J, 2, S, S):
        raise pl.UserError(
            f"{spec}: transitions are {list(p.shape)}; {J} arms of {S} states need {[J, 2, S, S]}"
        )
    if p.min() < 0 or not np.allclose(p.sum(-1), 1, atol=1e-6):
        raise pl.UserError(f"{spec}: probabilities of transitions are 0 or more and sum to 1")
    if not np.isfinite(bandit.rewards).all() or bandit.horizon < 1:
        raise pl.UserError(f"{spec}: rewards are numbers, and horizon is 1 or more")
    start = bandit.start
    if start is not None and (start.shape != (J,) or start.min() < 0 or start.max() >= S):
        raise pl.UserError(f"{spec}: start has a state from 0 to {S - 1} of each of {J} arms")
    if (bandit.weights is None) != (bandit.link is None):
        raise pl.UserError(f"{spec}: weights and link need each other")
    if bandit.weights is not None and bandit.link is not None:
        x, y = bandit.link
        reach = bandit.weights.clip(0).sum(1).max(), bandit.weights.clip(max=0).sum(1).min()
        if bandit.weights.shape[0] != J or len(x) != len(y) or list(x) != sorted(set(x)):
            raise pl.UserError(f"{spec}: weights has a row an arm, link x that grow and as many y")
        if x[0] > reach[1] or x[-1] < reach[0] or min(y) < 0 or max(y) > 1:
            raise pl.UserError(
                f"{spec}: link goes over all sums of weights, {reach[1]:g} to {reach[0]:g}, with y from 0 to 1"
            )
