"""Whether two formulas of signal temporal logic mean the same: a search for a trace on which one
holds and the other does not.

Time is discrete and every formula looks a limited number of steps ahead, so that a signal at a time
is known by which of its thresholds it reaches (>=) and exceeds (>). In these truth values
`f and not g or g and not f` is a propositional formula, and a solver finds a model, which is such a
trace, or proves that there is none. No tolerance and no sample is involved.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np
from pysat.solvers import Minisat22

from palaestra.errors import Fault
from palaestra.verifiers.logic.stl import Formula, Traces, horizon, robustness

TRUE = 1  # the variable that is always true; a negative literal is a negation
LARGEST = 250_000  # literals of all nodes
BUDGET = 2_000_000  # propagations of the solver: about a second

# a signal, a time, a threshold, and whether it is exceeded rather than reached
Cut = tuple[str, int, Fraction, bool]


class Undecided(Exception):
    """The budget is spent."""


class Circuit:
    """Formulas at times as one graph of conjunctions, in which equal parts are one node."""

    def __init__(self) -> None:
        self.cuts: dict[Cut, int] = {}
        # the literals of a conjunction, and its variable
        self.nodes: dict[frozenset[int], int] = {}
        self.parts: dict[int, frozenset[int]] = {}
        self.known: dict[tuple[int, int], int] = {}
        self.n, self.size = TRUE, 0

    def both(self, literals: list[int]) -> int:
        """The conjunction of literals; those of conjunctions inside it are its own."""
        gates = set[int]()
        for x in literals:
            gates |= self.parts.get(x, {x})
        gates.discard(TRUE)
        if -TRUE in gates or any(-x in gates for x in gates):
            return -TRUE
        if len(gates) < 2:
            return gates.pop() if gates else TRUE
        key = frozenset(gates)
        if key not in self.nodes:
            self.n += 1
            self.size += len(key)
            if self.size > LARGEST:
                raise Undecided
            self.nodes[key], self.parts[self.n] = self.n, key
        return self.nodes[key]

    def either(self, literals: list[int]) -> int:
        return -self.both([-x for x in literals])

    def cut(self, name: str, t: int, bound: Fraction, over: bool) -> int:
        key = (name, t, bound, over)
        if key not in self.cuts:
            self.n += 1
            self.cuts[key] = self.n
        return self.cuts[key]

    def at(self, f: Formula, t: int) -> int:
        """The literal that is true where a formula, which must outlive the circuit, holds at time
        t.
        """
        key = (id(f), t)
        if key not in self.known:
            self.known[key] = self.build(f, t)
        return self.known[key]

    def build(self, f: Formula, t: int) -> int:
        match f:
            case ("atom", name, sign, bound):
                over, reached = (self.cut(name, t, bound, x) for x in (True, False))
                equal = self.both([reached, -over])
                return {
                    ">": over,
                    "<=": -over,
                    ">=": reached,
                    "<": -reached,
                    "==": equal,
                    "!=": -equal,
                }[sign]
            case ("not", g):
                return -self.at(g, t)
            case ("G" | "F", a, b, g):
                window = [self.at(g, t + k) for k in range(a, b + 1)]
                return self.both(window) if f[0] == "G" else self.either(window)
            case ("U", a, b, g, h):
                return self.until(a, b, g, h, t)
            case ("<->", g, h):
                x, y = self.at(g, t), self.at(h, t)
                return self.both([self.either([-x, y]), self.either([x, -y])])
            case ("and", g, h):
                return self.both([self.at(g, t), self.at(h, t)])
            case (sign, g, h):
                x, y = self.at(g, t), self.at(h, t)
                return self.either([-x if sign == "->" else x, y])
            case _:
                raise ValueError(f)

    def until(self, a: int, b: int, g: Formula, h: Formula, t: int) -> int:
        """From its end: h now, or g now and the rest from the next step on."""
        rest = -TRUE
        for k in range(b, -1, -1):
            rest = self.both([self.at(g, t + k), rest]) if k < b else rest
            rest = self.either([self.at(h, t + k), rest]) if k >= a else rest
        return rest

    def model(self, *wanted: int) -> set[int] | None:
        """The literals of one assignment under which those wanted hold; None = there is none.

        A variable that no node reads may have no literal. Raises Undecided.
        """
        clauses = [[x] for x in (TRUE, *wanted)]
        for literals, node in self.nodes.items():
            clauses += [*([-node, x] for x in literals), [node, *(-x for x in literals)]]
        for low, high in pairwise(sorted(self.cuts)):
            if low[:2] == high[:2]:  # x > 2 implies x >= 2, which implies x > 1
                clauses.append([-self.cuts[high], self.cuts[low]])
        with Minisat22(bootstrap_with=clauses) as solver:
            solver.prop_budget(BUDGET)
            # Interruptible calls release the interpreter's lock: answers are judged in threads.
            decided = solver.solve_limited(expect_interrupt=True)
            if decided is None:
                raise Undecided
            return set(solver.get_model() or ()) if decided else None


def are_equivalent(f: Formula, g: Formula) -> bool:
    """Whether two formulas hold on the same traces. What cannot be decided within the budget is not
    the same, and a formula that holds always, or never, says nothing: only itself is the same.
    """
    if f == g:
        return True
    try:
        return are_same(f, g) and is_contingent(g)
    except Undecided:
        return False


def are_same(f: Formula, g: Formula) -> bool:
    """What stands under equal operators is tried first: proved once, it holds at every time. Raises
    Undecided.
    """
    alike = f[0] in ("G", "F") and f[:3] == g[:3]
    return f == g or (alike and are_same(f[3], g[3])) or difference(f, g) is None


@lru_cache(maxsize=4096)
def is_contingent(f: Formula) -> bool:
    """Whether a formula holds on some trace and fails on another. Raises Undecided."""
    circuit = Circuit()
    x = circuit.at(f, 0)
    return all(circuit.model(y) is not None for y in (x, -x))


def difference(f: Formula, g: Formula) -> Traces | None:
    """A trace ([1, T] by signal) on which one formula holds at time 0 and the other does not; None
    = there is none.

    Its values are places among a signal's thresholds: 2 i + 1 is the i-th of them, and 2 i what
    lies below it. Raises Undecided.
    """
    circuit = Circuit()
    x, y = circuit.at(f, 0), circuit.at(g, 0)
    true = None if x == y else circuit.model(x, -y) or circuit.model(-x, y)
    if true is None:
        return None
    pairs = atoms(f) | atoms(g)
    bounds = {name: sorted({b for n, b in pairs if n == name}) for name, _ in pairs}
    steps = max(horizon(f), horizon(g)) + 1
    traces = {name: np.zeros((1, steps)) for name in bounds}
    for (name, t, bound, over), variable in circuit.cuts.items():
        if variable in true:
            traces[name][0, t] = max(traces[name][0, t], 2 * bounds[name].index(bound) + 1 + over)
    if len({bool(robustness(place_bounds(h, bounds), traces)[0, 0] > 0) for h in (f, g)}) == 1:
        raise Fault("verifier", f"stl: no difference on the trace that was found for {f} and {g}")
    return traces


def atoms(f: Formula) -> set[tuple[str, Fraction]]:
    """The signals of a formula, each with each of its thresholds."""
    return (
        {(f[1], f[3])}
        if f[0] == "atom"
        else {a for g in f if isinstance(g, tuple) for a in atoms(g)}
    )


def place_bounds(f: Formula, bounds: dict[str, list[Fraction]]) -> Formula:
    """The formula over places: each comparison half a place from the nearest, so that its
    robustness is never 0.
    """
    if f[0] != "atom":
        return tuple(place_bounds(g, bounds) if isinstance(g, tuple) else g for g in f)
    name, sign, bound = f[1:]
    i = bounds[name].index(bound)
    reached, over = (("atom", name, ">", 2 * i + half) for half in (0.5, 1.5))
    equal = ("and", reached, ("not", over))
    return {
        ">": over,
        "<=": ("not", over),
        ">=": reached,
        "<": ("not", reached),
        "==": equal,
        "!=": ("not", equal),
    }[sign]
