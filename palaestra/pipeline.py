"""Several runs, each starting from what an earlier one made: an acyclic `{name: Part}`, in the order written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palaestra.types import Result, Runnable, UserError, value

if TYPE_CHECKING:
    from palaestra.runtime.context import Context


@dataclass(frozen=True, slots=True)
class Output:
    """An artifact of an earlier part: the model of its learner."""

    part: str
    artifact: str = "policy"


@dataclass(frozen=True)
class Part:
    """A runnable and the model its policy starts from; None = the run's own."""

    runnable: Runnable
    model: Output | None = None


@value
class Pipeline:
    """Runs its parts in order; the result is the last one's, with every part's metrics under its name."""

    parts: Mapping[str, Part]

    def __post_init__(self) -> None:
        if not self.parts:
            raise UserError("a pipeline needs at least one part")
        seen: set[str] = set()
        for name, part in self.parts.items():
            if part.model is not None and part.model.part not in seen:
                raise UserError(
                    f"pipeline part {name!r} starts from {part.model.part!r}, which does not come before it"
                )
            seen.add(name)

    async def run(self, ctx: Context) -> Result:
        results: dict[str, Result] = {}
        for name, part in self.parts.items():
            source = results[part.model.part].artifacts[part.model.artifact] if part.model else None
            results[name] = await ctx.once(name, part.runnable, source)
        first, last = list(results.values())[0], list(results.values())[-1]
        metrics = {**last.metrics, "accuracy_before": first.metrics.get("accuracy_before", {})}
        metrics["parts"] = {n: dict(r.metrics) for n, r in results.items()}
        metrics["sampled_tokens"] = sum(r.metrics.get("sampled_tokens", 0) for r in results.values())
        return Result(metrics=metrics, artifacts=last.artifacts)
