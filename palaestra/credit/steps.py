"""Credit by step: values of prefixes, and steps that critics call wrong.

Steps are the lines that `facts["step_ends"]` = ((row, token), ...) of an episode names, else its
turns. What is known of them stands in the facts as well: `prefix_values`, H + 1 chances of success,
before the first step and after each of H; `critiques`, for each critique the numbers of the steps
it calls wrong, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.credit.table import Table, Values
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.schedule import check_bounds
from palaestra.types import Example, Groups, Signals, State, stage

Vote = Literal["union", "intersection", "majority", "half"]


# ---- values of prefixes


def best_of(value_H: np.ndarray, k: int) -> np.ndarray:
    """The chance that one of `k` tries succeeds: 1 - (1 - V)^k, the value under the best-of-k
    prover.
    """
    return 1 - (1 - value_H) ** k


def progress(values: Sequence[float], k: int = 1) -> np.ndarray:
    """[H] A_h = Q_h - Q_{h-1} under best-of-k: what each step adds. The last one is 0 if there was
    no chance before and after.
    """
    return np.diff(best_of(np.asarray(values, np.float64), k))


def pit(values: Sequence[float]) -> int:
    """The first step, from 0, after which the value is lowest (arXiv:2406.14532, section 4.2)."""
    return int(np.argmin(values[1:]))


def step_of_tokens(table: Table, episode: int) -> np.ndarray:
    """The step, from 0, of each trained token of an episode; what follows the last end belongs to
    the last step.
    """
    at = table.tokens
    mine = np.flatnonzero(at.episode_N == episode)
    ends = table.episodes[episode].facts.get("step_ends")
    if ends is None:
        _, step_N = np.unique(
            np.stack([at.row_N[mine], at.turn_N[mine]]), axis=1, return_inverse=True
        )
        return step_N.reshape(-1)
    before = [
        sum((r, t) < (int(a), int(b)) for r, t in ends)
        for a, b in zip(at.row_N[mine], at.position_N[mine], strict=True)
    ]
    return np.minimum(np.array(before, np.int64), max(len(ends) - 1, 0))


@stage
class StepNumbers:
    """Leaves the column "step": the number of each token's step, from 0."""

    def __call__(self, x: Values, table: Table) -> Values:
        number_N = [step_of_tokens(table, e) for e in range(len(table.episodes))]
        table.add_column("step", Values(level="token", x_N=np.concatenate(number_N).astype(float)))
        return x


def fact(facts: Any, name: str, by: str) -> Any:
    if name not in facts:
        raise UserError(
            f"an episode has no {name!r}, which {by} needs: collect it, or give it to `explain` "
            "with --group"
        )
    return facts[name]


@declare(reads=("prefix_values",))
@stage
class StepProgress:
    """x + alpha * A^mu of the token's own step, mu = the best of `k` tries (PAV, arXiv:2410.08146,
    eq. 5). Logs "progress", the mean size of what is added.
    """

    alpha: float = 1.0
    k: int = 4
    spreads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_bounds("Progress.k", self.k, least=1)

    def __call__(self, x: Values, table: Table) -> Values:
        out_N = table.lift(x, "token").x_N.copy()
        for e, episode in enumerate(table.episodes):
            step_N = step_of_tokens(table, e)
            gain_H = progress(
                fact(episode.facts, "prefix_values", "the progress of its steps"), self.k
            )
            if len(step_N) and step_N.max() >= len(gain_H):
                raise UserError(
                    f"{step_N.max() + 1} steps need {step_N.max() + 2} prefix_values, not "
                    f"{len(gain_H) + 1}"
                )
            out_N[table.tokens.episode_N == e] += self.alpha * gain_H[step_N]
        added_N = np.abs(out_N - table.lift(x, "token").x_N)
        table.track("progress", Values(level="token", x_N=added_N))
        return Values(level="token", x_N=out_N)


@stage
class StepPairs:
    """A pair for every wrong episode with `prefix_values`: a right answer against the wrong one up
    to its pit.

    `form="root"`: any right episode of the group, taken in turn; "branch": a right continuation
    from before the pit (an episode whose `origin` is the wrong one, though it be muted). Both rows
    begin alike then, and what they share cancels in the margin. "whole": as root, but all of the
    wrong answer is rejected, which is the control. Columns `sign`, and `late`, in any form 1 for a
    wrong row with steps behind the pit; rows of a pair are a unit.
    """

    form: Literal["root", "branch", "whole"] = "root"
    right: float | None = None  # the total from which on an answer is; None = the reward says it
    reads_right: ClassVar[bool] = True

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        table = Table(groups, signals, state)
        examples: list[Example] = []
        right_E = table.right_E(self.right)
        for e, episode in enumerate(table.episodes):
            if right_E[e] or episode.muted or episode.origin is not None:
                continue
            values = fact(episode.facts, "prefix_values", "the choice of its worst step")
            others = [o for o in np.flatnonzero(table.group_E == table.group_E[e]) if right_E[o]]
            own = [
                o
                for o in others
                if (origin := table.episodes[o].origin) and origin.parent == table.where[e][1]
            ]
            whole = [
                o
                for o in others
                if table.episodes[o].origin is None and not table.episodes[o].muted
            ]
            right = own if self.form == "branch" else whole
            if not right:
                continue
            chosen, unit, keep = int(right[e % len(right)]), f"pair {e}", pit(values)
            examples += [
                _row(table, chosen, r, 1.0, unit) for r in range(len(table.episodes[chosen].rows))
            ]
            examples += [
                _row(table, e, r, -1.0, unit, keep, self.form != "whole")
                for r in range(len(episode.rows))
            ]
        return examples, table.state


def _row(
    table: Table, e: int, r: int, sign: float, unit: str, keep: float = math.inf, cut: bool = True
) -> Example:
    """A row of an episode; with `cut` the steps after `keep` carry no gradient."""
    trained_T, at = table.views[e][r].trained_T.copy(), table.tokens
    mine = at.episode_N == e
    late = at.position_N[mine][(step_of_tokens(table, e) > keep) & (at.row_N[mine] == r)]
    if cut:
        trained_T[late] = False
    columns = {
        "sign": sign,
        **table.signals[e][r],
        "trained": trained_T,
        "late": float(len(late) > 0),
    }
    return Example(row=table.episodes[e].rows[r], columns=columns, unit=unit)


# ---- critiques


def wrong_steps(critiques: Sequence[Collection[int]], vote: Vote) -> set[int]:
    """Steps that any critique, every one, more than half of them, or at least half call wrong. No
    critique: no step.
    """
    called, n = [s for c in critiques for s in set(c)], len(critiques)
    least = {"union": 1, "intersection": n, "majority": n // 2 + 1, "half": (n + 1) // 2}[vote]
    return {s for s in called if called.count(s) >= least}


@declare(reads=("critiques",))
@stage
class StepPenalty:
    """right * x - wrong on every token of a step that is voted wrong, right * x on the others
    (CAPO, arXiv:2508.02298).

    right > wrong keeps a right answer with a bad step above a wrong answer without one.
    """

    right: float = 2.0
    wrong: float = 1.0
    vote: Vote = "majority"
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        penalty_N = np.zeros(len(table.tokens.episode_N))
        for e, episode in enumerate(table.episodes):
            bad = wrong_steps(
                fact(episode.facts, "critiques", "the penalty of wrong steps"), self.vote
            )
            penalty_N[table.tokens.episode_N == e] = self.wrong * np.isin(
                step_of_tokens(table, e), sorted(bad)
            )
        table.track("penalty", Values(level="token", x_N=penalty_N))
        return Values(level="token", x_N=self.right * table.lift(x, "token").x_N - penalty_N)
