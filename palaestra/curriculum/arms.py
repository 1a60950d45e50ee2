"""Which part of a mixture, or domain of a file, next: a bandit whose arms these are, and what it
learns from.

    draw=Bandit(tau=0.1, explore=1.0), observe=Learnability(window=300)

`Learnability` keeps `arms[name] = {"value", "count", ...}` in the state of the draw, by the
`domain` of the tasks that were seen; `Bandit` reads it there. The order of the observations is that
of the groups in the step, whichever was finished first. Groups that a gate drops are observed too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestra.abilities import Mixes
from palaestra.schedule import check_bounds
from palaestra.tasks.domains import TellsDomains
from palaestra.tasks.mixture import Mixture, block, counts, part_task
from palaestra.types import (
    Example,
    Groups,
    Key,
    Metrics,
    State,
    Task,
    Tasks,
    need_at_least,
    rng_of,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Situation

LEAST_VALUE = 0.01  # of an arm that is drawn in proportion to its value


def arms_of(tasks: Tasks) -> list[Tasks]:
    """The parts of a mixture, or the domains of a file; other tasks are one arm."""
    if isinstance(tasks, Mixes):
        return [part for part, _ in tasks.parts]
    return list(tasks.domains if isinstance(tasks, TellsDomains) else ()) or [tasks]


def count_tasks(asked: int | None, size: int | None, endless: int) -> int:
    """How many training tasks a draw looks at: `asked`, None = all there are, and of a source
    without an end `endless`.
    """
    if asked is None:
        return endless if size is None else size
    return asked if size is None else min(asked, size)


def first_number(ctx: Situation, arm: Tasks | None = None) -> int:
    """The number of the first training task that a run draws of its problem, or of an arm of it: 0
    where these come to an end, else from where the bench says.

    Arms of a mixture begin where the mixture itself has come to at that place, so that a draw by
    arm gives the tasks that the mixture would give.
    """
    tasks, first = ctx.bench.tasks, ctx.bench.first_drawn
    if tasks.size is not None:
        return 0
    if arm is None or not isinstance(tasks, Mixture):
        return first
    i = [part.name for part, _ in tasks.parts].index(arm.name)
    share = counts(tuple(weight for _, weight in tasks.parts))
    number, at = divmod(first, sum(share))
    order = block(tasks.name, "train", number, share)
    return number * share[i] + int((order[:at] == i).sum())


def draw_from_arms(
    ctx: Situation, key: Key, n: int, p_A: np.ndarray, state: State
) -> tuple[list[Task], State]:
    """`n` tasks, each from an arm drawn with the probabilities [A], in the arm's own order from its
    `first_number` on. The state's `given` counts the tasks that each arm has given.
    """
    arms, given = arms_of(ctx.bench.tasks), dict(state.get("given", {}))
    if len(arms) == 1 and not given:
        ctx.say(
            f"note: {arms[0].name!r} is one arm, so there is nothing to choose among; give a "
            "mixture, such as --task 'knights(d=1)+knights(d=2)', or records with a column `domain`"
        )
    tasks_drawn: list[Task] = []
    for i in rng_of((*key, "arms")).choice(len(arms), n, p=p_A):
        name = arms[i].name
        nth = first_number(ctx, arms[i]) + given.get(name, 0)
        tasks_drawn.append(part_task(arms[i], "train", nth))
        given[name] = given.get(name, 0) + 1
    return tasks_drawn, {**state, "given": given}


@stage
class Bandit:
    """Draws every task of a batch from an arm with p ~ exp(score / tau).

        score_j = value_j + explore * sqrt(2 ln(n + 1) / (n_j + 1))

    n_j counts the samples seen of the arm, n those of all; an arm never seen has value 0. With
    explore 1 this is DUMP (arXiv:2504.09710), with 0 SEC (arXiv:2505.14970, eq. 3).
    rule="proportional" draws with p ~ max(score, 0.01) instead, an option of SEC's code. The state's
    `odds` are the p of the newest draw; tau = infinity draws all arms alike.
    """

    tau: float = 0.1
    explore: float = 0.0
    rule: Literal["softmax", "proportional"] = "softmax"

    def __post_init__(self) -> None:
        check_bounds("Bandit.tau", self.tau, above=0)
        check_bounds("Bandit.explore", self.explore, least=0)

    def __call__(self, ctx: Situation, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        names = [arm.name for arm in arms_of(ctx.bench.tasks)]
        p_A = self.probabilities(names, state)
        tasks, after = draw_from_arms(ctx, key, n, p_A, state)
        return tasks, {**after, "odds": dict(zip(names, p_A.tolist(), strict=True))}

    def draw_numbers(self, state: State) -> Metrics:
        """The probability of each arm, and that of the likeliest less that of the least likely."""
        odds: Mapping[str, float] = state.get("odds", {})
        spread = max(odds.values(), default=0.0) - min(odds.values(), default=0.0)
        return {**{f"odds/{name}": p for name, p in odds.items()}, "odds_spread": spread}

    def probabilities(self, names: Sequence[str], state: State) -> np.ndarray:
        """[A] of the arms of these names."""
        known: Mapping[str, Any] = state.get("arms", {})
        value_A = np.array([known.get(name, {}).get("value", 0.0) for name in names])
        count_A = np.array([known.get(name, {}).get("count", 0) for name in names])
        score_A = value_A + self.explore * np.sqrt(2 * math.log(count_A.sum() + 1) / (count_A + 1))
        softmax = self.rule == "softmax"
        weight_A = (
            np.exp((score_A - score_A.max()) / self.tau)
            if softmax
            else np.maximum(score_A, LEAST_VALUE)
        )
        return weight_A / weight_A.sum()


@stage
class Learnability:
    """Keeps what an arm is worth: the mean absolute advantage of its samples.

    of="scaled" takes |r - mean| / (std + 1e-6) within the group, as GRPO does: with binary rewards
    of mean p that is 2 sqrt(p (1 - p)) on average (`ddof` 0), and so it says little more than
    whether a group is mixed. "centred" takes |r - mean|, "reward" the reward itself, "progress"
    how far the arm's mean reward moved since its last batch.

    With `window` the value is the mean over the newest samples of the arm (DUMP: 300), else the
    moving average alpha * mean of the batch + (1 - alpha) * value (SEC). absent="decay" gives an
    arm that the batch lacks a mean of 0 in that average, as SEC's code does; "keep" leaves it.
    """

    of: Literal["scaled", "centred", "reward", "progress"] = "scaled"
    window: int = 0
    alpha: float = 0.5
    absent: Literal["keep", "decay"] = "keep"
    ddof: int = 1

    def __post_init__(self) -> None:
        need_at_least(self, window=0, ddof=0)
        check_bounds("Learnability.alpha", self.alpha, least=0, most=1)

    def __call__(self, seen: Groups, examples: Mapping[str, list[Example]], state: State) -> State:
        arms: dict[str, dict[str, Any]] = {k: dict(v) for k, v in state.get("arms", {}).items()}
        gains: dict[str, list[float]] = {}
        rewards: dict[str, list[float]] = {}
        for group in seen:
            r_G = np.array([e.total for e in group.valid if e.reward is not None])
            if len(r_G):
                gains.setdefault(group.task.domain, []).extend(self.signal(r_G).tolist())
                rewards.setdefault(group.task.domain, []).extend(r_G.tolist())
        for name in [*gains, *(a for a in arms if a not in gains and self.absent == "decay")]:
            arm = arms.get(name, {"value": 0.0, "count": 0})
            if self.of == "progress" and name in gains:
                before, now = arm.get("reward"), float(np.mean(rewards[name]))
                gains[name] = [0.0 if before is None else abs(now - before)] * len(gains[name])
                arm["reward"] = now
            arms[name] = self.update(arm, gains.get(name, []))
        return {**state, "arms": arms}

    def signal(self, r_G: np.ndarray) -> np.ndarray:
        """[G] what each sample of a group says of its arm."""
        if self.of in ("reward", "progress"):
            return r_G
        centred_G = np.abs(r_G - r_G.mean())
        if self.of == "centred" or len(r_G) <= self.ddof:
            return centred_G
        return centred_G / (r_G.std(ddof=self.ddof) + 1e-6)

    def update(self, arm: Mapping[str, Any], new: Sequence[float]) -> dict[str, Any]:
        """An arm after a batch with these samples of it, maybe none."""
        arm = {**arm, "count": arm["count"] + len(new)}
        if self.window:
            arm["newest"] = [*arm.get("newest", []), *new][-self.window :]
            return arm | {"value": float(np.mean(arm["newest"])) if arm["newest"] else 0.0}
        mean = float(np.mean(new)) if new else 0.0
        return arm | {"value": self.alpha * mean + (1 - self.alpha) * arm["value"]}
