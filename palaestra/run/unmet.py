"""Before a model is loaded: what a method needs of its user and did not get."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from palaestra import catalogue
from palaestra.abilities import split_size
from palaestra.curriculum.arms import arms_of
from palaestra.errors import UserError
from palaestra.needs.declared import (
    NeededColumn,
    NeededModel,
    NeededPlace,
    Requirements,
    fits,
    holds,
    is_required,
)
from palaestra.needs.rows import columns_of
from palaestra.services.chat.named import is_endpoint, scoring_from_text
from palaestra.settings import overrides
from palaestra.settings.fields import VALUE, Settings
from palaestra.suggest import close_names
from palaestra.tasks.columns import META, USES
from palaestra.tasks.files import RECORDED_COLUMNS, UNLABELLED
from palaestra.tasks.formats import BEFORE, WRITTEN
from palaestra.types import Task

if TYPE_CHECKING:
    from palaestra.context import Bench

LOOKED_AT = 64  # tasks, to see which columns they have


def needs_of_recipe(method: str) -> Requirements | None:
    """What the card of a method says; None = a recipe that is a value, or a file without a card."""
    if method == VALUE:
        return None
    card = getattr(catalogue.find(method), "CARD", None)
    return None if card is None else card.needs


def arguments_of_run(takes: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a method's `build`, defaults included."""
    own = {name: p.default for name, p in takes.items() if p.default is not Parameter.empty}
    return own | {name: value for name, value in given.items() if name in takes}


def needs_under(
    method: str, words: Mapping[str, Any]
) -> tuple[Requirements, dict[str, Any], dict[str, Any]]:
    """What a method needs under arguments of its `build`: the needs, these arguments as they are
    read, and all of its arguments. Raises UserError for one that it has not.
    """
    takes = overrides.arguments(method)
    if unknown := [w for w in words if w not in takes]:
        raise UserError(f"{method} has no argument {unknown[0]!r}; it has {', '.join(takes)}")
    read, _ = overrides.read_arguments(takes, words)
    return needs_of_recipe(method) or Requirements(), read, arguments_of_run(takes, read)


def check_models(settings: Settings, arguments: Mapping[str, Any]) -> None:
    """Raises UserError for the first model that the method cannot act without, or has no use for, and for
    a flag of methods that are guided where this is none. It comes before data are read: a judge
    stands for the answers that they lack.
    """
    needs = needs_of_recipe(settings.recipe)
    guided = needs is not None and bool(needs.flags)
    for flag in ("env", "goal", "llm") if guided else ("goal", "llm"):
        if getattr(settings, flag):
            raise UserError(
                f"{settings.recipe} has no use for --{flag}; `palaestra needs {settings.recipe}` says "
                "what it takes"
            )
    if needs is not None:
        refuse(settings, unmet_models(needs, settings, arguments))
        refuse(settings, idle_model(needs, settings, arguments))


def check_needs(settings: Settings, bench: Bench, arguments: Mapping[str, Any]) -> None:
    """Raises UserError, in one line, for the first column or place, or number of tasks, that the
    method cannot act without.
    """
    needs = needs_of_recipe(settings.recipe)
    if needs is not None:
        refuse(settings, unmet(needs, settings, bench, arguments))


def partly_there(settings: Settings, bench: Bench, arguments: Mapping[str, Any]) -> Iterator[str]:
    """Columns that the method reads and some of the user's first records lack, or all have under a
    name in capitals, a line each.
    """
    needs = needs_of_recipe(settings.recipe)
    if needs is None or not settings.data:
        return
    tasks = first_tasks(bench)
    names = dict.fromkeys(str(k) for t in tasks for k in t.meta)
    world = settings.env and not settings.in_code
    for column in columns_of(needs, arguments):
        lack = len(tasks) - len(values_of(tasks, column.name))
        same = [n for n in names if n != column.name and n.strip().casefold() == column.name]
        if lack == len(tasks) and same:
            yield (
                f"note: the column {same[0]!r} is not read as {column.name!r}: "
                f"{column.otherwise or column.meaning}; --columns {same[0].strip()}={use_of(column)} reads it"
            )
        if 0 < lack < len(tasks) and not column.or_else and not world:
            yield (
                f"note: {lack} of the first {len(tasks)} records have no {column.name!r}: "
                f"{column.otherwise or column.meaning}"
            )


def refuse(settings: Settings, missing: Iterator[str]) -> None:
    """Raises UserError with the first line of what is missing, unless the user goes on anyway."""
    line = None if settings.anyway else next(missing, None)
    if line:
        raise UserError(f"{settings.recipe} {line}; --anyway goes on without")


def unmet_models(
    needs: Requirements, settings: Settings, arguments: Mapping[str, Any]
) -> Iterator[str]:
    """Models that are missing, a line each."""
    for model in needs.models:
        given = arguments.get(model.argument)
        if model.reads_tokens and isinstance(given, str) and is_endpoint(given):
            scoring_from_text(given, model.argument)
            if not model.scores:
                yield (
                    f"takes no endpoint as its {model.role}, which {model.meaning} by token ids; give "
                    f"{needs.way(model.argument, model.example)}"
                )
        inert = arguments.get(model.argument) == model.inert and not settings.embedded
        brought = settings.task.partition("(")[0] in model.built_in
        if inert and not brought and is_required(model, arguments):
            yield missing_model(model, needs)


def idle_model(
    needs: Requirements, settings: Settings, arguments: Mapping[str, Any]
) -> Iterator[str]:
    """That a model is given to a method which trains and measures none, and asks another one."""
    roles = [m.argument for m in needs.models]
    asked = any(getattr(arguments.get(role), "model", "") == "policy" for role in roles)
    if not needs.policy and not asked and settings.model != Settings().model:
        cure = (
            f"; {needs.way(roles[0], settings.model)} names the one that it asks" if roles else ""
        )
        yield f"has no use for --model, as no language model learns in it{cure}"


def unmet(
    needs: Requirements, settings: Settings, bench: Bench, arguments: Mapping[str, Any]
) -> Iterator[str]:
    """What else is missing, a line each."""
    own = bool(settings.data or settings.env or settings.task)
    for place in needs.places if own else ():
        if is_required(place, arguments) and not is_there(place, settings):
            yield missing_place(place)
    if settings.data and (not settings.env or settings.in_code):
        yield from unmet_columns(needs, settings, bench, arguments)
        yield from unjudged(needs, settings, bench, arguments)
    if own:
        yield from too_few(needs, bench)


def missing_model(model: NeededModel, needs: Requirements) -> str:
    way = needs.way(model.argument, model.example)
    return f"needs a {model.role}, which {model.words}: {way}"


def is_there(place: NeededPlace, settings: Settings) -> bool:
    """Whether the run has it, by a flag or in a built-in problem."""
    given = {
        "environment": settings.env,
        "game": settings.env,
        "simulator": settings.env,
        "tools": settings.tools or settings.env,
        "reward": settings.reward,
        "graph": settings.graph or settings.env,
        "documents": settings.docs or settings.env or settings.tools,
    }
    elsewhere = ":" in settings.task and not settings.task.startswith("rg:")
    named = any(settings.task.partition("(")[0] == name for name in place.built_in)
    acts = place.kind in ("environment", "game", "simulator")
    has = any(given[kind] for kind in (place.kind, *place.also))
    return has or named or (acts and elsewhere)


def missing_place(place: NeededPlace) -> str:
    built_in = f", or --task {place.built_in[0]}" if place.built_in else ""
    return f"needs {_article(place.kind)}, {place.meaning}: {place.ways}{built_in}"


def _article(kind: str) -> str:
    if kind in ("tools", "documents"):
        return kind
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def unmet_columns(
    needs: Requirements, settings: Settings, bench: Bench, arguments: Mapping[str, Any]
) -> Iterator[str]:
    """Columns that no row has, or that hold something else."""
    tasks = first_tasks(bench)
    for column in columns_of(needs, arguments):
        values = values_of(tasks, column.name)
        other = values_of(tasks, column.or_else) if column.or_else else []
        if not values and not other and not column.otherwise:
            yield missing_column(column, settings.data, tasks)
        if column.type == "text" and values_of(tasks, f"{column.name}_before"):
            yield (
                f"reads the column {column.name!r} as one text, and records of {settings.data} have several "
                "messages there after the prompt; leave the last one"
            )
        wrong = [x for x in values if not fits(x, column.type)]
        if wrong and column.name not in ("prompt", "answer"):
            yield (
                f"reads the column {column.name!r} ({column.meaning}) as {column.type}, e.g. "
                f"{json.dumps(column.examples[0], ensure_ascii=False)}, and a record of "
                f"{settings.data} has {str(wrong[0])[:60]!r}"
            )


def values_of(tasks: list[Task], column: str) -> list[Any]:
    """What the tasks that have a column have in it."""
    return [x for x in (value_of_task(t, column) for t in tasks) if x is not None]


def first_tasks(bench: Bench) -> list[Task]:
    size = split_size(bench.tasks, "train") or 0
    return [bench.tasks.task("train", i) for i in range(min(size, LOOKED_AT))]


def unjudged(
    needs: Requirements, settings: Settings, bench: Bench, arguments: Mapping[str, Any]
) -> Iterator[str]:
    """Data without answers, whose columns the method reads under another argument: recorded pairs,
    where answers would be sampled that nothing judges.
    """
    tasks = first_tasks(bench)
    reads = any(c.name == "answer" for c in columns_of(needs, arguments))
    if settings.reward or not reads or any(t.answer is not None for t in tasks):
        return
    for column in needs.columns:
        if values_of(tasks, column.name) and not holds(column.when, arguments):
            words = " ".join(f"{name}={values[0]}" for name, values in column.when.items())
            yield (
                f"samples answers and compares them by a reward, and no record of {settings.data} "
                f"has an answer; {words} learns from its column {column.name!r} instead, "
                "--reward FILE.py:NAME judges what is sampled"
            )
    yield from _uncompared(needs, settings.data, tasks)


def _uncompared(needs: Requirements, data: str, tasks: list[Task]) -> Iterator[str]:
    """Pairs that nobody has compared, of which a method that does not read them learns nothing."""
    names = {c.name for c in needs.columns}
    others = [n for columns in RECORDED_COLUMNS if columns != UNLABELLED for n in columns]
    pairs = values_of(tasks, UNLABELLED[0])
    if pairs and not names & set(UNLABELLED) and not any(values_of(tasks, n) for n in others):
        yield (
            f"learns from answers, and {data} has pairs that nobody has compared, the columns "
            f"{' and '.join(UNLABELLED)}; add a column `answer`, judge with --reward FILE.py:NAME, or "
            "have the pairs compared: `palaestra train sharpe-active label=terminal`"
        )


def value_of_task(task: Task, column: str) -> Any:
    """What a task has of a column; None = nothing. Messages are those of a conversation."""
    if column == "messages":
        messages = [{"role": m.role, "content": m.shown} for m in task.prompt]
        return (messages or None) if task.conversational else None
    own = {"prompt": task.prompt or None, "answer": task.answer, "domain": task.domain or None}
    # pictures stand in the prompt, whatever column or part of a message they came from
    own["image"] = next((m.pictures for m in task.prompt if m.pictures), None)
    return own[column] if column in own else task.meta.get(column)


def missing_column(column: NeededColumn, data: str, tasks: list[Task]) -> str:
    own = {f"{use}{BEFORE}" for use in WRITTEN}  # parts of other columns
    names = list(dict.fromkeys(str(k) for t in tasks for k in t.meta if k not in own))
    near = close_names(column.name, names)
    which = near[0] if near else "COLUMN"
    has = f" (it has {', '.join(names[:8])})" if names and not near else ""
    if column.name in ("chosen", "rejected") and {"response", "right"} <= set(names):
        return (
            f"needs pairs, the columns chosen and rejected, and {data} has labels without pairs; "
            "`palaestra train kto` and `palaestra train bco` learn from these"
        )
    other = f", or the column {column.or_else!r}" if column.or_else else ""
    return (
        f"needs the column {column.name!r}, {column.meaning}{other}, and no record of {data} has it{has}: "
        f"--columns {which}={use_of(column)} says which one it is"
    )


def use_of(column: NeededColumn) -> str:
    """What `--columns` calls it."""
    return column.name if column.name in USES else f"{META}{column.name}"


def too_few(needs: Requirements, bench: Bench) -> Iterator[str]:
    """Where there is less of something than the method acts on."""
    counts = {"tasks": split_size(bench.tasks, "train"), "domains": len(arms_of(bench.tasks))}
    for what, least in needs.least.items():
        n = counts[what]
        if n is not None and n < least:
            yield f"needs {least} {what} or more, and {bench.name} has {n}"
