"""Finite topological spaces, all of them on a few points, and what they refute.

A space is its table of interiors: of each set of points, as bits of a number, the largest open set in it. T =
spaces, S = sets of points, V = assignments of sets to variables.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from operator import or_

import numpy as np

from palaestra.errors import UserError
from palaestra.services.proof.closure import Inclusion, SetStatement, Term, names_of, read_sets

MOST_POINTS = 4
SPACES = (1, 1, 4, 29, 355)  # topologies on 0 to 4 points
MOST_CASES = 1 << 23  # of a statement on spaces of one size: arrays of 64 MB


@lru_cache(maxsize=MOST_POINTS)
def interiors(points: int) -> np.ndarray:
    """[T, S] of all topologies on so many labelled points: families of sets with the empty and the whole one,
    closed under union and intersection. Raises UserError for more than 4.
    """
    if not 1 <= points <= MOST_POINTS:
        raise UserError(f"spaces of {points} points: 1 to {MOST_POINTS} can be enumerated")
    whole = (1 << points) - 1
    inner = range(1, whole)
    tables = list[list[int]]()
    for chosen in range(1 << len(inner)):
        opens = [0, whole, *(s for i, s in enumerate(inner) if chosen >> i & 1)]
        known = set(opens)
        if all(a | b in known and a & b in known for a in opens for b in opens):
            tables.append(
                [reduce(or_, (o for o in opens if o & ~s == 0), 0) for s in range(whole + 1)]
            )
    return np.array(tables, np.int64)


def _value(term: Term, known: dict[str, np.ndarray], table_TS: np.ndarray) -> np.ndarray:
    """[T, V] the set that a term is."""
    whole = table_TS.shape[1] - 1
    if isinstance(term, str):
        return known[term]
    parts = [_value(x, known, table_TS) for x in term[1:]]
    if term[0] == "~":
        return whole ^ parts[0]
    if term[0] in ("&", "|"):
        return parts[0] & parts[1] if term[0] == "&" else parts[0] | parts[1]
    inside = parts[0] if term[0] == "int" else whole ^ parts[0]
    interior = np.take_along_axis(
        table_TS, np.broadcast_to(inside, (len(table_TS), inside.shape[1])), 1
    )
    return interior if term[0] == "int" else whole ^ interior


def _holds(pair: Inclusion, known: dict[str, np.ndarray], table_TS: np.ndarray) -> np.ndarray:
    left, right = (_value(x, known, table_TS) for x in pair)
    return left & ~right == 0


def count_cases(statement: SetStatement, points: int) -> tuple[int, int]:
    """Over all topologies on so many points and all assignments of sets: how many satisfy the hypotheses, and how
    many of these refute the conclusion. Raises UserError where there are too many to look at.
    """
    table_TS = interiors(points)
    pairs = (*statement.hypotheses, statement.conclusion)
    names = list(dict.fromkeys(n for pair in pairs for x in pair for n in names_of(x)))
    sets = table_TS.shape[1]
    if len(table_TS) * sets ** len(names) > MOST_CASES:
        raise UserError(
            f"{len(names)} variables on {points} points are too many cases; take fewer points"
        )
    grid_NV = np.indices((sets,) * len(names)).reshape(len(names), -1)
    known = {n: grid_NV[i][None, :] for i, n in enumerate(names)}
    shape = (len(table_TS), grid_NV.shape[1])
    given_TV = np.ones(shape, bool)
    for pair in statement.hypotheses:
        given_TV &= _holds(pair, known, table_TS)
    right_TV = np.broadcast_to(_holds(statement.conclusion, known, table_TS), shape)
    return int(given_TV.sum()), int((given_TV & ~right_TV).sum())


def most_points(statement: SetStatement) -> int:
    """Of how many points all cases of a statement can be looked at: 4 up to three variables, 3 up to six; 0 where
    a single point is too many.
    """
    pairs = (*statement.hypotheses, statement.conclusion)
    variables = len({n for pair in pairs for x in pair for n in names_of(x)})
    fits = (n for n in range(MOST_POINTS, 0, -1) if SPACES[n] * 2 ** (n * variables) <= MOST_CASES)
    return next(fits, 0)


def refute_sets(statement: SetStatement | str, points: int) -> str:
    """What spaces of at most so many points say of a statement: "false" where one refutes it, "vacuous" where none
    satisfies its hypotheses, "" where they know nothing against it. Of many variables smaller spaces are looked
    at, see `most_points`.
    """
    read = read_sets(statement) if isinstance(statement, str) else statement
    cases = [count_cases(read, n) for n in range(1, min(points, most_points(read)) + 1)]
    if any(refuted for _, refuted in cases):
        return "false"
    return "" if not cases or any(given for given, _ in cases) else "vacuous"
