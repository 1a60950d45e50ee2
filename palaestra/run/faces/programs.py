"""Recipes as parts of a longer run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from palaestra.context import Bench, Runnable
from palaestra.errors import UserError
from palaestra.run import programs
from palaestra.run.checks import check_bench
from palaestra.run.faces.situation import RunSituation
from palaestra.run.plan import PartRun, Plan
from palaestra.types import Key, Player, Result

Opened: TypeAlias = tuple[Bench, Mapping[str, Player]]
Drive: TypeAlias = Callable[[Any, Any], Awaitable[Result]]  # a recipe, and the context


@dataclass(kw_only=True)
class RunPrograms(RunSituation):
    """The parts of a longer run, and what it may spend."""

    drive: Drive  # runs a recipe here: `run.driver.train`
    plan: Plan = field(default_factory=Plan)
    planned: Plan | None = None  # the plan before the data left something out of it
    # the folder of a part that cells share; None = each run has its own
    share: Callable[[PartRun], Path] | None = None
    # the bench of a part's own problem, from its settings
    open_problem: Callable[..., Opened] | None = None  # of a problem, and of a recipe
    # and what the numbers on it depend on; see `origin.conditions`
    problem_conditions: Callable[[Mapping[str, str]], dict[str, str]] = dict

    spent: dict[str, float] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )  # by meter
    lines: programs.ProgramLog | None = field(init=False, repr=False, compare=False, default=None)

    async def train(self, recipe: Runnable) -> Result:
        """Runs a recipe in this context."""
        return await self.drive(recipe, self)

    def key(self, *path: int | str) -> Key:
        """The path of a random stream that belongs to this run, part and seed."""
        return (self.seed, *self.place, *path)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Adds a line to metrics.jsonl, for a program: its steps are counted from 1."""
        self.lines = self.lines or programs.ProgramLog(self)
        self.lines.add(metrics)

    @property
    def budget(self) -> Mapping[str, float]:
        """What the run may spend at most, by meter, where that is limited."""
        tokens = {} if self.plan.tokens is None else {"sampled_tokens": self.plan.tokens}
        steps = {} if self.plan.steps is None else {"steps": self.plan.steps}
        return {**tokens, **steps, **self.plan.budget}

    def spend(self, meter: str, amount: float = 1) -> None:
        """Counts what a program takes; the sums stand in its summary as "spent"."""
        self.spent[meter] = self.spent.get(meter, 0) + amount

    async def once(
        self,
        name: str,
        runnable: Runnable | Callable[[], Any],
        model: str | None = None,
        models: Mapping[str, str] | None = None,
        problem: Mapping[str, str] | None = None,
        *,
        shared: bool = False,
        seed: int | None = None,
    ) -> Any:
        """A durable part of a longer run, see `Context.once`.

        `models` are paths of frozen models that the part finds by name, `problem` the settings of
        a problem of its own.
        """
        if not isinstance(runnable, Runnable):
            return await programs.once(self, name, runnable)
        part = PartRun(
            name=name,
            runnable=runnable,
            model=model,
            models=dict(models or {}),
            problem=dict(problem or {}),
            shared=shared,
            seed=seed,
        )
        return await programs.run_part(self, part)

    async def change_problem(
        self, problem: Mapping[str, str], recipe: Runnable | None = None
    ) -> None:
        """Goes on with a problem of its own, as this run was planned before its data was known. `recipe`: what is
        run on it.
        """
        if self.open_problem is None:
            raise UserError(
                f"{programs.named_problem(problem)}: this run's problem is given; leave the part's data or "
                "task out"
            )
        bench, players = self.open_problem(problem, recipe)
        own = self.bench
        bench = replace(
            bench,
            first_held_out=own.first_held_out,
            first_drawn=own.first_drawn,
            data_seed=own.data_seed,
        )
        if bench == own:
            return
        self.bench, self.players = bench, players
        self.plan = self.planned or self.plan
        labels = {**self.plan.labels, "task": programs.named_problem(problem)}
        depends = {**self.plan.conditions, "problem": self.problem_conditions(problem)}
        self.plan = replace(self.plan, labels=labels, conditions=depends)
        await check_bench(self)
