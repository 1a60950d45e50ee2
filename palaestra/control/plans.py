"""Plans: sequences of options, each game its own, and what happens where one fails.

n games, m of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, create_model

from palaestra.control.options import REACHED, RUNNING, STOP, OptionGames
from palaestra.errors import UserError

# option numbers in their order
OptionPlan: TypeAlias = Sequence[int]
# games and the rows whose plans failed, to another plan for each row
Replan: TypeAlias = Callable[[OptionGames, np.ndarray], Awaitable[Sequence[OptionPlan]]]
LOOP = 3  # times that one name may not stand in a row


class PlanFollower:
    """Chooses the options of each game's plan one after another; a `Chooser`.

    An option that is reached, or is at its end already, is followed by the next one. One that runs out
    of time, is refused or interrupted is tried again up to `retries` times; after that a new plan takes
    the place of what is left, up to `replans` times in a game; then the plan has failed, as it has
    where the new plan is empty. What is reached in a game's last step counts, too.

    Args:
        plans: of each game.
        then: the option of games whose plan is done or failed; STOP ends them.
    """

    def __init__(
        self,
        plans: Sequence[OptionPlan],
        retries: int = 0,
        replan: Replan | None = None,
        replans: int = 1,
        then: int = STOP,
    ):
        self.plans, self.retries, self.then = [list(p) for p in plans], retries, then
        self.replan, self.replans = replan, replans if replan else 0
        n = len(self.plans)
        self.at_n, self.tried_n, self.replanned_n = (np.zeros(n, int) for _ in range(3))
        self.failed_n = np.zeros(n, bool)
        self.games: OptionGames | None = None  # that are asked for

    @property
    def done_n(self) -> np.ndarray:
        """[n] which games have every option of their plan behind them."""
        left = np.array([len(p) for p in self.plans]) - self.at_n
        return (left - self._last_n() <= 0) & ~self.failed_n

    def _last_n(self) -> np.ndarray:
        """[n] bool: games whose option was reached in their last step, after which nobody was asked."""
        ended_n = np.zeros(len(self.plans), bool)
        if (games := self.games) is None:
            return ended_n
        for row in np.flatnonzero(~games.alive_n & (games.end_n == REACHED)):
            plan, at = self.plans[row], self.at_n[row]
            ended_n[row] = at < len(plan) and games.last_n[row] == plan[at]
        return ended_n

    async def __call__(self, games: OptionGames, rows: np.ndarray) -> np.ndarray:
        self.games = games
        failing = [int(row) for row in rows if not self._step_on(games, int(row))]
        again = [row for row in failing if self.replanned_n[row] < self.replans]
        if again and self.replan is not None:
            for row, plan in zip(again, await self.replan(games, np.array(again)), strict=True):
                self.plans[row], self.at_n[row], self.tried_n[row] = list(plan), 0, 0
                self.replanned_n[row] += 1
                self.failed_n[row] = not self.plans[row]
        self.failed_n[[row for row in failing if row not in again]] = True
        return np.array([self._option(games, int(row)) for row in rows])

    def _step_on(self, games: OptionGames, row: int) -> bool:
        """Counts how the option of a plan ended. False = the plan has failed."""
        plan, at, end = self.plans[row], self.at_n[row], games.end_n[row]
        if self.failed_n[row] or at >= len(plan) or end == RUNNING:
            return True
        if games.last_n[row] != plan[at]:  # it was not this plan's
            return True
        if end == REACHED:
            self.at_n[row], self.tried_n[row] = at + 1, 0
            return True
        self.tried_n[row] += 1
        return bool(self.tried_n[row] <= self.retries)

    def _option(self, games: OptionGames, row: int) -> int:
        if self.failed_n[row] or self.at_n[row] >= len(self.plans[row]):
            return self.then
        return self.plans[row][self.at_n[row]]


def plan_form(names: Sequence[str], most: int = 12) -> type[BaseModel]:
    """The form of a reply that is a plan: {"plan": [NAME, ...]}, from 1 to `most` names that exist.

    Case and blanks around a name do not count. A name that stands three times in a row is a loop, and
    refused. Each error says what to write in its place, for a question that is asked again.

    Raises UserError where there are no names, or two that are the same without case.
    """
    by_key = {plain_name(name): name for name in names}
    if not names or len(by_key) < len(names):
        raise UserError(f"a plan needs options with names that differ: {', '.join(names)}")

    def known(name: Any) -> str:
        if (own := by_key.get(plain_name(str(name)))) is None:
            raise ValueError(f"there is no {name!r}; there are {', '.join(names)}")
        return own

    def ends(plan: list[str]) -> list[str]:
        for k in range(len(plan) - LOOP + 1):
            if len(set(plan[k : k + LOOP])) == 1:
                raise ValueError(f"{plan[k]!r} stands {LOOP} times in a row; write it once")
        return plan

    item: Any = Annotated[str, AfterValidator(known)]
    whole: Any = Annotated[list[item], Field(min_length=1, max_length=most), AfterValidator(ends)]
    return create_model("PlanReply", plan=(whole, ...))


def plain_name(name: str) -> str:
    """Without case, and with single blanks in the place of blanks and underscores."""
    return " ".join(name.replace("_", " ").lower().split())
