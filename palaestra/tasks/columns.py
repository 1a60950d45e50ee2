"""Which columns of the data are read as what: as `--columns` says, else as the usual names say.

    question=prompt                      the column `question` is the prompt
    answer=reward_model.ground_truth     the answer stands inside another column
    answer=####                          of the answer what follows the last ####, as in GSM8K
    solution=answer,answer=boxed         of the column `solution` what stands in the last \\boxed{}
    rubric=meta.criteria                 the column `rubric` is what the method calls `criteria`
    clean.py:row                         a function, a row in and a row with these columns out

What is there under its own name needs no guess. Where two columns could be meant, or one is no
answer to compare with, a `UserError` names the choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, repeat
from typing import Any

from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.tasks import formats, molecules, user_code
from palaestra.tasks.options import has_options
from palaestra.tasks.picture_data import PICTURE_COLUMNS, folder_of, read_pictures
from palaestra.tasks.picture_files import MediaLimits
from palaestra.tasks.records import Record, Records, each_record, kind
from palaestra.tasks.sound_data import SOUND_COLUMNS
from palaestra.tasks.tool_data import notes_on_messages
from palaestra.tasks.video_data import VIDEO_COLUMNS
from palaestra.types import value_class

USES = (
    "prompt", "messages", "answer", "demonstration", "hint", "chosen", "rejected", "options", "system",
    "id", "domain", "split", "response", "right",
)  # fmt: skip
MEDIA = (*PICTURE_COLUMNS, *VIDEO_COLUMNS, *SOUND_COLUMNS)  # which are read as such
META = "meta."  # before the name of a column that a method reads for itself
DOCUMENT = "document"  # a use without a prompt: text that is imitated whole
OTHER = {"prompt": "messages", "messages": "prompt"}  # what a use stands in place of
CUTS = ("####", "boxed")
CONVERSATIONS = ("conversations", "conversation", "context_messages")
PROMPTS = ("question", "problem", "query", "instruction", "input")
ANSWERS = ("ground_truth", "reward_model", "target", "solution", "answerkey")
CHOICES = ("choices",)
REPLIES = ("completion", "response", "output")
LABELS = ("label", "kto_tag", "score")
# an answer by its name where no column of ANSWERS is there; "label" where no reply is, as in OpenRLHF
OTHER_ANSWERS = ("expected_answer", "reference_answer", "final_answer", "label")
PAIRS = (("chosen_response", "rejected_response"), ("preferred_output", "non_preferred_output"))
# texts beside a document that only say where it comes from, or what its author thought
SOURCES = (
    "id", "url", "source", "title", "date", "timestamp", "language", "license", "meta", "metadata",
    "domain", "split", "dump", "file_path", "author", "subset", "path", "thought",
)  # fmt: skip
# columns of which one makes a record a question in words, or text that is imitated
IN_WORDS = frozenset([
    "prompt", "messages", "demonstration", "chosen", "rejected", "response", "document", "text",
    *PROMPTS, *CONVERSATIONS, "completion", "output", "reply",
])  # fmt: skip
LOOKED_AT = 64  # records, to see which columns there are
WORKED_WORDS = 12  # more are no final answer, but how it was found
FUNCTION = re.compile(r".+\.py:\w+")


@value_class
class Column:
    """A use and where its value stands: names from the outermost column inwards. `cut` says which
    part of a text it is. Several `paths` are joined by a line's end.
    """

    use: str
    paths: tuple[tuple[str, ...], ...]
    cut: str = ""

    def __str__(self) -> str:
        return " and ".join(".".join(p) for p in self.paths)


@dataclass(frozen=True)
class ColumnMap:
    """How rows are read. `remark` says which columns were recognised; empty: all columns have the names that
    they are read by, or were given. `parsed`: columns whose text holds messages.
    """

    columns: tuple[Column, ...] = ()
    function: str = ""
    remark: str = ""
    parsed: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of how rows are read, a line each."""
        names = " and ".join(self.parsed)
        verb = "hold" if len(self.parsed) > 1 else "holds"
        text = f"{names} {verb} messages as text (JSON or Python), read as messages"
        documents = (
            "documents are imitated whole, without the chat template" if self._document else ""
        )
        return tuple(filter(None, (self.remark, text if names else "", documents)))

    @property
    def _document(self) -> bool:
        return any(c.use == DOCUMENT for c in self.columns)

    def read(self, row: Record, where: str) -> Record:
        """A row with the columns that Palaestra reads, and all its others."""
        if self.function:
            row = called(self.function, row, where)
        if self.columns:
            row = self._moved(row, where)
        row = formats.normalise(row, where, self.name)
        if self._document and row.get(DOCUMENT) is not None:
            row = {**row, "prompt": row[DOCUMENT], "demonstration": row[DOCUMENT]}
        return row

    def name(self, use: str) -> str:
        """What the data calls the column that is read so."""
        return next((str(c) for c in self.columns if c.use == use), use)

    def is_free(self, column: str) -> bool:
        """Whether a column is read as nothing."""
        return column not in USES and all(p[0] != column for c in self.columns for p in c.paths)

    def remedy(self, use: str, column: str = "COLUMN") -> str:
        """How a column is made to be read so."""
        if self.function:
            return f"{self.function} is to return {use!r}"
        return f"say which column it is, --columns {column}={use}"

    def _moved(self, row: Record, where: str) -> Record:
        """What is read as the prompt or the answer also stays under its name, for rewards that ask
        for it.
        """
        values = {c.use: value_of(c, row, where) for c in self.columns}
        gone = {
            p[0]
            for c in self.columns
            for p in c.paths
            if len(p) == 1
            and (p[0] in USES or c.use not in ("prompt", "answer"))
            and (p[0] == c.use or p[0].casefold() != c.use)
        }
        gone |= {OTHER[c.use] for c in self.columns if c.use in OTHER}
        kept = {k: v for k, v in row.items() if k not in gone}
        return {**kept, **{k: v for k, v in values.items() if v is not None}}


class Converted:
    """Records read in a certain way, with their pictures, videos and sounds within `limits`."""

    def __init__(self, records: Records, reading: ColumnMap, limits: MediaLimits = MediaLimits()):
        self.records, self.reading, self.path = records, reading, records.path
        self.limits = limits
        self.replies = tuple(dict.fromkeys(map(reading.name, ("chosen", "rejected", "response"))))
        self.notes = set[str]()  # on replies that were read, which are text afterwards

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return map(self._read, self.records, count())

    def __getitem__(self, index: int) -> Record:
        return self._read(self.records[index], index)

    def _read(self, record: Record, index: int) -> Record:
        where = self.where(index)
        read = self.reading.read(record, where)
        self.notes |= {x for c in self.replies for x in notes_on_messages(record.get(c))}
        folder = folder_of(self.records, index)
        return read_pictures(read, where, folder, self.limits)

    def label(self, index: int) -> str:
        return self.records.label(index)

    def where(self, index: int) -> str:
        return self.records.where(index)


def convert(
    records: Records, columns: str, answers: bool, limits: MediaLimits = MediaLimits()
) -> Converted:
    """The records with the columns that Palaestra reads, and their media within `limits`. `answers`:
    they need some.
    """
    if FUNCTION.fullmatch(columns):
        user_code.load(columns, "function")
        rows = map(called, repeat(columns), records, map(records.where, count()))
        guessed_columns = recognise(sample(rows), str(records.path), (), answers)
        return Converted(records, replace(guessed_columns, function=columns), limits)
    first = sample(records)
    given = resolve(parse_columns(columns), first)
    check_there(given, first, str(records.path))
    if column := column_of_molecules(first, given):
        return Converted(*molecule_rows(records, first, given, column))
    reading = recognise(first, str(records.path), given, answers)
    return Converted(records, reading, limits)


def column_of_molecules(first: Sequence[Record], given: Sequence[Column]) -> str:
    """The column of SMILES in a table of molecules: records without a prompt and nothing recorded."""
    names = list(dict.fromkeys(str(k) for row in first for k in row))
    own = next((str(c) for c in given if c.use == "smiles"), "")
    taken = {n.strip().casefold() for n in names} | {c.use for c in given}
    return "" if taken & IN_WORDS else molecules.column_of_molecules(names, own)


def molecule_rows(
    records: Records, first: Sequence[Record], given: Sequence[Column], column: str
) -> tuple[Records, ColumnMap]:
    """The molecules as records, and what is said of them."""
    names = list(dict.fromkeys(str(k) for row in first for k in row))
    asked = next((str(c) for c in given if c.use == "answer"), "")
    asked = asked or molecules.column_of_property(names, column, str(records.path))
    split = next((str(c) for c in given if c.use == "split"), "split")
    table = molecules.molecule_table(records, column, asked, split)
    others = tuple(c for c in given if c.use not in ("answer", "smiles", "split"))
    return table, ColumnMap(columns=others, remark=table.notes)


def sample(records: Iterable[Record]) -> list[Record]:
    """The first records, less those that cannot be read. Raises UserError where none can."""
    records_read = list(islice(each_record(records), LOOKED_AT))
    rows = [r for r in records_read if not isinstance(r, UserError)]
    if records_read and not rows:
        raise next(r for r in records_read if isinstance(r, UserError))
    return rows


# ---- what the user says


def parse_columns(text: str) -> tuple[Column, ...]:
    """The items of `--columns`. One that only cuts has no path yet."""
    columns: dict[str, Column] = {}
    cuts: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        left, sign, right = (x.strip() for x in item.partition("="))
        if not (sign and left and right):
            raise UserError(f"--columns {item}: write COLUMN=USE, e.g. question=prompt")
        uses = (*USES, DOCUMENT, *MEDIA)
        use, path = (right, left) if right in uses else (left, right)
        if right.startswith(META) and right[len(META) :] not in (*USES, DOCUMENT):
            use, path = right[len(META) :], left
        elif use not in uses:
            raise UserError(
                f"--columns {item}: neither side is one of {', '.join((*USES[:12], *MEDIA))}; write e.g. "
                f"{left}=prompt, or {left}={META}{right} for any other column{suggestion(right, USES)}"
            )
        known = cuts if path in CUTS else columns
        if use in known:
            raise UserError(f"--columns {item}: {use!r} is said twice; keep one")
        if path in CUTS:
            cuts[use] = path
        else:
            columns[use] = Column(use=use, paths=(tuple(path.split(".")),))
    for use, cut in cuts.items():
        columns[use] = replace(columns.get(use, Column(use=use, paths=())), cut=cut)
    return tuple(columns.values())


def resolve(given: Sequence[Column], first: Sequence[Record]) -> tuple[Column, ...]:
    """The columns with the names that the data has: a name may hold points, as in "data.prompt",
    or have spaces around it.
    """
    names = list(dict.fromkeys(str(k) for row in first for k in row))
    stripped = {n.strip(): n for n in reversed(names)} | {n: n for n in names}

    def own(path: tuple[str, ...]) -> tuple[str, ...]:
        for n in range(len(path), 0, -1):
            if (name := stripped.get(".".join(path[:n]))) is not None:
                return (name, *path[n:])
        return path

    return tuple(replace(c, paths=tuple(map(own, c.paths))) for c in given)


def check_there(given: Sequence[Column], first: Sequence[Record], where: str) -> None:
    """Columns that are named must be in some record."""
    names = list(dict.fromkeys(str(k) for row in first for k in row))
    for path in (p for c in given for p in c.paths):
        top, *deeper = path
        if first and (
            top not in names or (deeper and all(lookup(row, path) is None for row in first))
        ):
            raise UserError(
                f"{where}: --columns names {'.'.join(path)!r}, and no record has it"
                f"{suggestion(top, names)}; they have {', '.join(names[:12])}"
            )


# ---- what the names say


def recognise(
    first: Sequence[Record], where: str, given: tuple[Column, ...], answers: bool
) -> ColumnMap:
    """How rows like the first ones are read, where not all is `given`."""
    used = {p[0] for c in given for p in c.paths}
    has = {k for row in first for k, v in row.items() if v is not None and k not in used}
    uses = {c.use for c in given if c.paths} | (has & set(USES))
    look = FirstRows(first, where, frozenset(has), frozenset(uses), {c.use for c in given if c.cut})
    guessed_columns = look.prompt() or look.document(answers)
    guessed_columns += look.and_known(guessed_columns).other_cases()
    guessed_columns += look.and_known(guessed_columns).pair()
    guessed_columns += look.and_known(guessed_columns).gap()
    guessed_columns += look.and_known(guessed_columns).answers(answers)
    guessed_columns += (
        look.and_known(guessed_columns).options((*guessed_columns, *given)) if answers else []
    )
    columns_text = ", ".join(f"{c} as {c.use}" for c in guessed_columns)
    whole = {c.use: c for c in (*guessed_columns, *given)}
    for c in given:
        if not c.paths:
            from_ = next((f.paths for f in guessed_columns if f.use == c.use), ((c.use,),))
            whole[c.use] = replace(c, paths=from_)
            check_there((whole[c.use],), first, where)
    columns = tuple(whole.values())
    return ColumnMap(
        columns=columns,
        parsed=parsed_columns(first, columns),
        remark=f"read {columns_text}; --columns changes it" if columns_text else "",
    )


def parsed_columns(first: Sequence[Record], columns: Sequence[Column]) -> tuple[str, ...]:
    """The names of the columns whose text holds messages."""
    paths = {use: (use,) for use in formats.WRITTEN} | {c.use: c.paths[0] for c in columns}
    return tuple(
        ".".join(path)
        for use, path in paths.items()
        if use in formats.WRITTEN
        and any(formats.parse_messages(lookup(row, path)) is not None for row in first)
    )


@dataclass(frozen=True)
class FirstRows:
    """The first records, the columns that they have and that nobody named, and the uses that are
    known. A name is recognised in any case, where it is not there as it is written here.
    """

    first: Sequence[Record]
    path: str
    has: frozenset[str]
    uses: frozenset[str]
    cut: set[str]

    def and_known(self, columns: Sequence[Column]) -> FirstRows:
        """These, where some columns are found."""
        return replace(self, uses=self.uses | {c.use for c in columns})

    def columns(self, names: Sequence[str]) -> list[str]:
        """The columns of these names."""
        return [
            column
            for name in names
            for column in ([name] if name in self.has else sorted(self.has))
            if column.strip().casefold() == name
        ]

    def among(self, names: Sequence[str]) -> list[str]:
        """Columns of these names that are not read under their own name."""
        return [c for c in self.columns(names) if c not in self.uses]

    def prompt(self) -> list[Column]:
        if self.uses & {"prompt", "messages"}:
            return []
        if own := self.columns(("prompt", "messages")):
            use = own[0].strip().casefold() if len(own) == 1 else "prompt"
            return self.one_of(own, use)
        talks, texts = self.among(CONVERSATIONS), self.among(PROMPTS)
        if texts == ["input"] and not talks and all(map(self.is_request, self.first)):
            return [Column(use="messages", paths=(("input", "messages"),))]
        if talks == talks[:1] and not texts and talks:
            return [Column(use="messages", paths=((talks[0],),))]
        if not talks and [t.casefold() for t in texts] == ["instruction", "input"]:  # Alpaca
            return [Column(use="prompt", paths=((texts[0],), (texts[1],)))]
        return self.one_of(talks + texts, "prompt")

    def document(self, answers: bool) -> list[Column]:
        """A column `text` of rows that have nothing else to learn from: texts without a prompt."""
        if not answers or self.uses - {"id", "domain", "split"}:
            return []
        texts = {k for row in self.first for k, v in row.items() if isinstance(v, str | list)}
        others = {k.strip().casefold() for k in texts & self.has} - {"text", *SOURCES}
        return [] if others else self.one_of(self.columns(("text",)), DOCUMENT)

    def other_cases(self) -> list[Column]:
        """Columns that have the name of a use in capitals."""
        both = all(self.columns((n,)) for n in ("response", "right"))
        known = {"prompt", "messages", *(() if both else ("response", "right")), *self.uses}
        return [
            column
            for use in USES
            if use not in known
            for column in self.one_of(self.columns((use,)), use)
        ]

    def answers(self, needed: bool) -> list[Column]:
        """Of the answer, or of what is recorded in its place."""
        if "answer" in self.uses:
            return []
        if talk_columns := self.judged_talk():
            return talk_columns
        if column := self.final(needed):
            return column
        recorded = self.uses & {"demonstration", "chosen", "messages", DOCUMENT}
        replies = [] if recorded or "right" in self.uses else self.columns(REPLIES)
        if not replies:
            return []
        (reply,) = self.one_of(replies, "demonstration")
        labels = [n for n in self.columns(LABELS) if self.is_verdict(n)]
        if (named := self.columns(("label",))) and not labels:
            raise UserError(
                f"{self.path}: {named[0]!r} is no true or false, so it does not say which "
                f"{replies[0]!r} is right; give --columns {replies[0]}=demonstration to imitate all"
            )
        if not labels:
            return [reply]
        return [replace(reply, use="response"), Column(use="right", paths=((labels[0],),))]

    def judged_talk(self) -> list[Column]:
        """Of conversations that end with the assistant, the label of their last message."""
        own = next((c for c in ("messages", *CONVERSATIONS) if c in self.has), "")
        if "messages" not in self.uses or not own or self.uses & {"right", "chosen", "prompt"}:
            return []
        if not all(formats.ends_with_reply(r[own]) for r in self.first if r.get(own) is not None):
            return []
        labels = [n for n in self.columns(LABELS[:2]) if self.is_verdict(n)]
        return [Column(use="right", paths=((n,),)) for n in labels[:1]]

    def pair(self) -> list[Column]:
        """Two columns that are a pair under other names."""
        if self.uses & {"chosen", "rejected"}:
            return []
        for names in PAIRS:
            columns = [self.columns((n,)) for n in names]
            if all(columns):
                uses = zip(("chosen", "rejected"), columns, strict=True)
                return [Column(use=use, paths=((there[0],),)) for use, there in uses]
        return []

    def gap(self) -> list[Column]:
        """By how much the better reply of a pair is better, which TRL calls its margin."""
        values = [r.get("margin") for r in self.first]
        if "chosen" not in self.uses or "gap" in self.has or "margin" not in self.has:
            return []
        numbers = all(formats.is_number(x) for x in values if x is not None)
        return [Column(use="gap", paths=(("margin",),))] if numbers else []

    def options(self, known: Sequence[Column]) -> list[Column]:
        """Of multiple choice, where all answers are among them. A reward of the user's own may ask
        for them by their name.
        """
        paths = {c.use: c.paths[0] for c in known if c.paths}
        gold = paths.get("answer", ("answer",))
        if "options" in self.uses or "answer" in self.cut:
            return []
        return [
            Column(use="options", paths=((name,),))
            for name in self.columns(CHOICES)
            if all(
                has_options(row[name], lookup(row, gold))
                for row in self.first
                if row.get(name) is not None
            )
        ]

    def final(self, needed: bool) -> list[Column]:
        """What is an answer by its name, unless it is a whole working."""
        learned = {"demonstration", "chosen", "right", DOCUMENT}
        replies = self.columns(REPLIES) or self.uses & learned
        other = [n for n in self.among(OTHER_ANSWERS) if not replies or n.casefold() != "label"]
        answer_paths = [self.path_in(n) for n in self.among(ANSWERS) or other]
        paths = [p for p in answer_paths if p is not None]
        if "answer" not in self.cut:
            worked = [p for p in paths if p[0].casefold() == "solution" and self.is_worked(p)]
            paths = [p for p in paths if p not in worked]
            recorded = self.uses & {"demonstration", "chosen", "messages"}
            if worked and not paths and needed and not recorded and not self.columns(REPLIES):
                name = worked[0][0]
                raise UserError(
                    f"{self.path}: {name!r} holds whole workings, not answers to compare with; "
                    "give --columns answer=boxed or answer=#### for what stands last in them, "
                    f"{name}=demonstration to imitate them, or {name}=answer"
                )
        same = {tuple(str(lookup(row, p)) for row in self.first) for p in paths}
        if len(same) > 1:
            return self.one_of([".".join(p) for p in paths], "answer")
        return [Column(use="answer", paths=(paths[0],))] if paths else []

    def one_of(self, names: Sequence[str], use: str) -> list[Column]:
        """The column that is read so, where there is one."""
        if len(names) > 1:
            raise UserError(
                f"{self.path}: {' and '.join(map(repr, names))} could each be the {use}; say which, "
                f"--columns {names[0]}={use}"
            )
        return [Column(use=use, paths=((name,),)) for name in names]

    def path_in(self, name: str) -> tuple[str, ...] | None:
        """Where an answer stands in a column: verl's is inside an object."""
        if name.casefold() != "reward_model":
            return (name,)
        inside = (name, "ground_truth")
        return inside if any(lookup(r, inside) is not None for r in self.first) else None

    def is_request(self, row: Record) -> bool:
        """Whether `input` is a request to OpenAI's API, as in its preference data."""
        return isinstance(lookup(row, ("input", "messages")), list)

    def is_worked(self, path: tuple[str, ...]) -> bool:
        """Whether most texts are more than a final answer."""
        texts = [x for r in self.first if isinstance(x := lookup(r, path), str)]
        long = [
            x
            for x in texts
            if len(x.split()) > WORKED_WORDS or "\n" in x.strip() or "\\boxed" in x or "####" in x
        ]
        return 2 * len(long) > len(texts)

    def is_verdict(self, name: str) -> bool:
        values = [r[name] for r in self.first if r.get(name) is not None]
        return bool(values) and all(formats.read_verdict(x) is not None for x in values)


# ---- values


def lookup(row: Any, path: Sequence[str]) -> Any:
    """What stands at a path, None where nothing does. Text that is JSON is looked into."""
    if not path:
        return row
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except (ValueError, RecursionError):
            return None
    if isinstance(row, Mapping):  # a name may hold points: the longest that is there counts
        inside = ((".".join(path[:n]), path[n:]) for n in range(len(path), 0, -1))
        values = (lookup(row[name], rest) for name, rest in inside if name in row)
        return next((x for x in values if x is not None), None)
    name, *rest = path
    if isinstance(row, list) and name.isdecimal() and int(name) < len(row):
        return lookup(row[int(name)], rest)
    return None


def value_of(column: Column, row: Record, where: str) -> Any:
    """A column's value in a row, cut where it is to be."""
    path, *more = column.paths
    if more:
        parts = [x for p in column.paths if isinstance(x := lookup(row, p), str) and x.strip()]
        return "\n".join(parts) or None
    value = lookup(row, path)
    if not column.cut or value is None:
        return value
    if not isinstance(value, str):
        raise UserError(f"{where}: {column} is {kind(value)}; {column.cut!r} is looked for in text")
    part = last_boxed(value) if column.cut == "boxed" else after_mark(value, column.cut)
    if part is None:
        mark = "\\boxed{...}" if column.cut == "boxed" else column.cut
        raise UserError(f"{where}: {column} has no {mark}; write it or drop the record")
    return part.strip()


def after_mark(text: str, mark: str) -> str | None:
    """What follows the last of a mark."""
    _, mark_found, rest = text.rpartition(mark)
    return rest if mark_found else None


def last_boxed(text: str) -> str | None:
    """What stands in the last \\boxed{} or \\fbox{} that is closed."""
    for start in reversed([m.end() for m in re.finditer(r"\\f?boxed\s*\{|\\fbox\s*\{", text)]):
        depth = 1
        for at in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0) * (text[at - 1] != "\\")
            if not depth:
                return text[start:at]
    return None


def called(spec: str, row: Record, where: str) -> Record:
    """A row as the user's function makes it. Raises UserError for what goes wrong in it."""
    function: Callable[[Record], Any] = user_code.load(spec, "function")
    try:
        made = function(user_code.own_data(dict(row)))
    except Exception as error:
        file = str(user_code.path_of(spec.rpartition(":")[0]))
        raise UserError(f"{where}: {user_code.locate_error(error, file)}") from error
    if not isinstance(made, Mapping):
        raise UserError(f"{where}: {spec} gave {kind(made)}; return a row, {{'prompt': ...}}")
    return made
