"""Who says which answer of a pair is better, and the file in which the labels lie.

A labeller is `(ctx, pair) -> "first", "second" or "tie"`, or None while a person has not said it. It
raises Fault where it cannot answer, such as a command that fails: the pair stays without a label.
"""

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import palaestra as pl

VERDICTS = {
    "first": "first",
    "1": "first",
    "second": "second",
    "2": "second",
    "tie": "tie",
    "0": "tie",
}
FORMS = (
    "file, queue, terminal, FILE.jsonl, command:'PROGRAM ARGUMENTS', "
    "endpoint(url='http://HOST:PORT/v1',model='NAME'), or a model's folder"
)
COMMAND = "command:"


@dataclass(frozen=True)
class UnlabelledPair:
    """Two answers to a prompt, without a label.

    Args:
        number: of the record among the training tasks.
        task: the prompt, without any column that tells the label.
    """

    number: int
    task: pl.Task
    first: str
    second: str

    @property
    def id(self) -> str:
        """What its label is kept under: the same for the same texts, in any file."""
        asked = pl.tasks.question_text(self.task)
        return f"{pl.seed_of(('pair', asked, self.first, self.second)) % (1 << 48):012x}"

    def with_label(self, better: str) -> pl.Task:
        """As a task with columns chosen and rejected."""
        sides = (self.first, self.second) if better == "first" else (self.second, self.first)
        pair = dict(zip(("chosen", "rejected"), sides, strict=True))
        return replace(self.task, meta={**self.task.meta, **pair})


def unlabelled(task: pl.Task, number: int) -> UnlabelledPair:
    """A record as a pair whose order tells nothing: that of the columns first and second or, of
    chosen and rejected, that of a hash of the texts. Raises UserError where it has neither.
    """
    texts = [task.meta.get(name) for name in ("first", "second")]
    if not are_answers(texts):
        texts = [task.meta.get(name) for name in ("chosen", "rejected")]
        texts.sort(key=lambda x: pl.seed_of(("order", str(x))))
    if not are_answers(texts):
        raise pl.UserError(
            f"task {task.id!r} has no pair of answers; write columns first and second, or chosen "
            "and rejected"
        )
    hidden = ("chosen", "rejected", "gap")
    meta = {k: v for k, v in task.meta.items() if k not in hidden}
    return UnlabelledPair(number, replace(task, meta=meta), str(texts[0]), str(texts[1]))


def are_answers(texts: Sequence[object]) -> bool:
    """Whether each is a text that is not empty."""
    return all(isinstance(x, str) and x.strip() for x in texts)


def read_verdict(word: object) -> str | None:
    """ "first", "second" or "tie" of what somebody wrote; None = none of them."""
    return VERDICTS.get(str(word).strip().strip("\"'").casefold())


class Labeller(Protocol):
    """Says which answer of a pair is better."""

    at_once: ClassVar[int]  # pairs that it is asked about at a time

    async def __call__(self, ctx: pl.Context, pair: UnlabelledPair) -> str | None: ...


@pl.stage
class RecordedLabel:
    """The label that the record has: its columns chosen and rejected, read when it is bought."""

    at_once: ClassVar[int] = 64

    async def __call__(self, ctx: pl.Context, pair: UnlabelledPair) -> str | None:
        meta = ctx.bench.tasks.task("train", pair.number).meta
        if "chosen" not in meta or "rejected" not in meta:
            raise pl.UserError(
                f"task {pair.task.id!r} has no label, columns chosen and rejected; label=queue or "
                "label=terminal asks a person, and a command or a model may be asked"
            )
        if meta["chosen"] == meta["rejected"]:
            return "tie"
        return "first" if meta["chosen"] == pair.first else "second"


@pl.stage
class FileLabel:
    """A person who writes into the file of labels while the run waits."""

    at_once: ClassVar[int] = 64

    async def __call__(self, ctx: pl.Context, pair: UnlabelledPair) -> str | None:
        return None


@pl.stage
class TerminalLabel:
    """A person at the terminal, who is asked about one pair after the other; q pauses the run."""

    at_once: ClassVar[int] = 1

    async def __call__(self, ctx: pl.Context, pair: UnlabelledPair) -> str | None:
        question = (
            f"\n{pl.tasks.question_text(pair.task)}\n\n[1] {pair.first}\n\n[2] {pair.second}\n\n"
            "Which one is better? 1, 2, 0 for a tie, q to go on later"
        )
        while True:
            print(question, file=sys.stderr, flush=True)
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line or line.strip().casefold() == "q":
                raise pl.Paused("the labeller left; the labels so far are kept")
            if verdict := read_verdict(line):
                return verdict


@pl.stage
class CommandLabel:
    """A program of the user: it gets a pair as JSON (prompt, first, second) on its standard input,
    and prints first, second or tie on its last line.
    """

    command: str
    timeout: float = 600.0  # seconds
    at_once: ClassVar[int] = 8

    def __post_init__(self) -> None:
        words = shlex.split(self.command)
        if not words or shutil.which(words[0]) is None:
            raise pl.UserError(f"label={COMMAND}{self.command}: there is no such program")

    async def __call__(self, ctx: pl.Context, pair: UnlabelledPair) -> str | None:
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(
            *shlex.split(self.command), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        given = json.dumps(shown_pair(pair), ensure_ascii=False).encode() + b"\n"
        try:
            out, err = await asyncio.wait_for(program.communicate(given), self.timeout)
        except TimeoutError:
            raise pl.Fault("label-timeout", f"no label in {self.timeout:g} s") from None
        finally:
            with suppress(ProcessLookupError):  # what it started ends with it
                os.killpg(program.pid, signal.SIGKILL)
            await program.wait()
        if program.returncode:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise pl.Fault("label-command", f"it ended with {program.returncode}: {last[0]}")
        lines = out.decode(errors="replace").strip().splitlines()
        verdict = read_verdict(lines[-1]) if lines else None
        if verdict is None:
            last_line = lines[-1][:60] if lines else ""
            raise pl.Fault("label-unread", f"it printed {last_line!r}, not first, second or tie")
        return verdict


@pl.stage
class JudgeLabel:
    """A judge that sees each pair in both orders; a pair whose winner changes with the order is a
    tie.
    """

    judge: pl.Pairwise
    at_once: ClassVar[int] = 64

    async def __call__(self, ctx: pl.Context, pair: UnlabelledPair) -> str | None:
        texts = (pair.first, pair.second)
        comparisons = await self.judge.compare_texts(ctx, pair.task, texts, [(0, 1)])
        faults = [x for x in comparisons if isinstance(x, pl.Fault)]
        scores = [
            x.of(0) for x in comparisons if not isinstance(x, pl.Fault) and x.score is not None
        ]
        if not scores:
            raise faults[0] if faults else pl.Fault("judge-unparsed", "no verdict could be read")
        mean = sum(scores) / len(scores)
        return "tie" if mean == 0.5 else "first" if mean > 0.5 else "second"


def labeller_of(text: str) -> tuple[Labeller, str, dict[str, str]]:
    """The labeller that a text names, the file of its labels ("" = that of the run), and the model
    that is loaded for it, by name. Raises UserError where it is none of `FORMS`.
    """
    if text in ("file", "queue", "terminal"):
        kinds: Mapping[str, Labeller] = {
            "file": RecordedLabel(),
            "queue": FileLabel(),
            "terminal": TerminalLabel(),
        }
        return kinds[text], "", {}
    if text.endswith(".jsonl"):
        return FileLabel(), text, {}
    if text.startswith(COMMAND):
        return CommandLabel(text.removeprefix(COMMAND)), "", {}
    if text.startswith("endpoint(") or text == "policy" or Path(text).expanduser().is_dir():
        client, model = pl.services.client_from_text(text, "label")
        return JudgeLabel(pl.Pairwise(client=client)), "", {"label": model} if model else {}
    raise pl.UserError(f"label={text} is no labeller; write {FORMS}")


# ---- the file


def shown_pair(pair: UnlabelledPair) -> dict[str, Any]:
    """What a labeller is shown."""
    asked = pl.tasks.question_text(pair.task)
    return {"prompt": asked, "first": pair.first, "second": pair.second}


class LabelFile:
    """Labels by the id of the pair, in a file of a line each, which a person can fill in and
    correct; without a file they are those of the draw's state.
    """

    def __init__(self, file: Path | None, known: Mapping[str, str]):
        self.file, self.labels, self.asked = file, dict(known), set[str]()
        lines = file.read_text(encoding="utf-8").splitlines() if file and file.is_file() else []
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._read(line, f"{file}:{number}")

    def _read(self, line: str, where: str) -> None:
        try:
            record = json.loads(line)
            key, better = str(record["id"]), record.get("better")
        except (ValueError, TypeError, KeyError, AttributeError):
            raise pl.UserError(
                f"{where}: not a JSON object with an id; mend the line, or remove it"
            ) from None
        self.asked.add(key)
        if better in (None, ""):
            return
        verdict = read_verdict(better)
        if verdict is None:
            raise pl.UserError(f"{where}: better is {better!r}; write first, second or tie")
        self.labels[key] = verdict

    def put(self, pair: UnlabelledPair, better: str | None) -> None:
        """Adds a line; one without a label waits for a person, and is written once."""
        if better is not None:
            self.labels[pair.id] = better
        elif pair.id in self.asked:
            return
        self.asked.add(pair.id)
        if self.file is None:
            return
        record = {"id": pair.id, **shown_pair(pair), "better": better}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(record, ensure_ascii=False) + "\n")
        except OSError as error:
            raise pl.Fault("disk", f"{self.file}: {error.strerror}") from None
