"""Proofs by a plan: a planner splits a theorem into subgoals, provers close them, a cache is shared."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np

import palaestra as pl
from palaestra.recipes.inference.bfs_prover_v2.search import TacticSearch, statement

MOST_SUBGOALS = 6


class Planner(Protocol):
    """Splits what is left to prove. Called with (ctx, kernel, state, failed): statements, in order, that
    lead to the first goal of `state`; `failed` are those that could not be proven.
    """

    async def __call__(
        self,
        ctx: pl.Context,
        kernel: pl.services.ProofKernel,
        state: pl.services.ProofState,
        failed: Sequence[str],
    ) -> list[str]: ...


@pl.stage
class Undivided:
    """No plan: the theorem is searched whole."""

    async def __call__(
        self,
        ctx: pl.Context,
        kernel: pl.services.ProofKernel,
        state: pl.services.ProofState,
        failed: Sequence[str],
    ) -> list[str]:
        return []


@pl.stage
class PlanByRule:
    """For the built-in kernel: a -> b & c becomes a -> b and a -> c, a | b -> c becomes a -> c and
    b -> c, below further premises too. The parts hold exactly where the whole does. A part that failed is
    split in turn.
    """

    async def __call__(
        self,
        ctx: pl.Context,
        kernel: pl.services.ProofKernel,
        state: pl.services.ProofState,
        failed: Sequence[str],
    ) -> list[str]:
        _, target = pl.services.read_goal(state.goals[0])
        whole = [pl.services.read_formula(text) for text in failed] or [target]
        parts = [part for formula in whole for part in split_formula(formula)]
        texts = [pl.services.formula_text(part) for part in parts]
        return [t for t in dict.fromkeys(texts) if t not in failed]


def split_formula(formula: pl.services.Formula) -> list[pl.services.Formula]:
    """Formulas that together say the same; none where no rule splits it."""
    if isinstance(formula, str) or formula[0] == "|":
        return []
    sign, a, b = formula
    if sign == "&":
        return [a, b]
    if not isinstance(a, str) and a[0] == "|":
        return [("->", a[1], b), ("->", a[2], b)]
    return [("->", a, part) for part in split_formula(b)]


@pl.stage
class PlanByModel:
    """A language model writes the subgoals, a line each behind `have:`."""

    client: pl.Source

    async def __call__(
        self,
        ctx: pl.Context,
        kernel: pl.services.ProofKernel,
        state: pl.services.ProofState,
        failed: Sequence[str],
    ) -> list[str]:
        lines = [
            f"This is left to prove:\n\n{state.goals[0]}\n",
            f"Write up to {MOST_SUBGOALS} intermediate statements that lead to it in order, the easiest "
            f"first, each on a line of its own behind `have:`. {kernel.subgoal_rules} Prove nothing.",
        ]
        if failed:
            failures = "\n".join(failed)
            lines.append(f"These could not be proven; correct them or split them:\n{failures}")
        reply = await ctx.ask(self.client, "\n".join(lines), seed=len(failed))
        return read_subgoals(reply)


def read_subgoals(reply: str) -> list[str]:
    """The statements behind `have:` of a planner's reply."""
    lines = [line.strip().strip("`").lstrip("-*0123456789.) ") for line in reply.splitlines()]
    stated = [
        line.partition(":")[2].strip(" `") for line in lines if line.lower().startswith("have")
    ]
    return [s for s in dict.fromkeys(stated) if s][:MOST_SUBGOALS]


@pl.value_class
class ProofReport:
    """A theorem, its proof (None where none was found), and what it took."""

    theorem: str
    script: tuple[str, ...] | None
    openings: int
    subgoals: int = 0
    cached: int = 0
    replans: int = 0
    failed: tuple[str, ...] = field(default=())


class ProofCache:
    """Scripts by the goal that they close, with its hypotheses: what holds under other hypotheses is
    another goal.
    """

    def __init__(self) -> None:
        self.scripts: dict[str, tuple[str, ...]] = {}

    def close(
        self, kernel: pl.services.ProofKernel, state: pl.services.ProofState
    ) -> pl.services.ProofState | None:
        """The state after the script that is known for its first goal, run by the kernel."""
        script = self.scripts.get(state.goals[0])
        return None if script is None else run_script(kernel, state, script)


def run_script(
    kernel: pl.services.ProofKernel, state: pl.services.ProofState, script: Sequence[str]
) -> pl.services.ProofState | None:
    """The state after all tactics, where these close its first goal; else None."""
    most = len(state.goals) - 1
    for tactic in script:
        (after,) = kernel.step(state, [tactic])
        if not isinstance(after, pl.services.ProofState):
            return None
        state = after
    return state if len(state.goals) <= most else None


class PlannedProof:
    """One theorem: the plan, the provers, and what is left of the budget."""

    def __init__(self, ctx: pl.Context, exam: "PlannedProofs", task: pl.Task, cache: ProofCache):
        self.ctx, self.exam, self.task, self.cache = ctx, exam, task, cache
        self.kernel, self.left = exam.search.kernel, exam.openings
        self.subgoals = self.cached = self.replans = self.searches = 0
        self.failed: list[str] = []

    async def prove(self) -> ProofReport:
        theorem = statement(self.task)
        state = await asyncio.to_thread(self.kernel.start, theorem)
        plan = await self._plan(state, ())
        while True:
            state, missing = await self._close_subgoals(state, plan)
            end = (
                await self._close(state, self.left) if not missing or not self._may_replan else None
            )
            if end is not None or not self._may_replan:
                break
            self.replans += 1
            plan = await self._plan(state, missing)
            if not plan:
                end = await self._close(state, self.left)
                break
        script = None
        if end is not None and await asyncio.to_thread(self.kernel.accepts, theorem, end.script):
            script = end.script
        return ProofReport(
            theorem=theorem,
            script=script,
            openings=self.exam.openings - self.left,
            subgoals=self.subgoals,
            cached=self.cached,
            replans=self.replans,
            failed=tuple(self.failed),
        )

    @property
    def _may_replan(self) -> bool:
        return self.replans < self.exam.replans and self.left > 0

    async def _plan(self, state: pl.services.ProofState, failed: Sequence[str]) -> list[str]:
        """New subgoals as the kernel spells them; what it does not read is left out."""
        stated = await self.exam.planner(self.ctx, self.kernel, state, failed)
        spelled = [self.kernel.normal(s) for s in stated]
        return [s for s in dict.fromkeys(spelled) if s and s not in self.failed][:MOST_SUBGOALS]

    async def _close_subgoals(
        self, state: pl.services.ProofState, plan: Sequence[str]
    ) -> tuple[pl.services.ProofState, list[str]]:
        """The state with the subgoals that were proven as hypotheses, and those that were not."""
        missing = list[str]()
        for i, subgoal in enumerate(plan):
            (assumed,) = await asyncio.to_thread(
                self.kernel.step, state, [self.kernel.assume(subgoal)]
            )
            if not isinstance(assumed, pl.services.ProofState):
                continue
            closed = await self._close(assumed, self.left // (len(plan) - i + 1))
            if closed is None:
                missing.append(subgoal)
            else:
                state, self.subgoals = closed, self.subgoals + 1
        self.failed += missing
        return state, missing

    async def _close(
        self, state: pl.services.ProofState, openings: int
    ) -> pl.services.ProofState | None:
        """The state after its first goal is closed: by what the cache knows, else by the provers, each of
        which has an equal part of the openings; the shortest of their proofs is taken.
        """
        known = await asyncio.to_thread(self.cache.close, self.kernel, state)
        if known is not None:
            self.cached += 1
            return known
        each = [n for i in range(self.exam.provers) if (n := _part(openings, self.exam.provers, i))]
        self.searches += 1
        keys = [self.ctx.key("plan", self.task.id, self.searches, i) for i in range(len(each))]
        made = await asyncio.gather(
            *(self.exam.search(self.ctx, k, state, n) for k, n in zip(keys, each, strict=True))
        )
        self.left -= sum(s.openings for s in made)
        scripts = [s.script for s in made if s.script is not None]
        if not scripts:
            return None
        script = min(scripts, key=len)
        self.cache.scripts[state.goals[0]] = script
        return await asyncio.to_thread(run_script, self.kernel, state, script)


def _part(openings: int, provers: int, i: int) -> int:
    """What one of the provers may open; the first ones get what is left over."""
    return openings // provers + (i < openings % provers)


@pl.stage
class PlannedProofs:
    """A program: proves held-out theorems by plans and parallel searches within `openings` each, and
    writes `proofs.jsonl`. Every proof is run again by the kernel from its statement.

    Its summary has

        proved     share of the theorems
        length     mean tactics of a proof
        openings   states that were opened for a theorem
        subgoals   proven, a theorem; `cached` goals that the shared cache closed; `replans`

    Args:
        search: how a prover searches.
        planner: who splits a theorem.
        openings: of states, for a theorem.
        provers: searches that attack a subgoal at a time.
        replans: of a theorem, at most.
        tasks: held-out theorems.
    """

    search: TacticSearch
    planner: Planner
    openings: int = 64
    provers: int = 2
    replans: int = 2
    tasks: int = 32

    async def run(self, ctx: pl.Context) -> pl.Result:
        metrics = await ctx.once("answers", lambda: self._measure(ctx))
        path = ctx.folder / "proofs.jsonl" if ctx.out is not None else None
        artifacts = {"proofs": str(path)} if path is not None else {}
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens}, artifacts=artifacts
        )

    async def _measure(self, ctx: pl.Context) -> dict[str, Any]:
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        if not tasks:
            raise pl.UserError("there are no held-out theorems; give some with --test-data")
        cache, reports = ProofCache(), list[ProofReport]()
        for task in tasks:  # one after the other, so that each finds what the cache learned
            reports.append(await PlannedProof(ctx, self, task, cache).prove())
        if ctx.out is not None:
            with open(ctx.folder / "proofs.jsonl", "w") as file:
                file.writelines(_line(r) for r in reports)
        ctx.spend("openings", sum(r.openings for r in reports))
        lengths = [len(r.script) for r in reports if r.script is not None]
        mean = lambda name: float(np.mean([getattr(r, name) for r in reports]))
        metrics = {
            "proved": len(lengths) / len(reports),
            "length": float(np.mean(lengths)) if lengths else 0.0,
            **{name: mean(name) for name in ("openings", "subgoals", "cached", "replans")},
        }
        ctx.log(metrics)
        return metrics


def _line(report: ProofReport) -> str:
    row = {
        "theorem": report.theorem,
        "proved": report.script is not None,
        "proof": list(report.script or ()),
        "openings": report.openings,
    }
    return json.dumps(row) + "\n"
