"""Both systems in games: who plans, which system acts for which goal, and what is remembered of it.

n games, m of them, O numbers of an observation, K goals.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.errands import ErrandBook
from palaestra.recipes.llm4rl.dsadf.familiar import Strange
from palaestra.recipes.llm4rl.dsadf.memory import Gate
from palaestra.recipes.llm4rl.dsadf.slow import SlowSystem

Acts = Literal["none", "fast", "slow"]


class DualChooser:
    """Chooses options of games: numbers below K are System 1's, one for each goal, those from K on single
    actions. Each game has a plan, whose goals one of the systems acts for, one after another.

    A goal that is reached already needs nobody. Where System 1 fails at a goal, and where System 2 spent
    `timeout` actions on one, System 2 plans anew, up to `replans` times in a game; then the game ends. A goal
    that System 1 failed at is System 2's for the rest of the game, unless it never acts (`alone`).

    Args:
        trial: share of goals that the gate gives to System 2 and System 1 tries all the same: of a goal that
            is never tried nothing is learned.
        alone: System 2 plans and does not act.
        strange: which observations are unlike what System 1 has seen; there it does not begin, and its options are to
            end: System 2 plans anew and acts for that goal. It is no failure of System 1's. None = none is.
    """

    def __init__(
        self,
        book: ErrandBook,
        slow: SlowSystem,
        gate: Gate,
        errands: Sequence[int],
        timeout: int,
        replans: int = 2,
        trial: float = 0.0,
        alone: bool = False,
        strange: Strange | None = None,
    ):
        self.book, self.slow, self.gate, self.errands = book, slow, gate, list(errands)
        self.timeout, self.replans, self.trial, self.alone = timeout, replans, trial, alone
        self.strange, self.handed = strange, 0  # goals that went back as what was seen was strange
        n = len(self.errands)
        self.plans: list[list[int]] = [[] for _ in range(n)]
        self.at_n, self.spent_n, self.begun_n, self.left_n = (np.zeros(n, int) for _ in range(4))
        self.left_n += 1 + replans  # plans that may still be made
        self.own_n = np.ones(n, bool)  # whether no action to the goal was drawn for want of a reply
        self.acts: list[Acts] = ["none"] * n
        self.failed = [""] * n
        self.slow_only: list[set[int]] = [set() for _ in range(n)]
        self.outcomes: list[tuple[int, bool]] = []  # of System 1, by goal, in their order
        self.ways: list[
            tuple[int, int, int, int]
        ] = []  # of System 2, by its own actions, to a goal: see `FastSystem.keep`
        self.routed: Counter[Acts] = Counter()  # goals, by the system that acted

    async def __call__(self, games: pl.control.OptionGames, rows: np.ndarray) -> np.ndarray:
        holds = self.book.holds(games.obs[rows][:, 0])
        for row, held in zip(rows, holds, strict=True):
            self._settle(games, int(row), held)
        await self._plan(games, [int(r) for r in rows if self._wants_plan(int(r))])
        chosen = np.full(len(rows), pl.control.STOP)
        for i, row in enumerate(map(int, rows)):
            if (goal := self._next(row, holds[i])) is not None:
                chosen[i] = goal
                if self.acts[row] == "none":
                    self._route(games, row, goal)
        acting = [i for i, row in enumerate(rows) if self.acts[row] == "slow" and chosen[i] >= 0]
        if acting:
            some = rows[acting]
            legal = None if games.legal is None else games.legal[some][:, 0]
            act, own = await self.slow.act(
                games.obs[some][:, 0], legal, [int(g) for g in chosen[acting]], games.rng
            )
            self.own_n[some] &= own
            chosen[acting] = len(self.book.goals) + act
        return chosen

    def finish(self, games: pl.control.OptionGames) -> None:
        """Counts what ended with its game, after which nobody was asked. A game that the horizon cut says
        nothing of a goal on its way.
        """
        paths = games.paths()
        ended = paths["over"] & paths["alive"]
        for row, acts in enumerate(self.acts):
            if acts == "none":
                continue
            goal = self.plans[row][self.at_n[row]]
            # a game that is over is stepped on, so its last observation is found by its steps
            last = int(paths["alive"][row].sum()) - 1
            after = paths["next_obs"][row, 0, last : last + 1]
            held: list[bool] = self.book.holds(after)[0].tolist()
            if acts == "fast":
                end, away = games.end_n[row], self._away(games, row, held[goal])
                if (end in (pl.control.REACHED, pl.control.TIMEOUT) and not away) or ended[
                    row
                ].any():
                    self.outcomes.append((goal, bool(held[goal])))
            elif held[goal] and self.own_n[row]:
                self.ways.append((row, int(self.begun_n[row]), last + 1, goal))
            self.acts[row] = "none"

    def _settle(self, games: pl.control.OptionGames, row: int, held: np.ndarray) -> None:
        """What came of the option that a game had."""
        if self.acts[row] == "none":
            return
        goal, reached, why = self.plans[row][self.at_n[row]], False, ""
        if self.acts[row] == "fast":
            if self._away(games, row, bool(held[goal])):
                self.handed, why = self.handed + 1, ", as what is seen now is new to it"
            else:
                reached = games.end_n[row] == pl.control.REACHED
                self.outcomes.append((goal, bool(reached)))
            if not reached:
                self.slow_only[row].add(goal)
        else:
            self.spent_n[row] += 1
            if reached := bool(held[goal]):
                if self.own_n[row]:
                    self.ways.append((row, int(self.begun_n[row]), games.steps, goal))
            elif self.spent_n[row] < self.timeout:
                return
        self.acts[row] = "none"
        if reached:
            self.at_n[row] += 1
        else:
            self.failed[row], self.plans[row] = self.book.names[goal] + why, []

    def _away(self, games: pl.control.OptionGames, row: int, held: bool) -> bool:
        """Whether System 1's option ended where nothing it has seen is like it, and not at its goal."""
        return self.strange is not None and games.end_n[row] == pl.control.REACHED and not held

    def _wants_plan(self, row: int) -> bool:
        return not self.plans[row] and self.left_n[row] > 0

    async def _plan(self, games: pl.control.OptionGames, rows: list[int]) -> None:
        if not rows:
            return
        errands, failed = [self.errands[r] for r in rows], [self.failed[r] for r in rows]
        plans = await self.slow.plan(games.obs[rows][:, 0], errands, failed)
        for row, plan in zip(rows, plans, strict=True):
            self.plans[row], self.at_n[row] = plan, 0
            self.left_n[row] -= 1

    def _next(self, row: int, held: np.ndarray) -> int | None:
        """The goal that a game is at, past those that are reached already; None = its plan is at an end."""
        plan = self.plans[row]
        if self.acts[row] == "none":
            while self.at_n[row] < len(plan) and held[plan[self.at_n[row]]]:
                self.at_n[row] += 1
        return plan[self.at_n[row]] if self.at_n[row] < len(plan) else None

    def _route(self, games: pl.control.OptionGames, row: int, goal: int) -> None:
        fast = self.gate(self.book.code_KW[goal], games.rng)
        may = goal not in self.slow_only[row]
        if fast and may and self.strange is not None and self.strange(games.obs[row, :1])[0]:
            may, self.handed = False, self.handed + 1
        fast = fast and may
        tries = self.trial > 0 and may
        fast = fast or (tries and games.rng.random() < self.trial) or self.alone
        self.acts[row] = "fast" if fast else "slow"
        self.routed[self.acts[row]] += 1
        self.begun_n[row], self.spent_n[row], self.own_n[row] = games.steps, 0, True
