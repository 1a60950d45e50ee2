"""The user's own problems, one record each.

    {"prompt": "What is 2 + 3?", "answer": "5"}
    {"messages": [{"role": "user", "content": "..."}], "answer": 5, "id": "q2", "system": "Be brief.", "domain": "sums"}

Other names and formats become these columns first (`palaestra.tasks.columns`). `id`, `system`,
`domain` and `split` are optional; every other column goes to `Task.meta`. Those of a list `options`
are written under the question, lettered, unless the prompt has them (`palaestra.tasks.options`).
What is recorded stands in place of an answer: `demonstration`, `chosen` and `rejected`, `first` and
`second`, or `response` and whether it is `right`. A conversation that ends with the assistant is a demonstration
(`palaestra.tasks.conversations`): `Task.meta` has its last imitated message as `demonstration`, and
as `imitated` the places of messages of the prompt that are imitated too. What is held out is, in
this order: a second file, the split "test" of a data set or folder, a `split` column, or a tenth of
the different prompts.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.tasks import options
from palaestra.tasks.columns import ColumnMap, Converted, convert
from palaestra.tasks.conversations import (
    check_whole,
    is_blank_system,
    read_conversation,
    read_text,
    shown_part,
)
from palaestra.tasks.cuts import Cut, shorten
from palaestra.tasks.domains import DomainTasks, domain_tasks
from palaestra.tasks.lacking import describe_lack, describe_no_answer
from palaestra.tasks.molecules import check_same_cut
from palaestra.tasks.omissions import RecordFaults, most_omissions
from palaestra.tasks.phrasing import ask_for_form
from palaestra.tasks.picture_data import READ, digests, place_pictures
from palaestra.tasks.picture_files import MediaLimits
from palaestra.tasks.preflight import Preflight
from palaestra.tasks.records import Record, Records, describe_value, each_record, kind, with_notes
from palaestra.tasks.repeats import REPEAT_WARNING, check_rows, held_out_mask, marked_split
from palaestra.tasks.sources import name_of, open_records
from palaestra.tasks.tool_data import notes_on_tools, read_tools
from palaestra.types import Message, Task, seed_of, stage

COLUMNS = ("prompt", "messages", "answer", "id", "system", "domain", "split")
OPTIONAL = ("id", "system", "domain", "split")
# what is learned from without being judged
PAIR = ("chosen", "rejected")
UNLABELLED = ("first", "second")  # a pair that nobody has compared yet
RECORDED_COLUMNS = (("demonstration",), PAIR, UNLABELLED, ("response", "right"))
LONGEST = 4_000_000  # characters of a prompt: a million tokens of English


@stage
class FileTasks:
    """Problems from files, folders or a data set of the hub. `answers=False`: records need no
    answer; `columns`: what is read as what; `skip`: how many records may be left out that are at
    fault; `longest`: tokens of the prompts that a run uses, 0 = any; `overlong`: whether a run
    refuses, drops or cuts records that are too long; `cuts`: where they are cut; `omissions`: numbers of
    records that are no tasks, by split; `instruction`: what stands behind their prompts, see
    `Recipe`; `by_line`: whether a record is held out follows from its own prompt alone; `shown`:
    columns that a world shows beside the prompt, so that records which differ in one are different;
    `by_picture`: all records with the same pictures are held out together.
    """

    path: str
    test: str = ""
    answers: bool = True
    name: str = ""
    columns: str = ""
    skip: str = ""
    longest: int = 0
    overlong: str = field(default="", repr=False)
    # by split and number of the record
    cuts: Mapping[tuple[str, int], tuple[Cut, ...]] = field(
        default_factory=dict[tuple[str, int], "tuple[Cut, ...]"], repr=False, hash=False
    )
    omissions: tuple[tuple[str, int], ...] = ()
    instruction: str = ""
    by_line: bool = False
    shown: tuple[str, ...] = ()
    max_pixels: int = 0  # of a picture, which is made smaller; 0 = a million
    max_frames: int = field(default=0, repr=False)  # of a video; 0 = 16
    # seconds of a sound, whose end is cut off; 0 = one of more than a minute is refused
    max_duration: float = field(default=0.0, repr=False)
    by_picture: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or name_of(self.path))
        self.splits()

    @property
    def size(self) -> int:
        return len(self.splits()["train"].rows_N)

    @property
    def test_size(self) -> int:
        return len(self.splits()["test"].rows_N)

    @property
    def choices(self) -> bool:
        """Whether some tasks are multiple choice."""
        return any(part.choices for part in self.splits().values())

    @property
    def has_answers(self) -> bool:
        """Whether the records have answers, or need none; else they only hold what is recorded."""
        return not self.answers or all(part.answered for part in self.splits().values())

    @property
    def n_leaked(self) -> int:
        """Held-out tasks whose prompt is a training prompt too: the user's own split
        can have some.
        """
        parts = self.splits()
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
    def domains(self) -> tuple[DomainTasks, ...]:
        """The records of each `domain`, for draws that choose among them."""
        return domain_tasks(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the columns were read, and what looks wrong in the data."""
        parts = self.splits().values()
        return tuple(dict.fromkeys(note for part in parts for note in part.notes))

    def task(self, split: str, index: int) -> Task:
        parts = self.splits()
        if split not in parts:
            raise UserError(f"{self.path} has no split {split!r}; use 'train' or 'test'")
        part = parts[split]
        if not 0 <= index < len(part.rows_N):
            raise IndexError(
                f"{self.path} has {len(part.rows_N)} {split} tasks, there is no number {index}"
            )
        row = int(part.rows_N[index])
        task = task_of(part.records, row, answers=self.answers)
        task = ask_for_form(task, self.instruction) if self.instruction else task
        return shorten(task, self.cuts[split, row]) if (split, row) in self.cuts else task

    def rows(self, split: str) -> np.ndarray:
        """The numbers of a split's records in their file."""
        return self.splits()[split].rows_N

    @property
    def omissions_left(self) -> int:
        """How many more records may be left out."""
        whole = {id(part.records): part for part in self.splits().values()}.values()
        n = sum(len(part.records) for part in whole)
        gone = sum(len(part.faults) for part in whole) + len(self.omissions)
        return max(0, most_omissions(self.skip, n) - gone)

    def without(self, tasks: Sequence[tuple[str, int]]) -> FileTasks:
        """These problems without some of them, which are named by split and index.

        Raises:
            UserError: nothing is left of a split.
        """
        parts = self.splits()
        rows = [(split, int(parts[split].rows_N[i])) for split, i in tasks]
        return replace(self, omissions=(*self.omissions, *rows))

    def with_cuts(self, cuts: Mapping[tuple[str, int], tuple[Cut, ...]]) -> FileTasks:
        """These problems with further cuts of some, which are named by split and index."""
        parts, whole = self.splits(), dict(self.cuts)
        for (split, i), more in cuts.items():
            row = split, int(parts[split].rows_N[i])
            whole[row] = (*whole.get(row, ()), *more)
        return replace(self, cuts=whole)

    def splits(self) -> Mapping[str, SplitRecords]:
        """The records of each split, less the omissions."""
        where = (self.path, self.test, self.answers, os.getcwd(), self.columns, self.skip)
        limits = MediaLimits(self.max_pixels, self.max_frames, self.max_duration)
        how = (*where, self.by_line, self.shown, limits, self.by_picture)
        return load(*how) if not self.omissions else load_without(self.omissions, *how)


@dataclass(frozen=True)
class SplitRecords:
    """The records of a split, and the hashes of their prompts."""

    records: Converted
    rows_N: np.ndarray
    prompt_N: np.ndarray
    choices: bool  # whether some record of its file has options
    answered: bool  # whether the records of its file have answers
    notes: tuple[str, ...]  # what is to be said of its file
    # places of the records of its file that are left out, and what is wrong with them
    faults: tuple[tuple[str, str], ...] = ()

    def without(self, rows: Collection[int], where: str) -> SplitRecords:
        """These less some rows. Raises UserError where nothing is left; `where` names the split."""
        kept_N = ~np.isin(self.rows_N, np.array(sorted(rows), np.int64))
        if not kept_N.any():
            raise UserError(f"{where}: every record is left out; mend some, or allow fewer")
        return replace(self, rows_N=self.rows_N[kept_N], prompt_N=self.prompt_N[kept_N])


@dataclass(frozen=True)
class Scan:
    """What one pass over records found, of those that are not left out. row_N are their numbers;
    picture_N are hashes of their pictures, or of the prompt where there is none; split_N is 1 for
    test, 0 for train, -1 where nothing is said.
    """

    records: Converted
    row_N: np.ndarray
    prompt_N: np.ndarray
    picture_N: np.ndarray
    split_N: np.ndarray
    choices: bool
    answered: bool
    notes: tuple[str, ...]
    faults: tuple[tuple[str, str], ...]

    @property
    def everything(self) -> np.ndarray:
        return np.ones(len(self.prompt_N), np.bool_)

    def part(self, chosen_N: np.ndarray) -> SplitRecords:
        return SplitRecords(
            self.records,
            self.row_N[chosen_N],
            self.prompt_N[chosen_N],
            self.choices,
            self.answered,
            self.notes,
            self.faults,
        )


@lru_cache(maxsize=16)
def load(
    path: str, test: str, answers: bool, folder: str, columns: str = "", skip: str = "",
    by_line: bool = False, shown: tuple[str, ...] = (), limits: MediaLimits = MediaLimits(),
    by_picture: bool = False,
) -> Mapping[str, SplitRecords]:  # fmt: skip
    """Reads and checks every record once, and decides who is held out. `folder` is where relative
    paths start.
    """
    opened = open_records(path)
    beside = _only(test, open_records(test), "test", "train") if test else opened.get("test")
    if beside is None and (other := sorted(set(opened) - {"", "train"})):
        raise UserError(
            f"{path}: the splits are {', '.join(opened)}; name {other[0]!r} 'test', or give "
            "--test-data"
        )
    trained = _only(path, opened, "train")
    if beside is None:
        check_rows(path, trained)
    how = (answers, columns, skip, shown, limits)
    rows = scan(trained, *how)
    if beside is not None:
        held = scan(beside, *how)
        check_same_cut(rows.records, held.records)
        return {"train": rows.part(rows.everything), "test": held.part(held.everything)}
    marked = (rows.split_N >= 0).any()
    of, apart_N = ("picture", rows.picture_N) if by_picture else ("prompt", rows.prompt_N)
    test_N = rows.split_N == 1 if marked else held_out_mask(path, apart_N, by_line, of)
    for split, chosen_N in (("train", ~test_N), ("test", test_N)):
        if not chosen_N.any() and not (by_line and split == "test"):
            raise UserError(
                f"{path}: no record has the split {split!r}; mark some, or drop the column"
            )
    return {"train": rows.part(~test_N), "test": rows.part(test_N)}


@lru_cache(maxsize=16)
def load_without(omissions: tuple[tuple[str, int], ...], *how: Any) -> Mapping[str, SplitRecords]:
    """What `load(*how)` gives, without rows that are named by split and number."""
    return {
        split: part.without({row for s, row in omissions if s == split}, f"{how[0]} ({split})")
        for split, part in load(*how).items()
    }


def _only(path: str, opened: Mapping[str, Records], *names: str) -> Records:
    for name in ("", *names):
        if name in opened:
            return opened[name]
    raise UserError(f"{path}: the splits are {', '.join(opened)}; there must be a {names[0]!r}")


def scan(
    records: Records, answers: bool, columns: str = "", skip: str = "",
    shown: tuple[str, ...] = (), limits: MediaLimits = MediaLimits(),
) -> Scan:  # fmt: skip
    """One pass: every record is checked and looked at for silent faults, and what the split needs is
    kept (50 bytes a record).
    """
    converted = convert(records, columns, answers, limits)
    prompts, ids, splits, answered = array("Q"), array("Q"), array("b"), array("b")
    pictures = array("Q")
    rows, choices, tools = array("q"), False, set[str]()
    seen, faults = Preflight(exact=answers), RecordFaults()
    for i, record in enumerate(with_notes(each_record(converted), records.path, len(records))):
        try:
            if isinstance(record, UserError):
                raise record
            task = build(record, converted.where(i), converted.label(i), answers, converted.reading)
            split = marked_split(record, converted.where(i), converted.reading)
        except UserError as error:
            faults.add(converted.where(i), error)
            continue
        rows.append(i)
        beside = (str(task.meta.get(column, "")) for column in shown)
        words = (x for m in task.prompt for x in (m.role, m.content, *digests((m,))))
        prompts.append(seed_of(("prompt", *words, *beside)))
        pictures.append(seed_of(("pictures", *d)) if (d := digests(task.prompt)) else prompts[-1])
        ids.append(seed_of((task.id,)))
        splits.append(split)
        answered.append(task.answer is not None)
        listed = bool(options.option_texts(task.meta))
        choices |= listed
        seen.look(
            task, listed, cut=answers and not has_other_use(record) and bool(shown_parts(record))
        )
        tools |= notes_on_tools(record)
    note = faults.settle(skip, len(rows) + faults.n)
    if not prompts:
        raise UserError(f"{records.path}: no records; it needs one a problem")
    row_N = np.array(rows)
    _check_unique(converted, np.array(ids), row_N)
    split_N = np.array(splits)
    _check_all_or_none(converted, "split", split_N >= 0, row_N)
    if answers:
        _check_all_or_none(converted, "answer", np.array(answered, np.bool_), row_N)
    prompt_N, picture_N = np.array(prompts), np.array(pictures)
    notes = (
        *converted.reading.notes,
        *filter(None, (note,)),
        *sorted(tools | converted.notes),
        *seen.findings(
            prompt_N,
            lambda i: converted.where(rows[i]),
            lambda i: task_of(converted, rows[i], answers=answers),
        ),
    )
    findings = (choices, bool(answered[0]), notes, tuple(faults.reasons))
    return Scan(converted, row_N, prompt_N, picture_N, split_N, *findings)


def _check_unique(records: Converted, id_N: np.ndarray, row_N: np.ndarray) -> None:
    order = np.argsort(id_N, kind="stable")
    same = np.flatnonzero(id_N[order][1:] == id_N[order][:-1])
    if len(same):
        first, second = (int(row_N[order[same[0] + i]]) for i in (0, 1))
        taken, where = records[second].get("id"), records.where(second)
        raise UserError(
            f"{where}: {records.reading.name('id')} {taken!r} is taken by {records.where(first)}; "
            "ids must differ"
        )


def _check_all_or_none(records: Converted, use: str, has_N: np.ndarray, row_N: np.ndarray) -> None:
    if has_N.any() and not has_N.all():
        faults, name = RecordFaults(), records.reading.name(use)
        for row in row_N[~has_N]:
            text = f"no {name!r}, but other records have one; give it to all or none"
            faults.add(records.where(int(row)), UserError(text))
        faults.settle("", len(row_N), advise=False)


def task_of(records: Converted, index: int, *, answers: bool) -> Task:
    where, label = records.where(index), records.label(index)
    return build(records[index], where, label, answers, records.reading)


def first_tasks(path: str, n: int, columns: str = "", skip: str = "") -> list[Task]:
    """The first records as tasks, whatever their split; of several splits those of "train". Where
    some may be left out, `skip`, those that are at fault are.
    """
    records = convert(_only(path, open_records(path), "train"), columns, answers=False)
    if not len(records):
        raise UserError(f"{records.path}: no records; it needs one a problem")
    tasks, faults = list[Task](), RecordFaults()
    for i in range(len(records)):
        if len(tasks) == n:
            break
        try:
            tasks.append(task_of(records, i, answers=False))
        except UserError as error:
            faults.add(records.where(i), error)
            faults.settle(skip, len(records))
    return tasks


def tasks_and_notes(path: str, n: int, columns: str = "") -> tuple[list[Task], tuple[str, ...]]:
    """The first records as tasks, and what `FileTasks.notes` says of all."""
    rows = scan(_only(path, open_records(path), "train"), False, columns)
    size = min(n, len(rows.records))
    return [task_of(rows.records, i, answers=False) for i in range(size)], rows.notes


def build(record: Record, where: str, label: str, answers: bool, reading: ColumnMap) -> Task:
    """A record as a task, or what is wrong with it. `reading`: how its columns were read."""
    if missing := [k for k in OPTIONAL if is_nan(record.get(k))]:
        record = {k: v for k, v in record.items() if k not in missing}
    identity = record.get("id")
    if identity is not None and (
        isinstance(identity, bool) or not isinstance(identity, str | int) or identity == ""
    ):
        raise UserError(
            f"{where}: {reading.name('id')} is {describe_value(identity)}; write text or a whole "
            "number"
        )
    domain = record.get("domain")
    if isinstance(domain, bool) or not isinstance(domain, str | int | None):
        raise UserError(
            f"{where}: {reading.name('domain')} is {describe_value(domain)}; write text or a whole "
            "number"
        )
    record = read_tools(options.read_options(record), where)
    if answers and not has_other_use(record):
        record = {**record, **shown_parts(record)}
    system = _system(record, where, reading)
    prompt, own_meta = _prompt(record, where, len(system), reading)
    prompt = place_pictures(prompt, record, where)
    meta = {k: to_plain(v) for k, v in record.items() if k not in (*COLUMNS, READ)} | own_meta
    return Task(
        id=label if identity is None else str(identity),
        prompt=options.add_options((*system, *prompt), meta),
        answer=_answer({**record, **own_meta}, where, answers, reading),
        meta=meta,
        domain="" if domain is None else str(domain),
        conversational=record.get("messages") is not None or isinstance(record.get("prompt"), list),
    )


def has_other_use(record: Record) -> bool:
    """Whether a record has an answer, or something recorded in its place, so that a conversation in
    it is a prompt.
    """
    uses = (("answer",), *RECORDED_COLUMNS)
    return any(all(record.get(k) is not None for k in columns) for columns in uses)


def shown_parts(record: Record) -> Record:
    """Conversations of a record that end with the user, cut behind what the assistant last said."""
    parts = {k: shown_part(record[k]) for k in ("prompt", "messages") if record.get(k)}
    return {k: part for k, part in parts.items() if part != record[k]}


def is_nan(value: Any) -> bool:
    """Whether a value is the number that pandas has in an empty cell of text."""
    return isinstance(value, float) and math.isnan(value)


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


def _prompt(
    record: Record, where: str, before: int, reading: ColumnMap
) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """The prompt, and what is imitated where a conversation shows it. `before`: messages that will
    stand before these.
    """
    text, messages = record.get("prompt"), record.get("messages")
    if text is not None and messages is not None:
        names = f"{reading.name('prompt')!r} and {reading.name('messages')!r}"
        raise UserError(f"{where}: both {names}; keep one")
    if text is None and messages is None:
        raise UserError(f"{where}: {describe_lack(record, 'prompt', reading)}")
    if text is not None and not isinstance(text, list):
        content = read_text(text, where, reading.name("prompt"))
        _check_length((content,), where, reading.name("prompt"))
        return (Message(role="user", content=content),), {}
    field = "messages" if text is None else "prompt"
    talk = read_conversation(record[field], where, reading.name(field))
    _check_length([m.content for m in talk.prompt], where, reading.name(field))
    if talk.reply is None:
        return talk.prompt, {}
    if record.get("demonstration") is not None:
        raise UserError(
            f"{where}: both {reading.name('demonstration')!r} and a last message of the "
            "assistant; keep one"
        )
    meta: dict[str, Any] = {"demonstration": talk.reply}
    if talk.imitated:
        meta["imitated"] = [before + i for i in talk.imitated]
    return talk.prompt, meta


def _check_length(texts: Sequence[str], where: str, name: str) -> None:
    """Refuses what no model's context holds, before it is tokenized, which would take minutes."""
    if (size := sum(map(len, texts))) > LONGEST:
        raise UserError(
            f"{where}: {name} has {size:,} characters, and at most {LONGEST:,} are read; cut it or "
            "drop the record"
        )


def _system(record: Record, where: str, reading: ColumnMap) -> tuple[Message, ...]:
    text, messages = record.get("system"), record.get("messages") or record.get("prompt")
    if text is None or (isinstance(text, str) and not text.strip()):  # usual for "none" in tables
        return ()
    if (
        isinstance(messages, list)
        and messages
        and isinstance(messages[0], dict)
        and messages[0].get("role") == "system"
        and not is_blank_system(messages[0])
    ):
        both = f"{reading.name('system')!r} and a system message in {reading.name('messages')!r}"
        raise UserError(f"{where}: both {both}; keep one")
    content = read_text(text, where, reading.name("system"))
    return (Message(role="system", content=content),)


def _answer(record: Record, where: str, needed: bool, reading: ColumnMap) -> Any:
    answer, name = record.get("answer"), reading.name("answer")
    if not needed:
        return to_plain(answer)
    for columns in RECORDED_COLUMNS:
        if answer is None and all(record.get(k) is not None for k in columns):
            for column in columns:
                if column != "right":
                    read_text(record[column], where, reading.name(column))
            return None
    for there, lacks in (PAIR, PAIR[::-1]):
        if answer is None and record.get(there) is not None:
            if lacks in record:
                raise UserError(
                    f"{where}: {reading.name(lacks)} is empty; write it or drop the record"
                )
            has = ", ".join(map(str, record))
            raise UserError(
                f"{where}: a pair has chosen and rejected, and this no {lacks!r}; it has {has}"
            )
    if answer is None:
        raise UserError(f"{where}: {describe_no_answer(record, reading)}")
    if not isinstance(answer, str | int | float | Decimal):
        several = "f1, the best of several right answers, or " if isinstance(answer, list) else ""
        raise UserError(
            f"{where}: {name} is {kind(answer)}; write text or a number, or judge it with --reward "
            f"{several}FILE.py:FUNCTION"
        )
    if isinstance(answer, str) and not answer.strip():
        raise UserError(f"{where}: {name} is empty; write it or drop the record")
    if isinstance(answer, str):
        return check_whole(answer, where, name)
    if not math.isfinite(answer):
        raise UserError(
            f"{where}: {name} is {answer}, which nothing equals; write a number or drop the record"
        )
    return to_plain(answer)
