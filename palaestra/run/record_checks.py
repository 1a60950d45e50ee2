"""Before the first step: every record of the user's data must fit into the model's context and have an
answer that the reward can read. Those that do not are named together; where `--skip-bad` allows it,
they are left out. Those that are too long are refused, dropped or cut, as `--overlong` says.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from palaestra import values
from palaestra.abilities import ChecksGold, split_size, tools_of
from palaestra.errors import Fault, TooLong, UserError
from palaestra.method import Recipe
from palaestra.rollout.player import shown_tools
from palaestra.rollout.recorded import Demonstrate, Recorded
from palaestra.store.checkpoint import write_atomic
from palaestra.tasks.cuts import Cut, cut_prompt, cut_text
from palaestra.tasks.omissions import RecordFaults
from palaestra.tasks.preflight import TEMPLATED
from palaestra.tasks.tool_data import described_tools
from palaestra.types import Task, ToolSchema

if TYPE_CHECKING:
    from palaestra.tasks.files import FileTasks

RunContext: TypeAlias = Any  # of `run.context`, which imports this
CHECKED = 100_000  # records of a split that are looked at
OMISSIONS = "omissions.jsonl"  # in a run folder: the records that the run does not use
GOLD_SECONDS = 20.0  # for which answers are read; formulas take some milliseconds each


def check_records(
    ctx: RunContext,
    tools: tuple[ToolSchema, ...],
    *,
    golds: bool,
    splits: Sequence[str] = ("train", "test"),
) -> None:
    """Prompts must fit into the model's context, with what describes the tools, and the reward must
    be able to read the answers, `golds`. Of problems that are no data of the user, only the
    training prompts are looked at: the others may have no end.

    Raises:
        UserError: more records are at fault than may be left out.
    """
    prompt = PromptCheck(ctx, tools)
    judge = ctx.bench.reward
    gold = GoldCheck(judge) if golds and isinstance(judge, ChecksGold) else None
    faults = Omissions(ctx)
    splits = [s for s in splits if s == "train" or file_tasks(ctx) is not None]
    for split, i, task in each_task(ctx, splits):
        prompt.look(task)
        try:
            if prompt.is_filtered(task) and not faults.overlong:
                faults.filter(split, i)
                continue
            try:
                prompt.limited(task)
            except TooLong as error:
                cut = cut_prompt(task, prompt.has_room) if faults.overlong == "cut" else None
                if not faults.add_long(split, i, task, error, cut):
                    continue
            if gold is not None:
                gold(task)
        except UserError as error:
            faults.add(split, i, task, error)
    faults.settle(prompt.limit)
    if prompt.marked:
        ctx.say(
            f"data: {prompt.marked:,} prompts hold special tokens of {prompt.model.name} as text, e.g. "
            f"{prompt.example}; they are read as plain letters, so take them out, or write messages"
        )
    if gold is not None and gold.unread:
        ctx.say(
            f"note: the reward read {gold.n:,} answers in {GOLD_SECONDS:g} s and {gold.unread:,} more "
            "are not checked; one that it cannot read ends the run when it is drawn"
        )


async def check_recorded(recipe: Recipe, ctx: RunContext) -> None:
    """What a recipe imitates or compares must be there, and fit into the model's context.

    Raises:
        UserError: more records are at fault than may be left out.
    """
    parts = [p for _, p in values.walk(recipe) if isinstance(p, Demonstrate | Recorded)]
    tasks = file_tasks(ctx)
    if not parts or tasks is None:
        return
    tools, faults = await tools_of(ctx.bench.world), Omissions(ctx)
    shortest = min(ctx.model(part.model).context for part in parts) // 2
    # held-out records are imitated or compared where they have no answers
    splits = ("train",) if tasks.has_answers else ("train", "test")

    def check(part: Demonstrate | Recorded, task: Task, column: str) -> None:
        """Raises UserError for a text that does not fit."""
        # a token is at least a byte, so what is short fits
        schemas, text = tools or described_tools(task), dict(part.texts(task))[column]
        texts = [text, *(m["content"] for m in task.meta.get(f"{column}_before") or ())]
        size = size_of(task, schemas) + sum(len(x.encode()) for x in texts)
        if size >= shortest:
            part.episode(ctx, task, text, schemas, column=column)

    for split, i, task in each_task(ctx, splits):
        try:
            for part, column in ((p, c) for p in parts for c, _ in p.texts(task)):
                try:
                    check(part, task, column)
                except TooLong as error:
                    fits = partial(_raises_nothing, partial(check, part), column)
                    cut = cut_text(task, column, fits) if faults.overlong == "cut" else None
                    if not faults.add_long(split, i, task, error, cut):
                        break
        except UserError as error:
            faults.add(split, i, task, error)
    faults.settle()


def _raises_nothing(check: Callable[[Task, str], None], column: str, task: Task) -> bool:
    try:
        check(task, column)
    except TooLong:
        return False
    return True


def size_of(task: Task, tools: tuple[ToolSchema, ...]) -> int:
    """Bytes of a prompt, with what describes the tools."""
    texts = [x for t in tools for x in (t.name, t.description, t.parameters)]
    return sum(len(text.encode()) for text in (*texts, *(m.content for m in task.prompt)))


class PromptCheck:
    """Whether prompts fit into the policy's context, and into the limit that the user sets."""

    def __init__(self, ctx: RunContext, tools: tuple[ToolSchema, ...]):
        self.model, self.dialect = ctx.model("policy"), ctx.engine().dialect
        self.tools, self.tool_dialect = tools, ctx.bench.dialect
        tasks = file_tasks(ctx)
        self.limit = 0 if tasks is None else tasks.longest
        self.answer = ctx.bench.max_tokens
        self.marked, self.example = 0, ""
        special = [t for t in self.dialect.tokenizer.all_special_tokens if len(t) > 2]
        known = tasks is not None and special
        self.special = re.compile("|".join(map(re.escape, special))) if known else None

    def look(self, task: Task) -> None:
        """Counts prompts with a special token of the model; those with marks of a well-known chat
        template are told by the data itself.
        """
        if self.special is None:
            return
        texts = [m.content for m in task.prompt]
        match = next((m for text in texts if (m := self.special.search(text))), None)
        if match is not None and not any(map(TEMPLATED.search, texts)):
            self.marked += 1
            self.example = self.example or f"{match[0]!r} of task {task.id!r}"

    def limited(self, task: Task) -> None:
        """Raises UserError for a prompt that leaves no room for an answer, or is longer than what the
        user wants.
        """
        self(task)
        if self.is_filtered(task):
            raise TooLong(f"task {task.id!r}: its prompt has more than {self.limit} tokens")

    def has_room(self, task: Task) -> bool:
        """Whether a prompt that is cut is short enough: within the user's limit, and an answer of
        the run's length fits behind it, of half the context at most.
        """
        context = self.model.context
        room = context - min(self.answer, context // 2)
        return self.tokens(task) <= min(room, self.limit or room)

    def is_filtered(self, task: Task) -> bool:
        """Whether a prompt is longer than what the user wants to train on."""
        return bool(self.limit) and self.tokens(task) > self.limit

    def __call__(self, task: Task) -> None:
        """Raises UserError for a prompt that leaves no room for an answer."""
        tools = self.tools or described_tools(task)
        if size_of(task, tools) < self.model.context // 2:
            return  # a token is at least a byte
        n = self.tokens(task)
        if n >= self.model.context:
            with_tools = " with its tools" if tools else ""
            raise TooLong(
                f"task {task.id!r}: its prompt{with_tools} has {n} tokens, and the context of "
                f"{self.model.name} holds {self.model.context}; shorten it, or leave it out"
            )

    def tokens(self, task: Task) -> int:
        tools = self.tools or described_tools(task)
        prompt, left = shown_tools(task.prompt, tools, self.tool_dialect, first=True)
        heard = self.dialect.extend(prompt, first=True, closed=False, tools=left)
        return sum(len(p.ids) for p in heard)


class GoldCheck:
    """Whether a reward can read the answers, for some seconds."""

    def __init__(self, judge: ChecksGold):
        self.judge, self.seconds = judge, 0.0
        self.n = self.unread = 0

    def __call__(self, task: Task) -> None:
        """Raises UserError for an answer that the reward cannot read."""
        if self.seconds > GOLD_SECONDS:
            self.unread += 1
            return
        begin = time.perf_counter()
        try:
            with suppress(Fault):  # the judge is out of order, and no record at fault
                self.judge.check_gold(task)
        except UserError as error:
            raise UserError(f"task {task.id!r}: {error}") from None
        finally:
            self.n += 1
            self.seconds += time.perf_counter() - begin


class Omissions:
    """Records that are not used as they are: those at fault, those that a filter leaves out, and
    those that are too long and cut.
    """

    def __init__(self, ctx: RunContext):
        self.ctx, self.faults = ctx, RecordFaults()
        tasks = file_tasks(ctx)
        self.overlong = "" if tasks is None else tasks.overlong
        self.dropped: list[tuple[tuple[str, int], str]] = []  # and why
        self.cuts: dict[tuple[str, int], tuple[Cut, ...]] = {}
        self.at_fault: list[tuple[str, int]] = []
        self.filtered: list[tuple[str, int]] = []

    def add(self, split: str, index: int, task: Task, error: UserError) -> None:
        self.at_fault.append((split, index))
        self.cuts.pop((split, index), None)
        self.faults.add(f"task {task.id!r}", error)

    def add_long(self, split: str, index: int, task: Task, error: TooLong, cut: Cut | None) -> bool:
        """Takes a record that is too long. Whether it is cut, and so used."""
        if cut is not None:
            self.cuts[split, index] = (*self.cuts.get((split, index), ()), cut)
            return True
        if self.overlong == "drop":
            self.dropped.append(((split, index), str(error).removeprefix(f"task {task.id!r}: ")))
        else:
            self.add(split, index, task, error)
        return False

    def filter(self, split: str, index: int) -> None:
        self.filtered.append((split, index))

    def _list(self, tasks: FileTasks, limit: int) -> Iterator[tuple[str, str]]:
        """The places of these records in their files, and why they are not used."""
        splits = tasks.splits()
        reasons = [text for _, text in self.faults.reasons]
        reasons += [f"its prompt has more than {limit} tokens"] * len(self.filtered)
        gone = [*self.at_fault, *self.filtered, *(place for place, _ in self.dropped)]
        reasons += [reason for _, reason in self.dropped]
        for (split, i), reason in zip(gone, reasons, strict=True):
            part = splits[split]
            yield part.records.where(int(part.rows_N[i])), reason

    def settle(self, limit: int = 0) -> None:
        """Says what is left out, and leaves it out. Raises UserError where it may not be.

        Args:
            limit: tokens of the prompts that a filter lets through.
        """
        tasks = file_tasks(self.ctx)
        of = sum(split_size(self.ctx.bench.tasks, s) or 0 for s in ("train", "test"))
        skip, most = ("", 0) if tasks is None else (tasks.skip, tasks.omissions_left)
        line = self.faults.settle(skip, of, most, advise=tasks is not None)
        if tasks is None:
            return
        if self.cuts:
            self.ctx.say(
                f"data: {len(self.cuts):,} of {of:,} records are too long and cut, {self._ends()} "
                "(--overlong cut)"
            )
            self.ctx.bench = replace(self.ctx.bench, tasks=tasks.with_cuts(self.cuts))
        if not (self.at_fault or self.filtered or self.dropped):
            return
        if line:
            self.ctx.say(f"data: {line}")
        if self.filtered:
            self.ctx.say(
                f"data: {len(self.filtered):,} of {of:,} prompts have more than {limit:,} tokens and "
                "are left out (--max-prompt-tokens)"
            )
        if self.dropped:
            self.ctx.say(
                f"data: {len(self.dropped):,} of {of:,} records are too long and left out "
                "(--overlong drop)"
            )
        self.ctx.omissions.extend(self._list(tasks, limit))
        gone = [*self.at_fault, *self.filtered, *(place for place, _ in self.dropped)]
        self.ctx.bench = replace(self.ctx.bench, tasks=self.ctx.bench.tasks.without(gone))

    def _ends(self) -> str:
        """Which end of what is cut is gone."""
        places = [place for cuts in self.cuts.values() for place, _ in cuts]
        prompts = any(isinstance(x, int) for x in places)
        texts = sorted({x for x in places if isinstance(x, str)})
        return " and ".join(
            [
                *(["prompts at their beginning"] if prompts else []),
                *([f"{', '.join(texts)} at the end"] if texts else []),
            ]
        )


def write_omissions(ctx: RunContext) -> None:
    """Lists the records that the run does not use in `omissions.jsonl` of its folder, one a line:
    `place` in the data, and `reason`. No file where all are used, and none of a run without folder.
    """
    if ctx.out is None:
        return
    tasks, path = file_tasks(ctx), ctx.out / OMISSIONS
    unread = [f for part in tasks.splits().values() for f in part.faults] if tasks else []
    listed = dict.fromkeys([*unread, *ctx.omissions])  # splits of one file share its faults
    if not listed:
        return path.unlink(missing_ok=True)
    text = "".join(
        json.dumps({"place": place, "reason": reason}, ensure_ascii=False) + "\n"
        for place, reason in listed
    )
    if not path.exists() or path.read_text() != text:
        write_atomic(path, text)
        n = len(listed)
        which = "1 record that is" if n == 1 else f"{n:,} records that are"
        ctx.say(f"data: {path} lists the {which} left out")


def file_tasks(ctx: RunContext) -> FileTasks | None:
    """The user's records, None where the problem is another."""
    from palaestra.tasks.files import FileTasks

    return ctx.bench.tasks if isinstance(ctx.bench.tasks, FileTasks) else None


def each_task(ctx: RunContext, splits: Sequence[str]) -> Iterator[tuple[str, int, Task]]:
    """The tasks that are looked at, with their split and number."""
    tasks = file_tasks(ctx)
    every = tasks is not None and (tasks.skip or tasks.longest or tasks.overlong)
    for split in splits:
        size = split_size(ctx.bench.tasks, split) or 0
        for i in range(size if every else min(size, CHECKED)):
            yield split, i, ctx.bench.tasks.task(split, i)
