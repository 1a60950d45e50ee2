"""What a program finds in its context beside models and problems: lines of its log, parts that are
kept, language models that are asked. A program is anything with `run(ctx)` that is no recipe.
"""

from __future__ import annotations

import fcntl
import inspect
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from palaestra.errors import Fault, UserError
from palaestra.models.load import frozen_copy, trainable_copy
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.structured import ask as ask_for_object
from palaestra.store.checkpoint import AppendLog, jsonable, make_folder, write_atomic
from palaestra.store.folder import SUMMARY, read_summary
from palaestra.types import ChatRequest, Result

if TYPE_CHECKING:
    from pydantic import BaseModel

    from palaestra.context import Source
    from palaestra.run.plan import PartRun

    M = TypeVar("M", bound=BaseModel)

RunContext: TypeAlias = Any  # of `run.context`, which imports this
FOLDER = "kept"  # in the run folder, of parts that are functions
COPIED = ("metrics.jsonl", SUMMARY)  # of a part that cells share, the sign that it is over last


class ProgramLog:
    """The lines that a program adds to metrics.jsonl. A program that was stopped begins again, and
    so do its lines, after those of the recipe that it trained, if any.
    """

    def __init__(self, ctx: RunContext) -> None:
        self.ctx, self.file = ctx, None if ctx.out is None else ctx.out / "metrics.jsonl"
        self.step = 0
        if self.file is not None and not ctx.optimisers:
            AppendLog(self.file).truncate_after(-1)
        elif self.file is not None and (last := AppendLog(self.file).last()):
            self.step = last["step"]  # a recipe that goes on has cut off what came after it

    def add(self, metrics: Mapping[str, Any]) -> None:
        self.step += 1
        record = jsonable({"step": self.step, **metrics})
        if self.file is not None:
            AppendLog(self.file).append(record)
            self.ctx.trackers.log(record)


def total(ctx: RunContext) -> dict[str, float]:
    """What a run has spent by meter, its calls of language models among it."""
    calls = sum(meter.calls for meter in ctx.meters().values())
    spent = {**ctx.spent, "calls": ctx.spent.get("calls", 0) + calls}
    return {k: v for k, v in spent.items() if v}


def spend_all(ctx: RunContext, amounts: Mapping[str, float]) -> None:
    """Counts what a part took."""
    for meter, amount in amounts.items():
        ctx.spend(meter, amount)


def check_budget(ctx: RunContext) -> dict[str, float]:
    """What was spent. Raises Fault "budget" where that is more than the run may spend: what it found
    cannot be compared.
    """
    spent = total(ctx)
    for meter, most in ctx.plan.budget.items():
        if spent.get(meter, 0) > most:
            raise Fault("budget", f"{spent[meter]:,.0f} {meter} were spent, and {most:,.0f} may be")
    return spent


async def once(ctx: RunContext, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, as it is read from JSON: the same whether it was made now or before a
    kill. So is what it spent. What was made for another number of steps is made anew.
    """
    file = None if ctx.out is None else ctx.out / FOLDER / f"{name}.json"
    steps = ctx.budget.get("steps")
    if file is not None and file.is_file():
        record = json.loads(file.read_text())
        if record.get("steps") == steps:
            spend_all(ctx, record["spent"])
            return record["value"]
        ctx.say(f"{name} was made for another number of steps and is made anew")
    before = total(ctx)
    made = make()
    value = await made if inspect.isawaitable(made) else made
    spent = {k: v - before.get(k, 0) for k, v in total(ctx).items() if v != before.get(k, 0)}
    try:
        text = json.dumps({"value": value, "spent": spent, "steps": steps}, allow_nan=True)
    except TypeError as error:
        raise UserError(f"part {name!r} of a program is kept as JSON, and {error}") from None
    if file is not None:
        make_folder(file.parent)
        write_atomic(file, text)
    return json.loads(text)["value"]


def named_problem(problem: Mapping[str, str]) -> str:
    """What a part's own problem is called."""
    return problem.get("task") or problem.get("data", "")


async def run_part(ctx: RunContext, part: PartRun) -> Result:
    """Runs a part in its folder, or finds what it gave there. One that cells share lies in a folder
    of theirs, and what the run reads of it is copied.
    """
    if ctx.out is None:
        return await make_part(ctx, part, None)
    own = ctx.out / part.name
    own.mkdir(parents=True, exist_ok=True)
    place = ctx.share(part) if part.shared and ctx.share is not None else own
    with locked(place):
        if not (place / SUMMARY).is_file():
            await make_part(ctx, part, place)
    for name in COPIED if place != own else ():
        if (place / name).is_file():
            write_atomic(own / name, (place / name).read_bytes())
    summary = read_summary(place)
    spend_all(ctx, summary.pop("spent", {}))
    return Result(artifacts=summary.pop("artifacts"), metrics=summary)


@contextmanager
def locked(place: Path) -> Generator[None]:
    """While a part is made, nobody else makes it."""
    make_folder(place)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def make_part(ctx: RunContext, part: PartRun, out: Path | None) -> Result:
    """Runs a part, from its model, on its problem and with its seed."""
    start = ctx.model("policy")
    policy = ctx.load(part.model, ctx.lora) if part.model else trainable_copy(start)
    policy.recompute, policy.offload = start.recompute, start.offload
    models = {"policy": policy, **{n: frozen_copy(ctx.load(p)) for n, p in part.models.items()}}
    child = replace(ctx, out=out, models=models, place=(*ctx.place, part.name))
    if part.seed is not None:
        bench = replace(ctx.bench, first_held_out=0, first_drawn=0, data_seed=None)
        child = replace(child, seed=part.seed, bench=bench, place=(part.name,))
    ctx.say(f"part {part.name}" + (f" on {named_problem(part.problem)}" if part.problem else ""))
    try:
        if part.problem:
            await child.change_problem(part.problem, part.runnable)
        result = await part.runnable.run(child)
    finally:
        child.close()
    spent = total(child)
    if out is None:
        spend_all(ctx, spent)
        return result
    labels = {k: v for k, v in child.plan.labels.items() if not k.endswith("command")}
    whole = {**labels, "part": part.name, **result.metrics, "artifacts": dict(result.artifacts)}
    whole |= {"spent": spent} if spent else {}
    write_atomic(out / SUMMARY, json.dumps(whole, indent=1))
    ctx.trackers.finish(whole)
    return result


def request_of(question: str | ChatRequest, seed: int = 0) -> ChatRequest:
    if isinstance(question, ChatRequest):
        return replace(question, seed=seed) if seed else question
    return ChatRequest(messages=question_messages(question), seed=seed)


async def ask(
    ctx: RunContext, source: Source, question: str | ChatRequest, *, seed: int = 0
) -> str:
    """The reply of a source's model."""
    return (await ctx.client(source).chat(request_of(question, seed))).text


async def ask_for(
    ctx: RunContext,
    source: Source,
    question: str | ChatRequest,
    form: type[M],
    *,
    asks: int = 2,
    fallback: M | None = None,
) -> M:
    """The reply as an object, or the fallback for one that does not fit."""
    try:
        return await ask_for_object(ctx.client(source), request_of(question), form, asks=asks)
    except Fault as fault:
        if fallback is None or fault.cause != "chat-format":
            raise
        ctx.spend("fallbacks")
        return fallback
