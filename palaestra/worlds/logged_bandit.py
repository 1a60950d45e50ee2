"""The bandit of a user's log: rows of an arm, the reward that it paid, and what was known before.

    {"context": {"hour": 9, "device": "phone"}, "arm": "banner", "reward": 1}
    {"arm": "mail", "reward": 0.4}

In each turn the context of a row, drawn, is shown. An arm pays what it paid in one of the `near` rows of
this arm whose contexts are nearest to that, drawn; rows at the same distance as the last of them count
too. So without contexts an arm pays what it paid in any row, and its mean is known, as are those of
contexts: regret is that to the arm with the best mean of these rows. This takes the log as it is: where
rows of an arm are few, or the log chose arms by something that is not in the context, means are biased.

Numbers of a context are standardised; a text is a feature for each of its values, or where these are
more than `MOST_VALUES`, `HASHED` hashed counts of its words of length 1; a last feature is 1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.logs import finite, read_log_rows, split_of_row
from palaestra.tasks.records import Record, describe_value
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    seed_of,
    stage,
    value_class,
)
from palaestra.worlds.explore import read_arm

MOST_VALUES, HASHED = 32, 32
HELD_OUT_ONE_IN = 5  # rows


@value_class
class LoggedPull:
    """A row of a log; `context` by name, "" for a context that is one value."""

    context: Mapping[str, float | str]
    arm: str
    reward: float
    split: str = ""


@dataclass(frozen=True)
class BanditLog:
    """The rows of a split: features [N, D], arm numbers and rewards [N], contexts as text, and the
    names of the arms.
    """

    x_ND: np.ndarray
    arm_N: np.ndarray
    reward_N: np.ndarray
    shown: tuple[str, ...]
    names: tuple[str, ...]

    def nearest(self, row: int, arm: int, near: int) -> np.ndarray:
        """The rewards of the rows of an arm that are nearest to a row's context."""
        own_N = np.flatnonzero(self.arm_N == arm)
        far_N = ((self.x_ND[own_N] - self.x_ND[row]) ** 2).sum(1)
        last = np.sort(far_N)[min(near, len(far_N)) - 1]
        return self.reward_N[own_N[far_N <= last + 1e-9]]

    def means(self, row: int, near: int) -> tuple[float, ...]:
        """The mean reward of each arm at a row's context."""
        return tuple(float(self.nearest(row, k, near).mean()) for k in range(len(self.names)))


def read_pull(record: Record, where: str, split: str = "") -> LoggedPull:
    """A row of a log. Raises UserError where it has no arm or no reward."""
    arm = record.get("arm")
    if isinstance(arm, float) and arm.is_integer():
        arm = int(arm)
    if isinstance(arm, bool) or not isinstance(arm, str | int) or not str(arm).strip():
        raise UserError(f"{where}: arm is {describe_value(arm)}; write the name of what was chosen")
    given = record.get("context")
    parts: Mapping[Any, Any] = given if isinstance(given, Mapping) else {"": given}
    if isinstance(given, list | tuple):
        parts = dict(enumerate(given, 1))
    context = dict[str, float | str]()
    for name, value in parts.items():
        if isinstance(value, str):
            context[str(name)] = " ".join(value.split())
        elif value is not None:
            context[str(name)] = finite(value, f"{where}: context {name}".rstrip())
    return LoggedPull(
        context=context,
        arm=" ".join(str(arm).split()),
        reward=finite(record.get("reward"), f"{where}: reward"),
        split=split_of_row(record, where, split),
    )


@lru_cache(maxsize=16)
def read_log(path: str, columns: str, skip: str, folder: str) -> tuple[list[LoggedPull], str]:
    """The rows of a log, and a line about those that are left out. Raises UserError as `read_log_rows` does."""
    return read_log_rows(path, read_pull, columns, skip, '{"arm": "...", "reward": 1}')


@lru_cache(maxsize=16)
def load_log(
    path: str, test: str = "", columns: str = "", skip: str = "", folder: str = ""
) -> Mapping[str, BanditLog]:
    """The log of each split. Held out are the rows of a second file, those with the split "test", or
    every fifth row, drawn. `folder` is where relative paths start.

    Raises:
        UserError: a split has fewer than two arms.
    """
    trained, held_out = read_log(path, columns, skip, folder)[0], list[LoggedPull]()
    if test:
        held_out = read_log(test, columns, skip, folder)[0]
    elif any(row.split for row in trained):
        held_out = [row for row in trained if row.split == "test"]
        trained = [row for row in trained if row.split != "test"]
    else:
        drawn = [seed_of(("log", i)) % HELD_OUT_ONE_IN == 0 for i in range(len(trained))]
        held_out = [row for row, out in zip(trained, drawn, strict=True) if out]
        trained = [row for row, out in zip(trained, drawn, strict=True) if not out]
    x_ND = features([row.context for row in (*trained, *held_out)])
    parts = {"train": (trained, x_ND[: len(trained)]), "test": (held_out, x_ND[len(trained) :])}
    return {split: _log(f"{path} ({split})", rows, x_ND) for split, (rows, x_ND) in parts.items()}


def _log(where: str, rows: Sequence[LoggedPull], x_ND: np.ndarray) -> BanditLog:
    names = tuple(dict.fromkeys(row.arm for row in rows))
    if len(names) < 2:
        raise UserError(
            f"{where}: its {len(rows)} rows have {len(names)} arms, and a bandit has two or more; give more "
            "rows, or hold some out with --test-data"
        )
    return BanditLog(
        x_ND=x_ND,
        arm_N=np.array([names.index(row.arm) for row in rows]),
        reward_N=np.array([row.reward for row in rows]),
        shown=tuple(_text(row.context) for row in rows),
        names=names,
    )


def _text(context: Mapping[str, float | str]) -> str:
    values = {k: f"{x:g}" if isinstance(x, float) else x for k, x in context.items()}
    return ", ".join(f"{k} {x}".strip() for k, x in values.items())


def features(contexts: Sequence[Mapping[str, float | str]]) -> np.ndarray:
    """[N, D] the features of contexts; D is 0 where all are alike."""
    columns = list[np.ndarray]()
    for name in dict.fromkeys(k for c in contexts for k in c):
        given = [c.get(name) for c in contexts]
        values = dict.fromkeys(x for x in given if x is not None)
        if all(isinstance(x, float) for x in values):
            x_N = np.array([np.nan if x is None else x for x in given], float)
            spread = float(np.nanstd(x_N))
            if spread > 0:
                columns.append(np.nan_to_num((x_N - np.nanmean(x_N)) / spread))
        elif 2 <= len(values) <= MOST_VALUES:
            columns += [np.array([float(x == v) for x in given]) for v in values]
        elif len(values) > MOST_VALUES:
            columns += list(np.array([hashed_words(str(x or "")) for x in given]).T)
    if not columns:
        return np.zeros((len(contexts), 0))
    return np.stack([*columns, np.ones(len(contexts))], 1)


def hashed_words(text: str) -> np.ndarray:
    """[HASHED] counts of words by hash, of length 1; of no words 0."""
    counts = np.zeros(HASHED)
    for word in re.findall(r"\w+", text.casefold()):
        counts[seed_of(("word", word)) % HASHED] += 1
    return counts / max(1e-9, float(np.linalg.norm(counts))) if counts.any() else counts


@declare(
    columns=(
        ("split", str, '"train" or "test"'),
        ("order", tuple, "by arm that is shown, the number of the arm of the log behind it"),
    )
)
@stage
class LoggedBandits:
    """Bandits of one log, which differ in the contexts that come and the rewards that are drawn; with
    `shuffle` other names stand for the arms in training, so that what is learned is not which name pays.
    """

    path: str
    test: str = ""
    columns: str = ""
    skip: str = ""
    shuffle: bool = True
    name: str = "logged"
    size: int | None = None
    test_size: int = 16

    @property
    def logs(self) -> Mapping[str, BanditLog]:
        return load_log(self.path, self.test, self.columns, self.skip, os.getcwd())

    @property
    def notes(self) -> tuple[str, ...]:
        """Which rows are left out, and how many arms have."""
        files = filter(None, (self.path, self.test))
        left = (read_log(f, self.columns, self.skip, os.getcwd())[1] for f in files)
        sizes = {split: np.bincount(log.arm_N) for split, log in self.logs.items()}
        counts = ", ".join(f"{x.sum()} in {split}" for split, x in sizes.items())
        few = min(int(x.min()) for x in sizes.values())
        return (*filter(None, left), f"rows of the log: {counts}; an arm has {few} or more")

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.path} has no split {split!r}; use 'train' or 'test'")
        names = self.logs[split].names
        order = list(range(len(names)))
        if self.shuffle and split == "train":
            order = rng_of(("logged", self.path, index)).permutation(len(names)).tolist()
        text = f"Choose one of {len(names)} arms: {', '.join(names)}."
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=text),),
            meta={"split": split, "order": tuple(order)},
            domain=self.name,
        )


@value_class
class LoggedState:
    """A turn: the row whose context is shown."""

    split: str
    order: tuple[int, ...]
    prompt: tuple[Message, ...]
    key: Key
    row: int = 0
    turn: int = 0


@stage
class LoggedBandit:
    """The bandit of a log, without an end."""

    bandits: LoggedBandits
    near: int = 5
    seats: tuple[str, ...] = ("policy",)

    def __post_init__(self) -> None:
        need_at_least(self, near=1)

    def reset(self, task: Task, key: Key) -> Frame:
        state = LoggedState(
            split=task.meta["split"], order=tuple(task.meta["order"]), prompt=task.prompt, key=key
        )
        return self._ask(state, {})

    def step(self, state: LoggedState, acts: tuple[Act, ...], key: Key) -> Frame:
        log = self._log(state)
        rng = rng_of((*state.key, "arm", state.turn))
        arm = read_arm(acts[0].text, log.names)
        k = int(rng.integers(len(log.names))) if arm is None else log.names.index(arm)
        paid_N = log.nearest(state.row, state.order[k], self.near)
        rng = rng_of((*state.key, "reward", state.turn, k))
        reward = float(paid_N[rng.integers(len(paid_N))])
        return self._ask(replace(state, turn=state.turn + 1), {("policy", ""): reward})

    def legal(self, state: LoggedState) -> tuple[str, ...]:
        return self._log(state).names

    def features(self, state: LoggedState) -> tuple[float, ...]:
        return tuple(self._log(state).x_ND[state.row].tolist())

    def expected(self, state: LoggedState) -> Mapping[str, float]:
        """The mean of what an arm can pay in this turn."""
        log = self._log(state)
        means = log.means(state.row, self.near)
        return {name: means[k] for name, k in zip(log.names, state.order, strict=True)}

    def _log(self, state: LoggedState) -> BanditLog:
        return self.bandits.logs[state.split]

    def _ask(self, state: LoggedState, pay: Mapping[tuple[str, str], float]) -> Frame:
        log = self._log(state)
        row = int(rng_of((*state.key, "context", state.turn)).integers(len(log.shown)))
        state = replace(state, row=row)
        *before, last = state.prompt
        context_text = f"\nContext: {log.shown[row]}" if log.shown[row] else ""
        say = (*before, replace(last, content=last.content + context_text))
        return Frame(state=state, asks=(Ask(seat="policy", say=say, new_row=True),), pay=pay)
