"""Before the first step of a run: what is to be said of its problem, and what stops it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from palaestra import values
from palaestra.abilities import (
    Answers,
    Notes,
    ReadsAnswers,
    Remarks,
    split_size,
    tools_of,
)
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.objective.divergence import TOP
from palaestra.rollout.collect import Sample
from palaestra.run.measuring import refuse_pictures, refuse_temperature
from palaestra.run.names_read import check_names_read
from palaestra.run.record_checks import check_records
from palaestra.sounds import Sound
from palaestra.tasks.repeats import caveat
from palaestra.types import World

if TYPE_CHECKING:
    from palaestra.context import Bench
    from palaestra.tasks.oracle import Finding, Payer

RunContext: TypeAlias = Any  # of `run.context`, which imports this
FIRST_RECORDS = 64  # of a split, whose sounds are looked at before the first step
PROBE = "2 + 2 = 4"  # what an endpoint is asked about before the first step
ORACLE_TASKS = 16  # whose gold answers are checked before the first step


@runtime_checkable
class ChecksStart(Protocol):
    """A part of a method that looks at the run's problem before the first step. Without it what is wrong
    is met when it is drawn.
    """

    async def check_start(self, ctx: RunContext) -> None:
        """Says what the user should know. Raises UserError where nothing can be learned."""
        ...


def say_notes(ctx: RunContext) -> None:
    """What is to be said of the data, and of the model's chat template."""
    tasks = ctx.bench.tasks
    for note in tasks.notes if isinstance(tasks, Notes) else ():
        ctx.say(f"data: {note}")
    dialect = ctx.engine().dialect
    for note in dialect.notes if isinstance(dialect, Notes) else ():
        ctx.say(f"note: {note}")


def say_copied(ctx: RunContext) -> None:
    """Of an index of the user's: that queries are copied from what they shall find."""
    from palaestra.services.index import BM25
    from palaestra.worlds.copied import MOST, copied_note

    index, tasks = getattr(ctx.bench.world, "retriever", None), ctx.bench.tasks
    if isinstance(index, BM25) and index.shuffle is None:
        size = min(split_size(tasks, "train") or MOST, MOST)
        if note := copied_note((tasks.task("train", i) for i in range(size)), index):
            ctx.say(f"data: {note}")


async def check_bench(ctx: RunContext) -> None:
    """Before the first step: what is to be said of the problem, and whether its golds are paid
    best.
    """
    from palaestra.tasks.oracle import (
        demonstrations_paid_less,
        find_problems,
        says_its_form,
        whole_reply,
    )
    from palaestra.worlds.question import Question
    from palaestra.worlds.tools import WithTools

    bench: Bench = ctx.bench
    tasks, world = bench.tasks, bench.world
    ctx.planned = ctx.plan
    say_notes(ctx)
    for line in await world.remarks() if isinstance(world, Remarks) else ():
        ctx.say(f"note: {line}")
    say_copied(ctx)
    if ctx.plan.evaluate and split_size(tasks, "test") == 0:
        ctx.say("note: no problem is held out, so none is evaluated; --test-data FILE gives some")
        ctx.plan = replace(ctx.plan, evaluate=0)
    tools = await tools_of(world)
    has_reward = ctx.bench.reward is not None or not isinstance(world, Question | WithTools)
    if isinstance(tasks, Answers) and not (tasks.has_answers and has_reward):
        ctx.say(
            f"note: the records of {ctx.bench.name} have no answer, so no answers to held-out "
            "problems are judged"
        )
        ctx.plan = replace(ctx.plan, answers=False)
        return check_records(ctx, tools, golds=False)
    size = split_size(ctx.bench.tasks, "test")
    if size is not None and size < ctx.plan.evaluate:
        held_out = "1 problem is" if size == 1 else f"{size} problems are"
        ctx.say(f"note: {held_out} held out, so no more are evaluated")
    if ctx.plan.evaluate and (known := caveat(ctx.bench.tasks, ctx.plan.evaluate)):
        ctx.say(f"note: {known}")
        ctx.plan = replace(ctx.plan, labels={**ctx.plan.labels, "caveat": known})
    check_records(ctx, tools, golds=True)
    tasks = ctx.bench.tasks  # some may be left out
    judge = ctx.bench.reward if ctx.bench.reward is not None else world
    if ctx.bench.reward is None and len(world.seats) > 1:
        return  # in a game no seat can be sure to win
    if isinstance(ctx.bench.reward, ReadsAnswers) and not ctx.bench.reward.reads_answers:
        return ctx.say("note: the reward reads no answer, so no gold answer is checked by it")
    dialect = ctx.engine().dialect
    encode = whole_reply(dialect.encode_text, dialect.end)
    findings = await find_problems(tasks, judge, ORACLE_TASKS, ctx=ctx, encode=encode)
    tell_or_stop(ctx, findings, judge)
    if isinstance(judge, World) or not says_its_form(judge):
        return
    if line := await demonstrations_paid_less(tasks, judge, ORACLE_TASKS, ctx=ctx, encode=encode):
        ctx.say(f"oracle check: {line}")


def tell_or_stop(ctx: RunContext, findings: Sequence[Finding], judge: Payer) -> None:
    """Says what the check of golds found. Stops where all are judged wrongly by what knows how
    they are written.
    """
    from palaestra.tasks.oracle import CONSTANT, how_it_was_tried, merge_alike, says_its_form

    more = f" (and {len(findings) - 1} more)" if findings[1:] else ""
    if findings and not says_its_form(judge):
        ctx.say(f"oracle check: {findings[0].line}{more}")
        return ctx.say(f"oracle check: {how_it_was_tried()}")
    constant = any(each.kind == CONSTANT for each in findings)
    if len(findings) >= ORACLE_TASKS or constant:
        why = ": nothing can be learned" if constant else more
        raise UserError(f"the oracle check failed: {findings[0].line}{why}")
    for line in merge_alike(findings):
        ctx.say(f"oracle check: {line}")


async def check_problem(recipe: Recipe, ctx: RunContext) -> None:
    """What stops a recipe on the problem of a run: a name that nobody writes, a picture or sound that
    is not seen or heard, or an endpoint that does not score what is sampled. Raises UserError.
    """
    check_names_read(recipe, ctx.bench)
    check_temperature(recipe, ctx)
    check_pictures(recipe, ctx)
    check_endpoints(recipe, ctx)
    await check_starts(recipe, ctx)


async def check_starts(recipe: Recipe, ctx: RunContext) -> None:
    """What parts of the method look at themselves, each once. Raises UserError."""
    parts = list[ChecksStart]()
    for _, part in values.walk(recipe):
        if isinstance(part, ChecksStart) and part not in parts:
            parts.append(part)
            await part.check_start(ctx)


def check_pictures(recipe: Recipe, ctx: RunContext) -> None:
    """Where a run's first problem holds a picture, its policy and references must see: UserError.
    An endpoint that scores tokens is sent their ids alone.
    """
    if split_size(ctx.bench.tasks, "train") == 0:
        return
    prompt = ctx.bench.tasks.task("train", 0).prompt
    pictures = [p for m in prompt for p in m.pictures]
    check_sounds(ctx)
    if not pictures:
        return
    ctx.engine().dialect.extend(prompt, first=True, closed=False)
    for name in recipe.references:
        if name in ctx.scorers:
            refuse_pictures(name)
        for picture in pictures if name in ctx.models else ():
            ctx.model(name).places(picture)


def check_temperature(recipe: Recipe, ctx: RunContext) -> None:
    """Raises UserError where the policy's answers are sampled at another temperature than that of an
    endpoint that scores them. Greedy ones may be a baseline, which nobody scores.
    """
    scored = [name for name in recipe.references if name in ctx.scorers]
    for path, part in values.walk(recipe.collect) if scored else ():
        if isinstance(part, Sample) and part.model == "policy" and part.temperature not in (0, 1):
            refuse_temperature(scored[0], f"collect.{path} has {part.temperature}; ")


def check_endpoints(recipe: Recipe, ctx: RunContext) -> None:
    """Asks each endpoint once what it will be asked in training, of a short text. Raises UserError if
    it does not answer, cannot say it, or has another tokenizer.
    """
    for name in recipe.references:
        if name in ctx.scorers:
            needs = [q for x in recipe.learners.values() for m, q in x.needs if m == name]
            tops = [int(q.partition(":")[2]) for q in needs if q.startswith(f"{TOP}:")]
            ctx.scorers[name]([ctx.dialect(name).encode_text(PROBE)], max(tops, default=0))


def check_sounds(ctx: RunContext) -> None:
    """Whether the policy can hear the sounds of the first records of both splits. Raises UserError,
    with the record's name.
    """
    tasks, model = ctx.bench.tasks, ctx.models.get("policy")
    if model is None:
        return
    for split in ("train", "test"):
        for i in range(min(split_size(tasks, split) or 0, FIRST_RECORDS)):
            task = tasks.task(split, i)
            for sound in (p for m in task.prompt for p in m.pictures if isinstance(p, Sound)):
                try:
                    model.places(sound)
                except UserError as error:
                    raise UserError(f"task {task.id!r}: {error}") from None
