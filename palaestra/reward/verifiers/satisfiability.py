"""Propositional satisfiability: conflict-driven clause learning (Marques-Silva and Sakallah 1999, Moskewicz 2001)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

RESTART = 100  # conflicts, times Luby's sequence
DECAY = 1.05  # by how much a later conflict's variables weigh more


class Undecided(Exception):
    """The budget is spent."""


class Solver:
    """Clauses over the variables 1 to n; a literal is a variable, or its negative."""

    def __init__(self, n: int, budget: int) -> None:
        self.n, self.budget = n, budget  # clauses that may be visited, a long one for more
        self.value = [0] * (2 * n + 1)  # by literal (negative ones from the end): 1 true, -1 false, 0 open
        self.watches: list[list[list[int]]] = [[] for _ in range(2 * n + 1)]
        self.reason: list[list[int] | None] = [None] * (n + 1)
        self.level, self.phase, self.weight = [0] * (n + 1), [-1] * (n + 1), [0.0] * (n + 1)
        self.trail: list[int] = []
        self.starts: list[int] = []  # of the trail, where each decision stands
        self.head, self.bump, self.broken = 0, 1.0, False
        self.heap: list[tuple[float, int]] = []

    def add(self, clause: list[int]) -> None:
        """Any clause, before `solve`."""
        found = [x for x in dict.fromkeys(clause) if self.value[x] != -1]
        if any(-x in found or self.value[x] == 1 for x in found):
            return
        if len(found) > 1:
            self.watch(found)
        elif not found or not self.take(found[0], None):
            self.broken = True

    def watch(self, clause: list[int]) -> None:
        """A clause of two or more different variables, the first two open."""
        self.watches[clause[0]].append(clause)
        self.watches[clause[1]].append(clause)

    def take(self, literal: int, reason: list[int] | None) -> bool:
        """Makes a literal true; whether it was not false."""
        if self.value[literal]:
            return self.value[literal] == 1
        self.value[literal], self.value[-literal] = 1, -1
        variable = abs(literal)
        self.reason[variable], self.level[variable] = reason, len(self.starts)
        self.trail.append(literal)
        return True

    def propagate(self) -> list[int] | None:
        """A clause that is false under what follows from the trail; None = there is none."""
        value, watches = self.value, self.watches
        while self.head < len(self.trail):
            false = -self.trail[self.head]
            self.head += 1
            waiting, kept = watches[false], list[list[int]]()
            watches[false] = kept
            self.budget -= len(waiting)
            for i, clause in enumerate(waiting):
                if clause[0] == false:
                    clause[0], clause[1] = clause[1], false
                first = clause[0]
                if value[first] == 1:
                    kept.append(clause)
                    continue
                for k in range(2, len(clause)):
                    if value[clause[k]] != -1:
                        clause[1], clause[k] = clause[k], false
                        watches[clause[1]].append(clause)
                        self.budget -= k >> 3
                        break
                else:
                    kept.append(clause)
                    self.budget -= len(clause) >> 3
                    if not self.take(first, clause):
                        kept += waiting[i + 1 :]
                        return clause
        return None

    def learn(self, conflict: list[int]) -> tuple[list[int], int]:
        """The clause of the first unique implication point, its literal first, and the level at which it implies that."""
        seen, open_, at = set[int](), 0, len(self.trail) - 1
        found, clause, top = list[int](), conflict, len(self.starts)
        while True:
            for literal in clause:
                variable = abs(literal)
                if variable in seen or not self.level[variable]:
                    continue
                seen.add(variable)
                self.weight[variable] += self.bump
                if self.level[variable] == top:
                    open_ += 1
                else:
                    found.append(literal)
            while abs(self.trail[at]) not in seen:
                at -= 1
            implied = self.trail[at]
            seen.discard(abs(implied))
            at, open_ = at - 1, open_ - 1
            if not open_:
                break
            reason = self.reason[abs(implied)]
            assert reason is not None
            clause = [x for x in reason if x != implied]
        found.sort(key=lambda x: -self.level[abs(x)])
        return [-implied, *found], self.level[abs(found[0])] if found else 0

    def undo(self, level: int) -> None:
        if level < len(self.starts):
            for literal in self.trail[self.starts[level] :]:
                variable = abs(literal)
                self.value[literal] = self.value[-literal] = 0
                self.phase[variable] = 1 if literal > 0 else -1
                heappush(self.heap, (-self.weight[variable], variable))
            del self.trail[self.starts[level] :], self.starts[level:]
            self.head = len(self.trail)

    def solve(self) -> list[bool] | None:
        """By variable (0 is none) whether it is true in a model; None = there is no model. Raises Undecided."""
        self.heap = [(0.0, v) for v in range(1, self.n + 1)]
        heapify(self.heap)
        conflicts, restarts = 0, 1
        while not self.broken:
            conflict = self.propagate()
            if self.budget < 0:
                raise Undecided
            if conflict is not None:
                if not self.starts:
                    break
                clause, level = self.learn(conflict)
                self.budget -= len(clause)
                self.undo(level)
                if len(clause) > 1:
                    self.watch(clause)
                self.take(clause[0], clause)
                self.bump, conflicts = min(self.bump * DECAY, 1e200), conflicts + 1
                continue
            if conflicts >= RESTART * luby(restarts):
                conflicts, restarts = 0, restarts + 1
                self.undo(0)
                continue
            variable = self.next()
            if not variable:
                return [v == 1 for v in self.value[: self.n + 1]]
            self.starts.append(len(self.trail))
            self.take(variable * self.phase[variable], None)
        return None

    def next(self) -> int:
        """The open variable of the greatest weight; 0 = none is open."""
        while self.heap:
            _, variable = heappop(self.heap)
            if not self.value[variable]:
                return variable
        return 0


def luby(i: int) -> int:
    """1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ..., from i = 1."""
    k = i.bit_length()
    return 1 << (k - 1) if i == (1 << k) - 1 else luby(i - (1 << (k - 1)) + 1)
