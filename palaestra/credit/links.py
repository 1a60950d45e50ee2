"""Advantages chain: `Chain((Center("group"), Scale("group")))` is the advantage of GRPO.

A link maps (values, table) to values and may read signals or keep state in the table; the last step
lifts the values to tokens and makes one example per row. What a link does to a group whose rewards
are all equal it says by `equal` and `spreads` (`abilities.LeavesEqual`, `abilities.Spreads`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np

from palaestra.abilities import LeavesEqual, NeedsSeveral, Spreads
from palaestra.credit import advantages as pure
from palaestra.credit.scopes import Scope, scope_keys
from palaestra.credit.table import LEVELS, Level, Table, Values
from palaestra.errors import UserError
from palaestra.schedule import check_bounds
from palaestra.types import MARK_PREFIX, Example, Groups, Signals, State, stage


class Link(Protocol):
    """A step of credit: values of a batch in, values of the same batch out, at any level."""

    def __call__(self, x: Values, table: Table) -> Values: ...


@stage
class Center:
    """x - mean over the scope; `others=True` leaves the observation itself out (RLOO). A scope of
    one gives 0.
    """

    scope: Scope = "group"
    others: bool = False
    level: Level | None = None  # lift first

    @property
    def equal(self) -> bool | None:
        return False if self.scope == "group" else None

    @property
    def needs_several(self) -> bool:
        """Several turns of one answer can be compared with one another, answers cannot."""
        return self.scope == "group" and self.level in (None, "episode")

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, self.level or x.level)
        key_N = scope_keys(table, self.scope, x.level)
        centred = (
            pure.leave_one_out(x.x_N, key_N)
            if self.others
            else x.x_N - pure.group_mean(x.x_N, key_N)
        )
        return Values(level=x.level, x_N=centred)


@stage
class Scale:
    """x / (std over the scope + eps). Zero variance gives 0, never an explosion."""

    scope: Scope = "group"
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_bounds("Scale.ddof", self.ddof, least=0)
        check_bounds("Scale.eps", self.eps, least=0)

    def __call__(self, x: Values, table: Table) -> Values:
        std_N = pure.group_std(x.x_N, scope_keys(table, self.scope, x.level), self.ddof)
        return Values(level=x.level, x_N=np.where(std_N > 0, x.x_N / (std_N + self.eps), 0.0))


@stage
class AgainstGreedy:
    """x - x of the greedy answer to the same prompt (ReMax, arXiv:2310.10505). The greedy answer is
    the one with the fact `greedy`; without one the baseline of a group is 0.
    """

    equal: ClassVar[bool] = True  # sampled answers may all differ from the greedy one

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, "episode")
        greedy_E = np.array([float(e.facts.get("greedy") or 0.0) for e in table.episodes])
        baseline_E = np.zeros(len(x.x_N))
        for g in np.unique(table.group_E):
            mine = table.group_E == g
            baseline_E[mine] = (x.x_N * greedy_E)[mine].sum() / max(greedy_E[mine].sum(), 1.0)
        table.track("greedy_reward", Values(level="episode", x_N=baseline_E))
        return Values(level="episode", x_N=x.x_N - baseline_E)


@stage
class Shift:
    """x + by: a free baseline."""

    by: float = 0.0

    @property
    def equal(self) -> bool | None:
        return True if self.by else None

    def __call__(self, x: Values, table: Table) -> Values:
        return Values(level=x.level, x_N=x.x_N + self.by)


@stage
class Outcome:
    """`positive` where the answer is right (`Episode.is_right`), else `negative`: the sign of the
    outcome as the advantage, without a baseline.

    Episodes of a side of weight 0 are muted: they are left out of the denominators too, not only of
    the gradient.
    """

    positive: float = 1.0
    negative: float = -1.0
    right: float | None = 0.5  # the total from which on an answer is; None = the reward says it
    equal: ClassVar[bool] = True

    @property
    def reads_right(self) -> bool:
        return self.right is None

    def __call__(self, x: Values, table: Table) -> Values:
        right_E = table.right_E(self.right)
        out_E = np.where(right_E, self.positive, self.negative)
        table.track("wrong_answers", Values(level="episode", x_N=1.0 - right_E))
        for e in np.flatnonzero(out_E == 0).tolist():
            table.mute(e)
        return Values(level="episode", x_N=out_E)


@stage
class Fact:
    """Leaves a fact of the episodes, a number or whether it holds, as the column "is:`name`" of
    their tokens: what `On` acts on, and whose mean is logged. It is 0 where an episode has none.
    """

    name: str

    @property
    def names_facts(self) -> tuple[str, ...]:
        return (self.name,)

    def __call__(self, x: Values, table: Table) -> Values:
        held_E = np.array([float(e.facts.get(self.name) or 0.0) for e in table.episodes])
        held = Values(level="episode", x_N=held_E)
        table.add_column(f"{MARK_PREFIX}{self.name}", held)
        table.track(f"{MARK_PREFIX}{self.name}", held)
        return x


@stage
class TaskColumn:
    """Leaves a number that the task has as the column `name` of the answers (1 for True), 0 where
    it has none; the values pass unchanged.

    credit=chain(TaskColumn("written"), Center("group")), objective=Clipped() + Track(("written",))
    """

    name: str

    def __call__(self, x: Values, table: Table) -> Values:
        groups = [table.group(e) for e in range(len(table.episodes))]
        number_E = np.array([float(g.task.meta.get(self.name) or 0.0) for g in groups])
        table.add_column(self.name, Values(level="episode", x_N=number_E))
        return x


@stage
class Chain:
    """Credit from links: starts at each episode's total reward, ends with one example per row of
    every unmuted episode.

    Columns: advantage [T], reward, group, episode, the row's signals, and what links left in
    `table.columns`. `unit="group"` keeps a group's rows in one micro-batch.
    """

    links: tuple[Link, ...] = ()
    unit: str = "row"

    @property
    def keeps_equal(self) -> bool:
        """Groups with equal rewards get credit, so no gate may drop them. The last link that
        declares it decides.
        """
        if any(isinstance(link, Spreads) and link.spreads for link in self.links):
            return True
        flags = [link.equal for link in self.links if isinstance(link, LeavesEqual)]
        known = [equal for equal in flags if equal is not None]
        return bool(known and known[-1])

    @property
    def needs_several(self) -> bool:
        """A prompt with one answer gets no credit. Only the first link is sure to meet whole
        answers.
        """
        first = self.links[0] if self.links else None
        return isinstance(first, NeedsSeveral) and first.needs_several and not self.keeps_equal

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        table = Table(groups, signals, state)
        return examples(table, self.values(table), self.unit), table.state

    def values(self, table: Table) -> Values:
        """What the links make of the rewards, at the level where they leave it."""
        x = Values(level="episode", x_N=table.reward_E)
        for link in self.links:
            x = check_values(link, link(x, table), table)
        return x


def check_values(link: Link, x: Any, table: Table) -> Values:
    """What a link returned, known to be values of the batch."""
    name = type(link).__name__
    if not isinstance(x, Values) or x.level not in LEVELS:
        returned = f"level {x.level!r}" if isinstance(x, Values) else type(x).__name__
        raise UserError(
            f"credit {name} returned {returned}; a link returns Values(level=..., x_N=...), by "
            f"{', '.join(LEVELS)}"
        )
    n = len(table.episodes) if x.level == "episode" else len(table.index(x.level).episode_N)
    if np.shape(x.x_N) != (n,):
        raise UserError(
            f"credit {name} returned x_N of shape {list(np.shape(x.x_N))}; by {x.level} there are "
            f"{n} in this batch, in the order of the table"
        )
    return x


def examples(table: Table, x: Values, unit: str = "row") -> list[Example]:
    """Rows of the unmuted episodes with their credit."""
    at = table.tokens
    values = {
        name: table.lift(v, "token").x_N for name, v in {**table.columns, "advantage": x}.items()
    }
    changes = (np.diff(x_N, prepend=-1) != 0 for x_N in (at.episode_N, at.row_N))
    begins = np.flatnonzero(np.logical_or(*changes)).tolist()
    out: list[Example] = []
    for begin, end in pairwise([*begins, len(at.row_N)]):  # a row's tokens follow one another
        e, r, mine = int(at.episode_N[begin]), int(at.row_N[begin]), slice(begin, end)
        if table.episodes[e].muted:
            continue
        g, T = int(table.group_E[e]), len(table.views[e][r].ids_T)
        # features of rows stay here
        signals = {k: v for k, v in table.signals[e][r].items() if len(v) == T}
        columns: dict[str, Any] = {"reward": table.reward_E[e], "group": g, "episode": e, **signals}
        for name, x_N in values.items():
            columns[name] = np.zeros(T)
            columns[name][at.position_N[mine]] = x_N[mine]
        out.append(
            Example(
                row=table.episodes[e].rows[r],
                columns=columns,
                unit=f"group {g}" if unit == "group" else "",
            )
        )
    return out


def chain(*links: Link) -> Chain:
    """Credit from links in their order: `chain(Center("group"), Scale("group"))` is GRPO's.

    Args:
        links: each maps values and the table of the batch to values of the same batch.
    """
    return Chain(links)
