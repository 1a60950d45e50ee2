"""Records of people or things as tasks: a class to be named, and findings that a dialogue asks for.

    age,sex,HbA1c,glucose,smoker,diagnosis
    54,f,6.8,,yes,diabetes

One row is one record. The column `label` is its class, `known` columns stand in the first message, and the others are
findings, under their own names or as a reference (CTR, arXiv:2506.20059) says: a table whose rows are tests,

    code,name,normal
    HbA1c,glycated haemoglobin,<5.7
    glucose,,70-99
    smoker,smoking,no|never

`code` is a column of the records, `name` what stands for it ("" = the code), `normal` the values that are normal: "<5.7",
"<=5.7", ">40", ">=40", "70-99" (both ends are normal), or texts with | between them; "" = the value is shown as it is. A
value that is a number in text is one; empty, "nan" and "NA" are none, and such a test is not available.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.tasks.columns import sample
from palaestra.tasks.logs import read_log_rows, renamed, split_of_row
from palaestra.tasks.records import Record, describe_value
from palaestra.tasks.sources import open_records
from palaestra.types import Message, Task, seed_of, stage, value_class

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
BOUND = re.compile(rf"\s*(<=|>=|<|>|≤|≥)\s*({NUMBER})\s*")
RANGE = re.compile(rf"\s*({NUMBER})\s*(?:-|–|to|\.\.)\s*({NUMBER})\s*")
NOTHING = ("", "nan", "na", "n/a", "null")
OWN = ("split", "ordered", "id")  # columns that are no findings
HELD_OUT_ONE_IN = 5  # records
MOST_TESTS, MOST_CLASSES = 64, 64
MANY = 10  # records a value, from which on it is said that values name the class
NORMAL, ABNORMAL = "normal", "abnormal"


@value_class
class TestReference:
    """A test: the column of the records, its name in words, and which values are normal."""

    code: str
    name: str
    least: float = -math.inf
    most: float = math.inf
    open_ends: tuple[bool, bool] = (
        False,
        False,
    )  # whether least and most are no normal values themselves
    texts: tuple[str, ...] = ()  # normal values that are texts, in lower case
    numeric: bool = False  # whether there are bounds
    normal: str = ""  # the range, as it was written

    def interpret(self, value: Any) -> str:
        """What a value is shown as: "normal", "abnormal", itself where nothing says what is normal; "" = it is
        missing.
        """
        text = shown_value(value)
        if not text or not (self.numeric or self.texts):
            return text
        if self.texts and text.casefold() in self.texts:
            return NORMAL
        number = number_of(text)
        if not self.numeric or number is None:
            return ABNORMAL if self.texts else text
        low = number > self.least or (number == self.least and not self.open_ends[0])
        high = number < self.most or (number == self.most and not self.open_ends[1])
        return NORMAL if low and high else ABNORMAL


def read_reference(record: Record, where: str, split: str = "") -> TestReference:
    """A row of a reference. Raises UserError without a code, or for a range that cannot be read."""
    code = record.get("code")
    if not isinstance(code, str | int) or isinstance(code, bool) or not str(code).strip():
        raise UserError(f"{where}: code is {describe_value(code)}; write a column of the records")
    code = str(code).strip()
    name = " ".join(str(record.get("name") or code).split())
    normal = shown_value(record.get("normal"))
    if match := BOUND.fullmatch(normal):
        sign, bound = match[1], float(match[2])
        below, strict = sign in ("<", "<=", "≤"), sign in ("<", ">")
        return TestReference(
            code=code,
            name=name,
            numeric=True,
            open_ends=(strict and not below, strict and below),
            least=-math.inf if below else bound,
            most=bound if below else math.inf,
            normal=normal,
        )
    if match := RANGE.fullmatch(normal):
        least, most = float(match[1]), float(match[2])
        if least > most:
            raise UserError(f"{where}: normal is {normal!r}, and {least:g} is above {most:g}")
        return TestReference(
            code=code, name=name, numeric=True, least=least, most=most, normal=normal
        )
    if re.search(r"[<>≤≥]", normal):
        raise UserError(f"{where}: normal is {normal!r}; write it as <5.7, >=40, 70-99 or no|never")
    texts = tuple(x.strip().casefold() for x in normal.split("|") if x.strip())
    return TestReference(code=code, name=name, texts=texts, normal=normal)


def number_of(text: str) -> float | None:
    """A finite number that a text is; None = it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def shown_value(value: Any) -> str:
    """A value of a record as text; "" = it is missing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else ""
    text = "" if value is None else " ".join(str(value).split())
    return "" if text.casefold() in NOTHING else text


@value_class
class ClinicalRecord:
    """A row: what is known from the start, its findings as they are shown, and its class."""

    label: str
    known: Mapping[str, str]
    findings: Mapping[str, str]  # by name of the test
    ordered: tuple[str, ...] | None = None
    split: str = ""
    who: str = ""  # the column id: whose record it is
    measured: Mapping[str, str] = field(default_factory=dict)  # results that have a range, with it

    @property
    def abnormal(self) -> tuple[str, ...]:
        return tuple(name for name, status in self.findings.items() if status == ABNORMAL)


@dataclass(frozen=True)
class RecordTable:
    """The records of both splits, the tests in order, training records by class, and what is said of the data."""

    parts: Mapping[str, Sequence[ClinicalRecord]]
    tests: tuple[str, ...]
    classes: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]


@lru_cache(maxsize=8)
def read_table(
    path: str,
    test: str,
    label: str,
    known: tuple[str, ...],
    reference: str,
    tests: tuple[str, ...],
    columns: str,
    skip: str,
    folder: str,
) -> RecordTable:
    """The records of a file. Held out are the rows of a second one, those with the split "test", or every fifth
    row, drawn, one at least; rows with the same `id` stay together. `folder` is where relative paths start.

    Raises:
        UserError: there are fewer than two classes or no tests, or a split has no records.
    """
    raw, notes = list[tuple[Record, str, str]](), list[str]()
    for file, split in ((path, ""), (test, "test")):
        if file:
            _check_label(file, columns, label)
            rows, note = read_log_rows(
                file, _keep(label, split), columns, skip, f'{{"{label}": "...", "HbA1c": 6.8}}'
            )
            raw += rows
            notes += [note] if note else []
    references = _references(raw, label, known, reference, tests, notes)
    records = [_record(row, where, split, label, known, references) for row, where, split in raw]
    parts = _split(records)
    for split, rows in parts.items():
        if not rows:
            raise UserError(
                f"{path}: no record is in the {split} split; give more, or --test-data FILE"
            )
    counts = Counter(r.label for r in parts["train"])
    if not 2 <= len(counts) <= MOST_CLASSES:
        raise UserError(
            f"{path}: the column {label} has {len(counts)} values in {len(parts['train'])} training records; a class "
            f"to be named has 2 to {MOST_CLASSES}. label=COLUMN in --env findings(...) names another column"
        )
    names = tuple(r.name for r in references)
    notes += _about(parts, counts, names)
    return RecordTable(parts, names, tuple(counts.most_common()), tuple(notes))


def _check_label(file: str, columns: str, label: str) -> None:
    """Raises UserError where none of the first records has the column of the class."""
    for records in open_records(file).values():
        there = dict.fromkeys(name for row in sample(renamed(records, columns)) for name in row)
        if label not in there:
            raise UserError(
                f"{file}: no column {label}{suggestion(label, list(there))}; label=COLUMN in --env findings(...) names "
                "the class"
            )


def _keep(label: str, file_split: str) -> Any:
    def read(record: Record, where: str, split: str) -> tuple[Record, str, str]:
        if not shown_value(record.get(label)):
            raise UserError(f"{where}: {label} is empty; write the class, or leave the record out")
        return record, where, file_split or split_of_row(record, where, split)

    return read


def _references(
    raw: Sequence[tuple[Record, str, str]],
    label: str,
    known: tuple[str, ...],
    reference: str,
    tests: tuple[str, ...],
    notes: list[str],
) -> list[TestReference]:
    """The tests: those that are named, else those of the reference, else all columns that are left."""
    there = dict.fromkeys(name for record, _, _ in raw for name in record)
    for name in (*known, *tests):
        if name not in there:
            raise UserError(f"no record has a column {name}{suggestion(name, list(there))}")
    rows = (
        read_log_rows(reference, read_reference, "", "", '{"code": "HbA1c", "normal": "<5.7"}')[0]
        if reference
        else []
    )
    headers = {name.strip(): name for name in there}  # a header may have blanks around it
    rows = [replace(r, code=headers.get(r.code, r.code)) for r in rows]
    by_code = {r.code: r for r in rows}
    if gone := [code for code in by_code if code not in there]:
        raise UserError(
            f"{reference}: no record has a column {gone[0]}{suggestion(gone[0], list(there))}"
        )
    seen = {name for record, _, _ in raw for name, value in record.items() if shown_value(value)}
    others = tuple(n for n in there if n in seen and n not in (*OWN, label, *known))
    chosen = tests or tuple(by_code) or others
    if not 1 <= len(chosen) <= MOST_TESTS:
        raise UserError(
            f"the records have {len(chosen)} columns that may be findings, and 1 to {MOST_TESTS} are asked for; name them: "
            "tests='A,B' in --env findings(...), or a reference"
        )
    bare_name = lambda c: " ".join(c.split())
    references = [by_code.get(c, TestReference(code=c, name=bare_name(c))) for c in chosen]
    bare = [r.code for r in references if not (r.numeric or r.texts)]
    if bare:
        notes.append(
            f"{len(bare)} of {len(references)} tests have no reference range, such as {bare[0]}: their values are shown "
            "as they are, and none is abnormal"
        )
    return references


def _record(
    row: Record,
    where: str,
    split: str,
    label: str,
    known: tuple[str, ...],
    references: Sequence[TestReference],
) -> ClinicalRecord:
    seen = {r.name: r.interpret(row.get(r.code)) for r in references}
    by_code = {r.code.strip(): r.name for r in references}
    ordered = row.get("ordered")
    if isinstance(ordered, str):
        ordered = [x for x in re.split(r"[,;|]", ordered) if x.strip()]
    if ordered is not None and not isinstance(ordered, list | tuple):
        raise UserError(f"{where}: ordered is {describe_value(ordered)}; write a list of tests")
    names = (
        None if ordered is None else [by_code.get(str(x).strip(), str(x).strip()) for x in ordered]
    )
    if strange := [x for x in names or () if x not in seen]:
        raise UserError(
            f"{where}: ordered names {strange[0]!r}, which is no test{suggestion(strange[0], list(seen))}"
        )
    return ClinicalRecord(
        label=shown_value(row[label]),
        known={name: x for name in known if (x := shown_value(row.get(name)))},
        findings={name: x for name, x in seen.items() if x},
        ordered=None if names is None else tuple(names),
        split=split,
        who=shown_value(row.get("id")),
        measured={
            r.name: f"{shown_value(row.get(r.code))} (normal {r.normal})"
            for r in references
            if seen[r.name] in (NORMAL, ABNORMAL) and r.normal
        },
    )


def _split(records: Sequence[ClinicalRecord]) -> dict[str, Sequence[ClinicalRecord]]:
    if any(r.split == "test" for r in records):
        held = [r.split == "test" for r in records]
    else:
        seeds = [seed_of(("records", r.who or i)) for i, r in enumerate(records)]
        held = [seed % HELD_OUT_ONE_IN == 0 or seed == min(seeds) for seed in seeds]
    pairs = list(zip(records, held, strict=True))
    return {"train": [r for r, out in pairs if not out], "test": [r for r, out in pairs if out]}


def _about(
    parts: Mapping[str, Sequence[ClinicalRecord]], counts: Mapping[str, int], tests: Sequence[str]
) -> list[str]:
    """What a reader should know: sizes, classes without training records, and findings that name the class."""
    sizes = ", ".join(f"{len(rows)} in {split}" for split, rows in parts.items())
    shares = ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda x: -x[1])[:8])
    notes = [f"records: {sizes}; training records by class: {shares}"]
    rows = parts["train"]
    if strange := {r.label for r in parts["test"]} - set(counts):
        notes.append(f"no training record has the class {min(strange)}, which held-out ones have")
    for name in tests:
        seen = [(r.findings[name], r.label) for r in rows if name in r.findings]
        values = {x for x, _ in seen}
        if len(seen) >= MANY * len(values) and 1 < len(values) == len(set(seen)):
            notes.append(
                f"{name} says the class of every training record that has it; leave it out if it was written down after "
                "the diagnosis, as treatment is"
            )
    return notes


@declare(
    columns=(
        ("findings", dict, "by test, what the record shows"),
        ("abnormal", tuple, "the tests whose results are abnormal"),
        ("ordered", tuple, "the tests that were ordered"),
        ("measured", dict, "by test, a result that has a reference range, with it"),
    )
)
@stage
class ClinicalTasks:
    """The records of a file, each a dialogue.

    Args:
        label: the column of the class.
        known: columns of the first message.
        reference: a table of tests, see the module; "" = none.
        tests: codes of the tests that can be asked for; () = those of the reference, else all other columns.
    """

    path: str
    test: str = ""
    label: str = "diagnosis"
    known: tuple[str, ...] = ()
    reference: str = ""
    tests: tuple[str, ...] = ()
    columns: str = ""
    skip: str = ""
    name: str = "records"

    @property
    def table(self) -> RecordTable:
        return read_table(
            self.path,
            self.test,
            self.label,
            self.known,
            self.reference,
            self.tests,
            self.columns,
            self.skip,
            os.getcwd(),
        )

    @property
    def size(self) -> int:
        return len(self.table.parts["train"])

    @property
    def test_size(self) -> int:
        return len(self.table.parts["test"])

    @property
    def notes(self) -> tuple[str, ...]:
        return self.table.notes

    def task(self, split: str, index: int) -> Task:
        if split not in self.table.parts:
            raise UserError(f"{self.path} has no split {split!r}; use 'train' or 'test'")
        rows = self.table.parts[split]
        return record_task(
            rows[index % len(rows)], f"{self.name}/{split}/{index % len(rows)}", self.name
        )


def record_task(record: ClinicalRecord, task_id: str, domain: str) -> Task:
    """A record as a task: what is known is its prompt, the class its answer."""
    known = ", ".join(f"{name} {x}" for name, x in record.known.items()) or "A record."
    meta: dict[str, Any] = {"findings": dict(record.findings), "abnormal": record.abnormal}
    if record.ordered is not None:
        meta["ordered"] = record.ordered
    meta["measured"] = dict(record.measured)
    return Task(
        id=task_id,
        prompt=(Message(role="user", content=known),),
        answer=record.label,
        meta=meta,
        domain=domain,
    )
