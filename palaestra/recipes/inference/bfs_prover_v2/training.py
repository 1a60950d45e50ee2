"""What BFS-Prover-V2 learns from: the tactics of proofs, filtered by how sure the model was."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.inference.bfs_prover_v2.search import (
    Searched,
    TacticSearch,
    question,
    statement,
)


def kept_ranks(perplexities: Sequence[float], low: float, high: float) -> list[int]:
    """Numbers of those between the quantiles `low` and `high`: of n, floor(low n) of the smallest and
    floor((1 - high) n) of the largest are left out, of equal ones the first and the last.
    """
    n = len(perplexities)
    order = np.argsort(np.asarray(perplexities, np.float64), kind="stable").tolist()
    first, last = int(low * n + 1e-9), n - int((1 - high) * n + 1e-9)
    return sorted(order[first:last])


def check_band(band: tuple[float, float]) -> None:
    """Raises UserError where it is none."""
    if not 0 <= band[0] < band[1] <= 1:
        raise pl.UserError(
            f"band={band[0]:g},{band[1]:g} is no range of quantiles; write for instance band=0.2,0.8"
        )


@pl.declare(
    facts=(
        ("perplexity", float, "of the tactic under the model that said it"),
        ("proved", bool, "whether a proof of its theorem was found"),
        ("on_path", bool, "whether the tactic stands in that proof"),
    )
)
@pl.stage
class ProveTheorem:
    """Searches for a proof of the task's theorem. Each tactic that was tried becomes an answer; those
    that stand in no proof, or in one that the kernel did not take as a whole, are muted.
    """

    search: TacticSearch
    openings: int = 16

    @property
    def n(self) -> int:
        """Tactics that are sampled for a theorem at most."""
        return self.openings * self.search.tactics

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        searched = await prove(ctx, key, self.search, group.task, self.openings)
        proved = searched.script is not None
        episodes = list[pl.Episode]()
        for t in searched.tried:
            made = pl.recorded_episode(
                ctx, self.search.model, t.prompt, t.tactic, float(t.on_path), of="a tactic"
            )
            facts = {"perplexity": t.perplexity, "proved": proved, "on_path": t.on_path}
            episodes.append(replace(made, facts=facts, muted=not t.on_path))
        return replace(group, episodes=(*group.episodes, *episodes))


@pl.stage
class OnProofPath:
    """1 for a tactic that stands in a proof, else 0."""

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        return [pl.Reward(total=float(e.facts["on_path"])) for e in group.episodes]


async def prove(
    ctx: pl.Context, key: pl.Key, search: TacticSearch, task: pl.Task, openings: int
) -> Searched:
    """A search for a theorem whose proof counts only where the kernel takes all of it again."""
    theorem = statement(task)
    start = await asyncio.to_thread(search.kernel.start, theorem)
    searched = await search(ctx, key, start, openings)
    if searched.script is None or not await asyncio.to_thread(
        search.kernel.accepts, theorem, searched.script
    ):
        wrong = tuple(replace(t, on_path=False) for t in searched.tried)
        return replace(searched, script=None, tried=wrong)
    return searched


@pl.stage
class PerplexityBand:
    """A link of credit: mutes those tactics of found proofs whose perplexity lies outside the quantiles
    `low` to `high` of the batch. What is below is known already, what is above is noise. Logs `filtered`,
    the share that it muted, and `proved`, the share of theorems that were.
    """

    low: float = 0.2
    high: float = 0.8

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        learned = [i for i, e in enumerate(table.episodes) if not e.muted]
        kept = kept_ranks(
            [table.episodes[i].facts["perplexity"] for i in learned], self.low, self.high
        )
        for i in set(learned) - {learned[k] for k in kept}:
            table.mute(i)
        share = 1 - len(kept) / len(learned) if learned else 0.0
        groups = [any(e.facts["proved"] for e in g.episodes) for g in table.groups]
        for name, number in (("filtered", share), ("proved", float(np.mean(groups or [0])))):
            all_E = np.full(len(table.episodes), number)
            table.track(name, pl.Values(level="episode", x_N=all_E))
        return x


@pl.stage
class CollectProofs:
    """A program: proves training theorems again, the shortest proof of several searches each, and
    writes the tactics that lie in the band as `tactics.jsonl`: prompt, demonstration, theorem, step.

    Its summary has `proved`, the share of theorems, `steps` and `length`, the mean of the proofs.

    Args:
        search: how; its model is the policy of this part.
        openings: of each search.
        searches: of each theorem; 0 = only written proofs are taken.
        band: quantiles of the perplexity.
        tasks: theorems at most.
        written: the column `demonstration`, else the source's own proof, is taken too.
    """

    search: TacticSearch
    openings: int = 16
    searches: int = 2
    band: tuple[float, float] = (0.2, 0.8)
    tasks: int = 512
    written: bool = False

    async def run(self, ctx: pl.Context) -> pl.Result:
        if ctx.out is None:
            raise pl.UserError(
                "bfs-prover-v2 keeps its proofs in the run folder; give one with out="
            )
        path = ctx.folder / "tactics.jsonl"
        metrics = await ctx.once("proofs", lambda: self._collect(ctx, str(path)))
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens},
            artifacts={"tactics": str(path)},
        )

    async def _collect(self, ctx: pl.Context, path: str) -> dict[str, Any]:
        n = pl.curriculum.count_tasks(self.tasks, ctx.bench.tasks.size, self.tasks)
        first = pl.curriculum.first_number(ctx)
        tasks = [ctx.bench.tasks.task("train", first + i) for i in range(n)]
        each = await asyncio.gather(*(self._proof(ctx, task) for task in tasks))
        proofs = [(task, s) for task, s in zip(tasks, each, strict=True) if s is not None]
        path_steps = [t for _, s in proofs for t in s.tried if t.on_path]
        kept = {
            id(path_steps[i]) for i in kept_ranks([t.perplexity for t in path_steps], *self.band)
        }
        rows = [
            self._row(task, t.prompt[-1].content, t.tactic, i)
            for task, s in proofs
            for i, t in enumerate(x for x in s.tried if x.on_path)
            if id(t) in kept
        ]
        lengths = [len(s.script or ()) for _, s in proofs]
        if self.written:
            made = [await asyncio.to_thread(self._written, ctx, task) for task in tasks]
            rows += [row for steps in made for row in steps]
        rows = _without_repeats(rows)
        if len(rows) < 2:  # one of them is held out
            raise pl.UserError(
                f"proofs of {len(proofs)} in {n} theorems were found, with {len(rows)} tactics in the band: "
                "too little to learn from; start from a model that writes tactics, give proofs in the "
                "column demonstration (proofs=true), or raise openings"
            )
        with open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        numbers = {
            "proved": len(proofs) / max(1, n),
            "steps": float(len(rows)),
            "length": float(np.mean(lengths)) if lengths else 0.0,
        }
        ctx.log(numbers)
        return numbers

    async def _proof(self, ctx: pl.Context, task: pl.Task) -> Searched | None:
        """The shortest proof of several searches."""
        keys = [ctx.key("prove", task.id, i) for i in range(self.searches)]
        made = await asyncio.gather(
            *(prove(ctx, key, self.search, task, self.openings) for key in keys)
        )
        proofs = [s for s in made if s.script is not None]
        return min(proofs, key=lambda s: len(s.script or ()), default=None)

    def _written(self, ctx: pl.Context, task: pl.Task) -> list[dict[str, Any]]:
        """The steps of a proof that the data have. Raises UserError where the kernel does not take it."""
        rng, kernel = pl.rng_of(ctx.key("written", task.id)), self.search.kernel
        text = task.meta.get("demonstration")
        if not text and task.answer is None:
            return []
        text = text or pl.tasks.demonstration(ctx.bench.tasks, task, rng, "work")
        lean = kernel.name == "lean"
        lines = pl.services.lean_script(str(text)) if lean else str(text).splitlines()
        script = [line.strip() for line in lines if line.strip()]
        state, rows = kernel.start(statement(task)), list[dict[str, Any]]()
        for i, tactic in enumerate(script):
            (after,) = kernel.step(state, [tactic])
            if not isinstance(after, pl.services.ProofState):
                raise pl.UserError(
                    f"task {task.id!r}: tactic {i + 1} of its demonstration, {tactic[:40]!r}: "
                    f"{after.reason}; correct it, or leave the column out"
                )
            rules = kernel.rules if self.search.rules else ""
            rows.append(self._row(task, question(state, rules)[-1].content, tactic, i))
            state = after
        if not kernel.accepts(statement(task), script):
            raise pl.UserError(
                f"task {task.id!r}: its demonstration is no whole proof; complete it"
            )
        return rows

    def _row(self, task: pl.Task, prompt: str, tactic: str, i: int) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "demonstration": tactic,
            "theorem": statement(task),
            "step": i,
        }


def _without_repeats(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each prompt and tactic."""
    return list({(row["prompt"], row["demonstration"]): row for row in rows}.values())
