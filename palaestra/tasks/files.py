"""The user's own problems, one record each.

    {"prompt": "What is 2 + 3?", "answer": "5"}
    {"messages": [{"role": "user", "content": "..."}], "answer": 5, "id": "q2", "system": "Be brief.", "domain": "sums"}

Other names and formats become these columns first (`palaestra.tasks.columns`). `id`, `system`,
`domain` and `split` are optional; every other column goes to `Task.meta`. Those of a list `options`
are written under the question, lettered, unless the prompt has them (`palaestra.tasks.options`).
What is recorded stands in place of an answer: `demonstration`, `chosen` and `rejected`, or
`response` and whether it is `right`. A conversation that ends with the assistant is a demonstration
(`palaestra.tasks.conversations`): `Task.meta` has its last imitated message as `demonstration`, and
as `imitated` the places of messages of the prompt that are imitated too. What is held out is, in
this order: a second file, the split "test" of a data set or folder, a `split` column, or a tenth of
the different prompts.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.tasks import options
from palaestra.tasks.columns import convert
from palaestra.tasks.conversations import check_whole, read_conversation, read_text
from palaestra.tasks.preflight import Preflight
from palaestra.tasks.records import Record, Records, describe_value, kind
from palaestra.tasks.repeats import REPEAT_WARNING
from palaestra.tasks.sources import name_of, open_records
from palaestra.types import Message, Task, seed_of, stage

# share of the different prompts that is kept for tests, at least 1, at most
HELD_OUT_SHARE, HELD_OUT_MOST = 0.1, 500
COLUMNS = ("prompt", "messages", "answer", "id", "system", "domain", "split")
# what is learned from without being judged
PAIR = ("chosen", "rejected")
RECORDED_COLUMNS = (("demonstration",), PAIR, ("response", "right"))
ALIASES = (
    "question",
    "problem",
    "input",
    "instruction",
    "query",
    "text",
    "solution",
    "target",
    "label",
    "output",
)


@stage
class FileTasks:
    """Problems from files, folders or a data set of the hub. `answers=False`: records need no
    answer; `columns`: what is read as what.
    """

    path: str
    test: str = ""
    answers: bool = True
    name: str = ""
    columns: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or name_of(self.path))
        self._loaded()

    @property
    def size(self) -> int:
        return len(self._loaded()["train"].rows_N)

    @property
    def test_size(self) -> int:
        return len(self._loaded()["test"].rows_N)

    @property
    def choices(self) -> bool:
        """Whether some tasks are multiple choice."""
        return any(part.choices for part in self._loaded().values())

    @property
    def has_answers(self) -> bool:
        """Whether the records have answers, or need none; else they only hold what is recorded."""
        return not self.answers or all(part.answered for part in self._loaded().values())

    @property
    def n_leaked(self) -> int:
        """Held-out tasks whose prompt is a training prompt too: the user's own split
        can have some.
        """
        parts = self._loaded()
        return int(np.isin(parts["test"].prompt_N, parts["train"].prompt_N).sum())

    @property
    def caveat(self) -> str:
        """What a reader of the held-out accuracy should know; empty: nothing."""
        return (
            f"{self.n_leaked:,} of the {self.test_size:,} held-out prompts are training prompts "
            f"too: {REPEAT_WARNING}"
            if self.n_leaked
            else ""
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """How the columns were read, and what looks wrong in the data."""
        parts = self._loaded().values()
        return tuple(dict.fromkeys(note for part in parts for note in part.notes))

    def task(self, split: str, index: int) -> Task:
        parts = self._loaded()
        if split not in parts:
            raise UserError(f"{self.path} has no split {split!r}; use 'train' or 'test'")
        part = parts[split]
        if not 0 <= index < len(part.rows_N):
            raise IndexError(
                f"{self.path} has {len(part.rows_N)} {split} tasks, there is no number {index}"
            )
        return task_of(part.records, int(part.rows_N[index]), answers=self.answers)

    def _loaded(self) -> Mapping[str, SplitRecords]:
        return load(self.path, self.test, self.answers, os.getcwd(), self.columns)


@dataclass(frozen=True)
class SplitRecords:
    """The records of a split, and the hashes of their prompts."""

    records: Records
    rows_N: np.ndarray
    prompt_N: np.ndarray
    choices: bool  # whether some record of its file has options
    answered: bool  # whether the records of its file have answers
    notes: tuple[str, ...]  # what is to be said of its file


@dataclass(frozen=True)
class Scan:
    """What one pass over valid records found. split_N is 1 for test, 0 for train, -1 where nothing
    is said.
    """

    records: Records
    prompt_N: np.ndarray
    split_N: np.ndarray
    choices: bool
    answered: bool
    notes: tuple[str, ...]

    @property
    def everything(self) -> np.ndarray:
        return np.ones(len(self.prompt_N), np.bool_)

    def part(self, chosen_N: np.ndarray) -> SplitRecords:
        return SplitRecords(
            self.records,
            np.flatnonzero(chosen_N),
            self.prompt_N[chosen_N],
            self.choices,
            self.answered,
            self.notes,
        )


@lru_cache(maxsize=16)
def load(
    path: str, test: str, answers: bool, folder: str, columns: str = ""
) -> Mapping[str, SplitRecords]:
    """Reads and checks every record once, and decides who is held out. `folder` is where relative
    paths start.
    """
    opened = open_records(path)
    if test and Path(test).resolve() == Path(path).resolve():
        raise UserError(
            f"{test}: the test data is the training data; name another file or give none"
        )
    beside = _only(test, open_records(test), "test", "train") if test else opened.get("test")
    if beside is None and (other := sorted(set(opened) - {"", "train"})):
        raise UserError(
            f"{path}: the splits are {', '.join(opened)}; name {other[0]!r} 'test', or give "
            "--test-data"
        )
    found = scan(_only(path, opened, "train"), answers, columns)
    if beside is not None:
        return {
            "train": found.part(found.everything),
            "test": (held := scan(beside, answers, columns)).part(held.everything),
        }
    test_N = (
        found.split_N == 1 if (found.split_N >= 0).any() else held_out_mask(path, found.prompt_N)
    )
    for split, chosen_N in (("train", ~test_N), ("test", test_N)):
        if not chosen_N.any():
            raise UserError(
                f"{path}: no record has the split {split!r}; mark some, or drop the column"
            )
    return {"train": found.part(~test_N), "test": found.part(test_N)}


def _only(path: str, opened: Mapping[str, Records], *names: str) -> Records:
    for name in ("", *names):
        if name in opened:
            return opened[name]
    raise UserError(f"{path}: the splits are {', '.join(opened)}; there must be a {names[0]!r}")


def held_out_mask(path: str, prompt_N: np.ndarray) -> np.ndarray:
    """[N] whether a record is held out: the prompts with the smallest hashes, so equal prompts stay
    together.
    """
    unique = np.unique(prompt_N)
    if len(unique) < 2:
        what = (
            "1 record"
            if len(prompt_N) == 1
            else f"{len(prompt_N)} records with one and the same prompt"
        )
        raise UserError(
            f"{path}: {what}, so nothing can be held out; add records, or give --test-data"
        )
    n = min(max(1, round(HELD_OUT_SHARE * len(unique))), HELD_OUT_MOST)
    return prompt_N <= unique[n - 1]


def scan(records: Records, answers: bool, columns: str = "") -> Scan:
    """One pass: every record is checked and looked at for silent faults, and what the split needs is
    kept (34 bytes a record).
    """
    converted = convert(records, columns, answers)
    prompts, ids, splits, answered, choices = array("Q"), array("Q"), array("b"), array("b"), False
    seen = Preflight(exact=answers)
    for prompt, identity, split, task in _check_records(converted, answers):
        prompts.append(prompt)
        ids.append(identity)
        splits.append(split)
        answered.append(task.answer is not None)
        listed = bool(options.option_texts(task.meta))
        choices |= listed
        seen.look(task, listed)
    if not prompts:
        raise UserError(f"{records.path}: no records; it needs one a problem")
    _check_unique(converted, np.array(ids))
    split_N = np.array(splits)
    _check_all_or_none(converted, "split", split_N >= 0)
    if answers:
        _check_all_or_none(converted, "answer", np.array(answered, np.bool_))
    prompt_N = np.array(prompts)
    told = (converted.reading.told,) if converted.reading.told else ()
    notes = (
        *told,
        *seen.findings(prompt_N, converted.where, lambda i: task_of(converted, i, answers=answers)),
    )
    return Scan(converted, prompt_N, split_N, choices, bool(answered[0]), notes)


def _check_records(records: Records, answers: bool) -> Iterator[tuple[int, int, int, Task]]:
    for i, record in enumerate(records):
        task = build(record, records.where(i), records.label(i), answers)
        prompt = seed_of(("prompt", *(x for m in task.prompt for x in (m.role, m.content))))
        split = record.get("split")
        if split not in (None, "train", "test"):
            raise UserError(f"{records.where(i)}: split is {split!r}; write 'train' or 'test'")
        yield prompt, seed_of((task.id,)), {None: -1, "train": 0, "test": 1}[split], task


def _check_unique(records: Records, id_N: np.ndarray) -> None:
    order = np.argsort(id_N, kind="stable")
    same = np.flatnonzero(id_N[order][1:] == id_N[order][:-1])
    if len(same):
        first, second = int(order[same[0]]), int(order[same[0] + 1])
        taken, where = records[second].get("id"), records.where(second)
        raise UserError(
            f"{where}: id {taken!r} is taken by {records.where(first)}; ids must differ"
        )


def _check_all_or_none(records: Records, column: str, has_N: np.ndarray) -> None:
    if has_N.any() and not has_N.all():
        where = records.where(int(np.argmin(has_N)))
        raise UserError(
            f"{where}: no {column!r}, but other records have one; give it to all or none"
        )


def task_of(records: Records, index: int, *, answers: bool) -> Task:
    return build(records[index], records.where(index), records.label(index), answers)


def first_tasks(path: str, n: int, columns: str = "") -> list[Task]:
    """The first records as tasks, whatever their split; of several splits those of "train"."""
    records = convert(_only(path, open_records(path), "train"), columns, answers=False)
    if not len(records):
        raise UserError(f"{records.path}: no records; it needs one a problem")
    return [task_of(records, i, answers=False) for i in range(min(n, len(records)))]


def tasks_and_notes(path: str, n: int, columns: str = "") -> tuple[list[Task], tuple[str, ...]]:
    """The first records as tasks, and what `FileTasks.notes` says of all."""
    found = scan(_only(path, open_records(path), "train"), False, columns)
    size = min(n, len(found.records))
    return [task_of(found.records, i, answers=False) for i in range(size)], found.notes


def build(record: Record, where: str, label: str, answers: bool) -> Task:
    """A record as a task, or what is wrong with it."""
    identity = record.get("id")
    if identity is not None and (
        isinstance(identity, bool) or not isinstance(identity, str | int) or identity == ""
    ):
        raise UserError(f"{where}: id is {describe_value(identity)}; write text or a whole number")
    domain = record.get("domain")
    if domain is not None and not isinstance(domain, str):
        raise UserError(f"{where}: domain is {describe_value(domain)}; write text")
    system = _system(record, where)
    prompt, said = _prompt(record, where, len(system))
    meta = {k: to_plain(v) for k, v in record.items() if k not in COLUMNS} | said
    return Task(
        id=label if identity is None else str(identity),
        prompt=options.add_options((*system, *prompt), meta),
        answer=_answer({**record, **said}, where, answers),
        meta=meta,
        domain=domain or "",
        conversational=record.get("messages") is not None or isinstance(record.get("prompt"), list),
    )


def to_plain(value: Any) -> Any:
    """What Parquet has and JSON, checkpoints and rollouts have not: decimals as numbers, times as
    text, spans in seconds.
    """
    if isinstance(value, Mapping):
        return {k: to_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, Decimal):
        return (
            int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
        )
    if isinstance(value, date | time):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value


def _prompt(record: Record, where: str, before: int) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """The prompt, and what is imitated where a conversation shows it. `before`: messages that will
    stand before these.
    """
    text, messages = record.get("prompt"), record.get("messages")
    if text is not None and messages is not None:
        raise UserError(f"{where}: both 'prompt' and 'messages'; keep one")
    if text is None and messages is None:
        raise UserError(
            f"{where}: no 'prompt' (nor 'messages'){_describe_instead(record, 'prompt')}"
        )
    if text is not None and not isinstance(text, list):
        return (Message(role="user", content=read_text(text, where, "prompt")),), {}
    field = "messages" if text is None else "prompt"
    talk = read_conversation(record[field], where, field)
    if talk.reply is None:
        return talk.prompt, {}
    if record.get("demonstration") is not None:
        raise UserError(
            f"{where}: both 'demonstration' and a last message of the assistant; keep one"
        )
    said: dict[str, Any] = {"demonstration": talk.reply}
    if talk.imitated:
        said["imitated"] = [before + i for i in talk.imitated]
    return talk.prompt, said


def _system(record: Record, where: str) -> tuple[Message, ...]:
    text, messages = record.get("system"), record.get("messages") or record.get("prompt")
    if text is None:
        return ()
    if (
        isinstance(messages, list)
        and messages
        and isinstance(messages[0], dict)
        and messages[0].get("role") == "system"
    ):
        raise UserError(f"{where}: both 'system' and a system message in 'messages'; keep one")
    return (Message(role="system", content=read_text(text, where, "system")),)


def _answer(record: Record, where: str, needed: bool) -> Any:
    answer = record.get("answer")
    if not needed:
        return to_plain(answer)
    if answer is None and any(
        all(record.get(k) is not None for k in columns) for columns in RECORDED_COLUMNS
    ):
        return None
    for there, lacks in (PAIR, PAIR[::-1]):
        if answer is None and record.get(there) is not None:
            has = ", ".join(map(str, record))
            raise UserError(
                f"{where}: a pair has chosen and rejected, and this no {lacks!r}; it has {has}"
            )
    if answer is None:
        reply = next((k for k in ("completion", "response") if k in record), "")
        imitate = f", and to imitate {reply!r} name it 'demonstration'" if reply else ""
        without = f"without answers give a --reward FILE.py:FUNCTION{imitate}"
        raise UserError(f"{where}: no 'answer'{_describe_instead(record, 'answer')}; {without}")
    if not isinstance(answer, str | int | float | Decimal):
        raise UserError(
            f"{where}: answer is {kind(answer)}; write text or a number, or judge it with --reward "
            "FILE.py:FUNCTION"
        )
    if isinstance(answer, str) and not answer.strip():
        raise UserError(f"{where}: the answer is empty; write it or drop the record")
    if isinstance(answer, str):
        return check_whole(answer, where, "answer")
    if not math.isfinite(answer):
        raise UserError(
            f"{where}: answer is {answer}, which nothing equals; write a number or drop the record"
        )
    return to_plain(answer)


def _describe_instead(record: Record, wanted: str) -> str:
    """What the record has in its place."""
    if wanted in record:
        return ", it is null"
    has = [str(k) for k in record]
    near = suggestion(wanted, has)
    rename = [k for k in has if k.lower() in ALIASES and not near]
    hint = f"; rename {rename[0]!r} to {wanted!r}" if rename else near
    return f"; the record has {', '.join(has[:8]) or 'no columns'}{hint}"
