"""Integer programs over actions: a linear cost, what arms earn at once, or a ReLU network in the objective.

n actions, R rows of constraints, L layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import palaestra as pl

Layer = tuple[np.ndarray, np.ndarray]  # weights [out, in], biases [out]
Terms = Sequence[tuple[int, float]]  # variables and their coefficients


def solver() -> Any:
    """scipy.optimize. Raises UserError where it is missing."""
    try:
        import scipy.optimize
    except ImportError:
        raise pl.UserError("scipy is missing; `pip install 'palaestra[milp]'`") from None
    return scipy.optimize


@pl.value_class
class Feasible:
    """Actions a in {0, 1}^n for which binary y exist with low <= matrix [a, y] <= high."""

    actions: int
    matrix: np.ndarray  # [R, n + number of y]
    low: np.ndarray
    high: np.ndarray

    @property
    def hidden(self) -> int:
        """Number of y."""
        return self.matrix.shape[1] - self.actions


@dataclass
class IntegerProgram:
    """Variables with bounds and rows of constraints, added one after another; the actions come first."""

    feasible: Feasible
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    integer: list[int] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for _ in range(self.feasible.actions + self.feasible.hidden):
            self.variable(0, 1, integer=True)

    def variable(self, low: float, high: float, integer: bool = False) -> int:
        """The number of another one."""
        self.low.append(low)
        self.high.append(high)
        self.integer.append(int(integer))
        return len(self.low) - 1

    def row(self, terms: Terms, low: float, high: float) -> None:
        self.rows.append((terms, low, high))

    def solve(self, cost: Terms, seconds: float) -> np.ndarray | None:
        """[n] the feasible action of least cost, or the best one that was found in so many seconds; None = none
        was, or there is none.
        """
        optimize, numbers = solver(), len(self.low)
        objective = np.zeros(numbers)
        for variable, weight in cost:
            objective[variable] += weight
        more = np.zeros((len(self.rows), numbers))
        for i, (terms, _, _) in enumerate(self.rows):
            for variable, weight in terms:
                more[i, variable] += weight
        given = self.feasible
        own = np.zeros((len(given.low), numbers))
        own[:, : given.matrix.shape[1]] = given.matrix
        low = np.concatenate([given.low, [low for _, low, _ in self.rows]])
        high = np.concatenate([given.high, [high for _, _, high in self.rows]])
        answer = optimize.milp(
            objective,
            integrality=np.array(self.integer),
            bounds=optimize.Bounds(np.array(self.low), np.array(self.high)),
            constraints=optimize.LinearConstraint(np.concatenate([own, more]), low, high),
            options={"time_limit": seconds, "mip_rel_gap": 1e-6},
        )
        return None if answer.x is None else np.round(answer.x[: given.actions]).astype(int)


def least_linear(feasible: Feasible, cost_N: np.ndarray, seconds: float) -> np.ndarray | None:
    """[n] the feasible action a with the least cost . a"""
    return IntegerProgram(feasible).solve(list(enumerate(cost_N)), seconds)


def is_feasible(feasible: Feasible, action_N: np.ndarray, seconds: float) -> bool:
    program = IntegerProgram(feasible)
    for i, chosen in enumerate(action_N):
        program.row([(i, 1.0)], float(chosen), float(chosen))
    return program.solve([], seconds) is not None


def network_value(layers: Sequence[Layer], inputs: np.ndarray) -> np.ndarray:
    """[...] the output of a ReLU network of [..., inputs]."""
    x = inputs
    for weights, biases in layers[:-1]:
        x = np.maximum(x @ weights.T + biases, 0)
    weights, biases = layers[-1]
    return (x @ weights.T + biases)[..., 0]


def least_of_network(
    feasible: Feasible, layers: Sequence[Layer], state: np.ndarray, seconds: float
) -> np.ndarray | None:
    """[n] the feasible action a at which a ReLU network of (a, state) is least.

        w . x + b = h - t,  0 <= h <= high z,  0 <= t <= -low (1 - z),  z binary

    for each hidden unit, h its output; low and high are its bounds by interval arithmetic, and a unit
    that these leave no choice has no z.
    """
    program = IntegerProgram(feasible)
    before = list(range(feasible.actions))
    low, high = np.zeros(feasible.actions), np.ones(feasible.actions)
    weights, biases = layers[0]
    first = (weights[:, : feasible.actions], biases + weights[:, feasible.actions :] @ state)
    for weights, biases in (first, *layers[1:-1]):
        positive, negative = np.maximum(weights, 0), np.minimum(weights, 0)
        least = positive @ low + negative @ high + biases
        most = positive @ high + negative @ low + biases
        before = [
            add_unit(program, list(zip(before, row, strict=True)), float(b), float(lo), float(hi))
            for row, b, lo, hi in zip(weights, biases, least, most, strict=True)
        ]
        low, high = np.maximum(least, 0), np.maximum(most, 0)
    weights, _ = layers[-1]
    return program.solve(list(zip(before, weights[0], strict=True)), seconds)


def add_unit(program: IntegerProgram, terms: Terms, bias: float, low: float, high: float) -> int:
    """The variable that is a unit's output, max(0, terms + bias)."""
    if high <= 0:
        return program.variable(0, 0)
    out = program.variable(max(low, 0), high)
    if low >= 0:
        program.row([*terms, (out, -1.0)], -bias, -bias)
        return out
    off, on = program.variable(0, -low), program.variable(0, 1, integer=True)
    program.row([*terms, (out, -1.0), (off, 1.0)], -bias, -bias)
    program.row([(out, 1.0), (on, -high)], -np.inf, 0)
    program.row([(off, 1.0), (on, -low)], -np.inf, -low)
    return out


def add_piecewise(
    program: IntegerProgram, terms: Terms, x: Sequence[float], y: Sequence[float]
) -> int:
    """The variable that is the piecewise linear function through (x, y) at the terms' sum, which is from
    the first to the last x.

        sum w_k x_k = terms,  sum w_k = 1,  w_k <= z_(k-1) + z_k,  sum z = 1;  the value sum w_k y_k
    """
    shares = [program.variable(0, 1) for _ in x]
    pieces = [program.variable(0, 1, integer=True) for _ in x[1:]]
    program.row([(w, 1.0) for w in shares], 1, 1)
    program.row([(z, 1.0) for z in pieces], 1, 1)
    program.row([*terms, *((w, -float(at)) for w, at in zip(shares, x, strict=True))], 0, 0)
    for k, w in enumerate(shares):
        beside = [z for z in (k - 1, k) if 0 <= z < len(pieces)]
        program.row([(w, 1.0), *((pieces[z], -1.0) for z in beside)], -np.inf, 0)
    out = program.variable(min(y), max(y))
    program.row([(out, -1.0), *((w, float(v)) for w, v in zip(shares, y, strict=True))], 0, 0)
    return out
