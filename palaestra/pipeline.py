"""Several runs, each starting from what an earlier one made: an acyclic `{name: Part}`, in the
order written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaestra.context import Runnable
from palaestra.ends import kinds_of, with_before
from palaestra.errors import UserError
from palaestra.types import Result, seed_of, value_class

if TYPE_CHECKING:
    from palaestra.context import Programs


@dataclass(frozen=True, slots=True)
class Output:
    """An artifact of an earlier part: the model of its learner, or a file that a program made."""

    part: str
    artifact: str = "policy"


@dataclass(frozen=True)
class Part:
    """A runnable and the model its policy starts from: what an earlier part made, or a folder or a
    name as --model takes it; None = the run's own.

    Args:
        models: frozen ones that it finds by name, given alike.
        data: problems of its own, as --data names them, or a file that an earlier part made; "" =
            the run's. With `test_data` and `columns`, as the flags of these names. On a command
            line they are `PART.data=FILE`.
        task: a problem of its own, as --task names it.
        env: where the questions of this task, or of these documents, are asked, as --env names it.
        docs: documents of its own, in which the questions of its data are asked, as --docs names them, or a
            file that an earlier part made; searched as the run's own where it has some.
        shared: in experiments it is run once, for all cells whose part has the same settings,
            start, problem and seed: what it samples counts in each of them.
        seed: of its own, so that cells of all seeds share it; None = the run's.
            A word makes one of the run's seed, so that two parts that are alike are two runs.
    """

    runnable: Runnable
    model: Output | str | None = None
    models: Mapping[str, Output | str] = field(default_factory=dict)
    data: str | Output = ""
    test_data: str = ""
    columns: str = ""
    task: str = ""
    env: str = ""
    docs: str | Output = ""
    shared: bool = False
    seed: int | str | None = None

    def seed_in(self, run: int) -> int | None:
        """The seed of its own in a run of this seed; None = the run's."""
        return seed_of((run, self.seed)) % (1 << 31) if isinstance(self.seed, str) else self.seed

    @property
    def problem(self) -> Mapping[str, str]:
        """The settings of its own problem; nothing where it is the run's. What an earlier part
        makes is named after that.
        """
        if self.data and self.task:
            raise UserError("a part of a pipeline has both data and a task; give it one of them")
        if self.task:
            return {"task": self.task, **({"env": self.env} if self.env else {})}
        if not self.data:
            if self.test_data or self.columns:
                raise UserError(
                    "a part of a pipeline has test_data or columns and no data; give it data too"
                )
            return {}
        data, docs = (
            x if isinstance(x, str) else f"{x.part}/{x.artifact}" for x in (self.data, self.docs)
        )
        own = {"data": data, "test_data": self.test_data, "columns": self.columns}
        return {**own, "docs": docs, "env": self.env} if docs else own

    @property
    def sources(self) -> tuple[Output, ...]:
        """What it takes from earlier parts."""
        given = (self.model, *self.models.values(), self.data, self.docs)
        return tuple(x for x in given if isinstance(x, Output))


@dataclass(frozen=True)
class WithModels:
    """A program with further frozen models, which it finds by name: "policy" = a copy of the start,
    else a name or folder.
    """

    program: Runnable
    models: Mapping[str, str]

    async def run(self, ctx: Any) -> Result:
        for name, source in self.models.items():
            ctx.reference(name, source)
        return await self.program.run(ctx)


@value_class
class Pipeline:
    """Runs its parts in order; the result is the last one's, with every part's metrics under its
    name.
    """

    parts: Mapping[str, Part]

    def __post_init__(self) -> None:
        if not self.parts:
            raise UserError("a pipeline needs at least one part")
        seen: set[str] = set()
        for name, part in self.parts.items():
            for source in part.sources:
                if source.part not in seen:
                    raise UserError(
                        f"pipeline part {name!r} starts from {source.part!r}, which does not come "
                        "before it"
                    )
            seen.add(name)

    async def run(self, ctx: Programs) -> Result:
        results: dict[str, Result] = {}
        problems = {name: part.problem for name, part in self.parts.items()}
        for name, part in self.parts.items():
            start = _path(results, part.model) if part.model else None
            models = {n: _path(results, source) for n, source in part.models.items()}
            made = {"data": part.data, "docs": part.docs}
            files = {n: _path(results, x) for n, x in made.items() if isinstance(x, Output)}
            problems[name] = {**problems[name], **files}
            results[name] = await ctx.once(
                name,
                part.runnable,
                start,
                models,
                problems[name],
                shared=part.shared,
                seed=part.seed_in(ctx.seed),
            )
        *_, (end, last) = results.items()
        kinds = kinds_of(last.metrics)
        first = next(
            r
            for n, r in results.items()
            if problems[n] == problems[end] and (n == end or kinds & kinds_of(r.metrics))
        )
        moved = _differ(first, last, "problem")
        metrics = with_before(last.metrics, {} if moved else first.metrics)
        if changed := _changes(results, problems):
            metrics["changed"] = changed
        metrics["parts"] = {n: dict(r.metrics) for n, r in results.items()}
        metrics["sampled_tokens"] = sum(
            r.metrics.get("sampled_tokens", 0) for r in results.values()
        )
        return Result(metrics=metrics, artifacts=last.artifacts)


def _made_with(result: Result) -> Mapping[str, str]:
    """The digests of what a part was made with, by kind; empty for a program that says nothing."""
    return result.metrics.get("made_with", {})


def _differ(before: Result, after: Result, kind: str) -> bool:
    """Whether two parts were made with different things of a kind, as far as both say with what."""
    one, other = _made_with(before).get(kind), _made_with(after).get(kind)
    return bool(one and other) and one != other


def _changes(
    results: Mapping[str, Result], problems: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """What was changed on the way, inside parts and between them; a program that says nothing of what
    it was made with is passed over.
    """
    changed: list[dict[str, Any]] = []
    end = list(results)[-1]
    last_part = ""  # the last part that said it
    for name, result in results.items():
        inside = result.metrics.get("changed", ())
        if last_part and not any(x.get("after") for x in inside):
            changed += _changes_between(results, problems, last_part, name, end)
        changed += [{**x, "after": f"{x['after']} of part {name}"} for x in inside]
        last_part = name if _made_with(result) else last_part
    return changed


def _changes_between(
    results: Mapping[str, Result],
    problems: Mapping[str, Mapping[str, str]],
    name: str,
    following: str,
    end: str,
) -> list[dict[str, Any]]:
    """What was changed between two parts: one entry, or none. Another problem counts for the whole only
    if it is that of the part `end`."""
    before = results[name]
    kinds = ("method", "problem") if problems[name] == problems[following] else ("method",)
    what = [f"the {kind}" for kind in kinds if _differ(before, results[following], kind)]
    if not what:
        return []
    problem = problems[name] == problems[end] and _differ(before, results[end], "problem")
    return [{"after": f"part {name}", "problem": problem, "what": what}]


def _path(results: Mapping[str, Result], source: Output | str) -> str:
    if isinstance(source, str):
        return source
    artefacts = results[source.part].artifacts
    if source.artifact not in artefacts:
        has = ", ".join(artefacts) or "none; a run without a folder keeps no models"
        raise UserError(
            f"pipeline part {source.part!r} has made no {source.artifact!r}; there are {has}"
        )
    return artefacts[source.artifact]


def warm(
    start: Runnable, task: str = "", *, seed: int | None = None, model: Output | None = None
) -> Part:
    """The part of a pipeline that comes before what is compared: a warm start, which the arms of an
    experiment share.

    Args:
        start: what is learned, e.g. `vary(recipe("sft"), schedule=Schedule(steps=35))`. Under a budget
            of tokens, as an experiment has, steps end what samples nothing; what samples goes on for
            all of the budget, which each part has to itself.
        task: a problem of its own; "" = the run's.
        seed: of its own; then the cells of all seeds begin with the same weights, and what differs
            between them is what came after. None = the run's.
        model: what it starts from in turn; None = the run's start.
    """
    return Part(start, model=model, task=task, shared=True, seed=seed)
