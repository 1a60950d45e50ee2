"""A column of the user's records that language models write: hints, keys, traces, criteria.

    draw = WrittenColumn("hint", "{prompt}\\n\\nThe answer is {answer}. Write a hint.", (writer,))

The models are asked for the records that lack the column, once for each record. What they write
stands in `written/COLUMN.jsonl` of the run folder, a record a line with all of its columns, where a
person can read and correct it: a run that goes on reads that file again, and another run trains on
it as its `--data`, without a model that writes.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from palaestra.curriculum.pool import Shuffled
from palaestra.declared import COMMON_COLUMNS, DeclaredName
from palaestra.errors import Fault, UserError
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.local import LocalModel
from palaestra.tasks.oracle import episode_saying
from palaestra.types import (
    SOLVED_TOTAL,
    ChatRequest,
    Group,
    Key,
    Reward,
    State,
    Task,
    need_at_least,
    seed_of,
    stage,
)
from palaestra.verifiers.base import strip_thinking

if TYPE_CHECKING:
    from palaestra.context import AsyncDraw, Context, Draw, Source

FOLDER = "written"  # in the run folder
BY_MODEL = "written_columns"  # the task's column that names those which a model wrote
ROUNDS = 8  # draws in place of records that no model could write
NAMED = re.compile(r"\{(\w+)\}")

# (reply, task) -> the value; None = the reply cannot be used
ReadReply: TypeAlias = Callable[[str, Task], Any]
# the values of the writers in their order, None where one has none -> the value; None = they have none
JoinValues: TypeAlias = Callable[[Sequence[Any]], Any]


def reply_text(reply: str, task: Task) -> str | None:
    """The reply behind its thinking; None where it is empty."""
    return strip_thinking(reply).strip() or None


def first_value(values: Sequence[Any]) -> Any:
    """The value of the first writer that has one."""
    return next((x for x in values if x is not None), None)


def dialogue_text(task: Task) -> str:
    """What a task asks: its message, or all of its messages with the role of each in front."""
    if len(task.prompt) == 1:
        return task.prompt[0].text
    return "\n".join(f"{m.role}: {m.text}" for m in task.prompt)


def fill_template(template: str, task: Task) -> str:
    """The template with {prompt}, {answer} and {COLUMN} of the task in their places; other braces
    stay. Raises UserError for a column that the task does not have.
    """
    columns = {**task.meta, "prompt": dialogue_text(task), "answer": task.answer}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if columns.get(name) is None:
            raise UserError(f"task {task.id!r} has no {name!r}, which a model is asked about")
        return str(columns[name])

    return NAMED.sub(value, template)


def frozen_starts(*sources: Source | None) -> dict[str, str]:
    """References of a recipe for the clients that are models of the run by a name of their own:
    each is a frozen copy of the start, unless the command line names a model in its place.
    """
    local = (x.model for x in sources if isinstance(x, LocalModel))
    return {name: "policy" for name in local if name != "policy"}


@stage
class WrittenColumn:
    """Draws as `source` does. A record without the column gets the value that the `writers` write.

    Each writer is asked `ask`, up to `tries` times with other random numbers, until `join` makes a
    value of what `read` reads in the replies. A record of which nobody can write it is not drawn,
    or is drawn without it (`keep`). Records that are asked the same have the same value.

    The state counts the records "asked" of and "failed" at. Metrics: `written/COLUMN` is the share
    of prompts whose value a model wrote, `unwritten/COLUMN` that of the records asked of so far
    that no model could write.

    Args:
        ask: the question; {prompt}, {answer} and other columns by their names are filled in.
        read: makes a value of a reply.
        join: makes one value of those of all writers.
        solved: a value, which is a text then, stays only if the problem's reward calls it right.
        ahead: the column of so many of the next records is written before the first step.

    Raises:
        Fault: no writer answered, or none of the records drawn could be written.
    """

    column: str
    ask: str
    writers: tuple[Source, ...]
    read: ReadReply = reply_text
    join: JoinValues = first_value
    solved: bool = False
    tries: int = 2
    keep: bool = False
    ahead: int = 0
    source: Draw | AsyncDraw = Shuffled()
    temperature: float = 1.0
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        need_at_least(self, tries=1, ahead=0)
        if not self.writers:
            raise UserError(f"WrittenColumn: nobody writes {self.column!r}; give a writer")

    @property
    def writes_columns(self) -> tuple[DeclaredName, ...]:
        own = DeclaredName(self.column, object, "what a model wrote")
        return COMMON_COLUMNS.get(self.column, own), COMMON_COLUMNS[BY_MODEL]

    async def __call__(
        self, ctx: Context, key: Key, n: int, state: State
    ) -> tuple[list[Task], State]:
        state = {"asked": 0, "failed": 0, "inner": {}, **state}
        if self.ahead and not state["asked"]:
            first, _ = await self._draw(ctx, key, self.ahead, state["inner"])
            _, state = await self._write_all(ctx, first, state)
        tasks = list[Task]()
        for at in range(ROUNDS):
            drawn, inner = await self._draw(ctx, (*key, at), n - len(tasks), state["inner"])
            whole, state = await self._write_all(ctx, drawn, {**state, "inner": inner})
            tasks += whole
            if len(tasks) == n:
                return tasks, state
        raise Fault(
            "starved",
            f"no writer could write {self.column!r} of {state['failed']} records; "
            f"see {FOLDER}/{self.column}.failed.jsonl, or use a larger model",
        )

    async def _draw(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        drawn = self.source(ctx, key, n, state)
        return await drawn if inspect.isawaitable(drawn) else drawn

    async def _write_all(
        self, ctx: Context, tasks: Sequence[Task], state: State
    ) -> tuple[list[Task], State]:
        """The tasks with their column, without those of which nobody can write it."""
        lacking = {i: fill_template(self.ask, t) for i, t in enumerate(tasks) if not self._has(t)}
        store = WrittenValues(ctx.out, self.column, state.get("values", {}))
        keys = {
            i: f"{seed_of(('written', asked)) % (1 << 48):012x}" for i, asked in lacking.items()
        }
        first = dict[str, int]()
        for i, k in keys.items():
            if k not in store.values:
                first.setdefault(k, i)
        asked = await asyncio.gather(
            *(self._value(ctx, tasks[i], lacking[i]) for i in first.values())
        )
        faults = [x for x in asked if isinstance(x, Fault)]
        if faults and len(faults) == len(asked):
            raise faults[0]
        for (k, i), value in zip(first.items(), asked, strict=True):
            if not isinstance(value, Fault):
                store.put(k, tasks[i], value)
        state = {**state, "asked": state["asked"] + len(asked)}
        state["failed"] += sum(x is None or isinstance(x, Fault) for x in asked)
        if ctx.out is None:
            state["values"] = store.values
        share = state["failed"] / max(1, state["asked"])
        whole = list[Task]()
        for i, task in enumerate(tasks):
            value = store.values.get(keys[i]) if i in keys else None
            if value is not None:
                by_model = {**task.meta.get(BY_MODEL, {}), self.column: share}
                task = replace(task, meta={**task.meta, self.column: value, BY_MODEL: by_model})
            if value is not None or i not in keys or self.keep:
                whole.append(task)
        return whole, state

    def _has(self, task: Task) -> bool:
        return task.meta.get(self.column) not in (None, "", [], ())

    async def _value(self, ctx: Context, task: Task, asked: str) -> Any:
        """What the writers write; None where nothing can be used, a Fault where none answered."""
        fault: Fault | None = None
        for attempt in range(self.tries):
            request = ChatRequest(
                messages=question_messages(asked),
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                seed=seed_of((ctx.seed, "written", asked, attempt)) % (1 << 31),
            )
            replies = await asyncio.gather(
                *(self._reply(ctx, writer, request) for writer in self.writers)
            )
            came = [x for x in replies if not isinstance(x, Fault)]
            fault = None if came else next(x for x in replies if isinstance(x, Fault))
            values = [None if isinstance(x, Fault) else self.read(x, task) for x in replies]
            value = self.join(values)
            if value is not None and await self._is_right(ctx, task, value):
                return value
        return fault

    async def _reply(self, ctx: Context, writer: Source, request: ChatRequest) -> str | Fault:
        try:
            return await ctx.ask(writer, request)
        except Fault as fault:
            return fault

    async def _is_right(self, ctx: Context, task: Task, value: Any) -> bool:
        if not self.solved:
            return True
        if ctx.bench.reward is None:
            raise UserError(
                f"{ctx.bench.name}: nothing says which {self.column} is right; give answers, or "
                "--reward FILE.py:NAME"
            )
        group = Group(task=task, episodes=(episode_saying(str(value)),))
        (verdict,) = await ctx.verdicts(ctx.bench.reward, group)
        if not isinstance(verdict, Reward):
            return False
        return verdict.total >= SOLVED_TOTAL if verdict.solved is None else verdict.solved


class WrittenValues:
    """The values that were written, by the key of what was asked; None = it could not be written.

    With a run folder they lie in two files there, which hold the records for people to read: what
    was written, and what could not be. Without one they are those of the draw's state.
    """

    def __init__(self, out: Path | None, column: str, known: Mapping[str, Any]):
        self.column = column
        self.folder = None if out is None else out / FOLDER
        self.values = dict(known)
        if self.folder is not None:
            self.values |= dict.fromkeys(self._read(self._file(failed=True)))
            self.values |= self._read(self._file())

    def _file(self, failed: bool = False) -> Path:
        assert self.folder is not None
        return self.folder / f"{self.column}{'.failed' if failed else ''}.jsonl"

    def _read(self, file: Path) -> dict[str, Any]:
        values = dict[str, Any]()
        lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                values[str(record["id"]).rpartition("/")[2]] = record.get(self.column)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise UserError(
                    f"{file}:{number}: not a JSON object with an id; mend the line, or remove it to "
                    "have it written again"
                ) from None
        return values

    def put(self, key: str, task: Task, value: Any) -> None:
        self.values[key] = value
        if self.folder is None:
            return
        record = record_of(task) | {"id": f"{task.id}/{key}"}
        record |= {} if value is None else {self.column: value}
        file = self._file(failed=value is None)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(record, ensure_ascii=False) + "\n")
        except OSError as error:
            raise Fault("disk", f"{file}: {error.strerror}") from None


def record_of(task: Task) -> dict[str, Any]:
    """A task as a record of a data file. A column that JSON cannot hold is left out."""
    one = len(task.prompt) == 1 and task.prompt[0].role == "user"
    asked: dict[str, Any] = (
        {"prompt": task.prompt[0].text}
        if one
        else {"messages": [{"role": m.role, "content": m.text} for m in task.prompt]}
    )
    answer = {} if task.answer is None else {"answer": task.answer}
    domain = {"domain": task.domain} if task.domain else {}
    meta = {k: v for k, v in task.meta.items() if k != BY_MODEL and _is_plain(v)}
    return {**asked, **answer, **domain, **meta}


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
