"""What a program finds in its context beside models and problems: lines of its log, parts that are
kept, language models that are asked. A program is anything with `run(ctx)` that is no recipe.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from palaestra.errors import Fault, UserError
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.structured import ask as ask_for_object
from palaestra.store.checkpoint import AppendLog, jsonable, make_folder, write_atomic
from palaestra.types import ChatRequest

if TYPE_CHECKING:
    from pydantic import BaseModel

    from palaestra.context import Source
    from palaestra.run.context import RunContext

    M = TypeVar("M", bound=BaseModel)

FOLDER = "kept"  # in the run folder, of parts that are functions


class Lines:
    """The lines that a program adds to metrics.jsonl. A program that was stopped begins again, and
    so do its lines, after those of the recipe that it trained, if any.
    """

    def __init__(self, ctx: RunContext) -> None:
        self.ctx, self.file = ctx, None if ctx.out is None else ctx.out / "metrics.jsonl"
        self.step = ctx.step + 1 if ctx.optimisers else 0
        if self.file is not None:
            AppendLog(self.file).truncate_after(self.step or -1)

    def add(self, metrics: Mapping[str, Any]) -> None:
        self.step += 1
        record = jsonable({"step": self.step, **metrics})
        if self.file is not None:
            AppendLog(self.file).append(record)
            self.ctx.trackers.log(record)


def total(ctx: RunContext) -> dict[str, float]:
    """What a run has spent by meter, its calls of language models among it."""
    calls = sum(meter.calls for meter in ctx.meters().values())
    found = {**ctx.spent, "calls": ctx.spent.get("calls", 0) + calls}
    return {k: v for k, v in found.items() if v}


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
    kill. So is what it spent.
    """
    file = None if ctx.out is None else ctx.out / FOLDER / f"{name}.json"
    if file is not None and file.is_file():
        found = json.loads(file.read_text())
        for meter, amount in found["spent"].items():
            ctx.spend(meter, amount)
        return found["value"]
    before = total(ctx)
    made = make()
    value = await made if inspect.isawaitable(made) else made
    spent = {k: v - before.get(k, 0) for k, v in total(ctx).items() if v != before.get(k, 0)}
    try:
        text = json.dumps({"value": value, "spent": spent}, allow_nan=True)
    except TypeError as error:
        raise UserError(f"part {name!r} of a program is kept as JSON, and {error}") from None
    if file is not None:
        make_folder(file.parent)
        write_atomic(file, text)
    return json.loads(text)["value"]


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
