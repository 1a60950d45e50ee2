"""Conjectures in a loop over seed files: what a model proposes, and what is left of it."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.leanconjecturer.checks import (
    DROPPED,
    HEAD,
    PROOF,
    STATUSES,
    ConjectureChecks,
    proposed_statements,
    theorem_of,
)

ASK = """{context}

Statements that are known:
{known}

Write as many statements as you can that are similar to these and not among them, one a line. Write no proofs. {rules}"""
SHOWN = 40  # statements in a question, the last ones


class Proposes(Protocol):
    """Writes statements, one a line, where no model does."""

    def __call__(self, known: Sequence[str], rng: np.random.Generator) -> str: ...


@pl.stage
class MakeConjectures:
    """A program: for each seed file a model proposes statements, again and again with what was kept in its
    context, until a round adds nothing or after `rounds`; what the checks keep becomes a file of problems.

    Seeds are the training problems of the run. Those with the same column `file` are one file; a column `context`
    is shown before its statements. Held-out problems are no conjecture, and are written as held out. Where fewer than
    two are kept, a run on a user's file ends, and one on a built-in problem goes on with the seeds.

    Args:
        checks: what becomes of a proposal.
        guide: proposes; None = the policy does.
        rounds: at most; 0 = the seeds themselves are the problems.
        samples: replies of a round.
        filters: whether what is known, easy or false is dropped; else all that can be read is kept.
        rules: whether problems say how a proof is written.
        author: proposes in place of a model.
    """

    checks: ConjectureChecks
    guide: pl.Source | None = None
    rounds: int = 1
    samples: int = 1
    filters: bool = True
    rules: bool = True
    author: Proposes | None = None

    def __post_init__(self) -> None:
        pl.check_bounds("rounds", self.rounds, least=0)
        pl.check_bounds("samples", self.samples, least=1)

    async def run(self, ctx: pl.Context) -> pl.Result:
        folder, made = (
            ctx.folder,
            {"problems": "problems.jsonl", "conjectures": "conjectures.jsonl"},
        )
        numbers = await ctx.once("conjectures", lambda: self._write(ctx))
        return pl.Result(
            metrics={**numbers, "sampled_tokens": ctx.sampled_tokens},
            artifacts={name: str(folder / file) for name, file in made.items()},
        )

    async def _write(self, ctx: pl.Context) -> dict[str, Any]:
        seeds, held = read_seeds(ctx, self.checks, "train"), read_seeds(ctx, self.checks, "test")
        files: dict[str, list[tuple[str, pl.Task]]] = {}
        for statement, task in seeds:
            files.setdefault(str(task.meta.get("file") or "seeds"), []).append((statement, task))
        known = {s: "duplicate" for s, _ in seeds} | {s: "held out" for s, _ in held}
        proposals = list[dict[str, Any]]()
        for name, rows in files.items():
            proposals += await self._of_file(ctx, name, rows, known)
        kept = [row for row in proposals if row["status"] == "kept"]
        counts = Counter(str(row["status"]) for row in proposals)
        if self.rounds and len(kept) < 2 and from_file(ctx):
            reasons = (
                ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s])
                or "nothing was proposed"
            )
            raise pl.UserError(
                f"leanconjecturer: {len(kept)} of {len(proposals)} proposals are left ({reasons}), and two are needed; name "
                "a stronger guide, raise rounds or samples, or keep more of them, triviality=0 or filters=False"
            )
        problems = (
            kept
            if self.rounds and len(kept) > 1
            else [{"statement": s, "file": "seeds", "round": 0} for s, _ in seeds]
        )
        self._save(ctx, proposals, problems, held)
        numbers = yield_numbers(counts, len(files))
        ctx.log(numbers)
        ctx.say(
            f"{len(kept)} of {len(proposals)} conjectures kept: "
            + ", ".join(f"{counts[s]} {s}" for s in STATUSES if counts[s])
            if self.rounds
            else f"no conjectures: {len(seeds)} seeds are trained on"
        )
        return numbers

    async def _of_file(
        self, ctx: pl.Context, name: str, rows: Sequence[tuple[str, pl.Task]], known: dict[str, str]
    ) -> list[dict[str, Any]]:
        """All proposals of a seed file with their status; what is kept is known from then on."""
        context = next((str(t.meta["context"]) for _, t in rows if t.meta.get("context")), "")
        there, proposals = [s for s, _ in rows], list[dict[str, Any]]()
        for at in range(self.rounds):
            new = list[str]()
            for line in [
                x
                for text in await self._propose(ctx, name, context, there, at)
                for x in proposed_statements(text)
            ]:
                statement = self.checks.normal(line)
                status = (
                    "invalid"
                    if statement is None
                    else known.get(statement) or await self._status(statement, (*there, *new))
                )
                proposals.append(
                    {
                        "file": name,
                        "round": at + 1,
                        "said": line,
                        "statement": statement,
                        "status": status,
                    }
                )
                if statement is not None:
                    known.setdefault(statement, "duplicate")
                    new += [statement] if status == "kept" else []
            if not new:
                break
            there += new
        return proposals

    async def _status(self, statement: str, library: Sequence[str]) -> str:
        status = await asyncio.to_thread(self.checks.verdict, statement, library)
        return "kept" if not self.filters and status in DROPPED else status

    async def _propose(
        self, ctx: pl.Context, name: str, context: str, there: Sequence[str], at: int
    ) -> list[str]:
        """The replies of a round."""
        if self.author is not None:
            rngs = (pl.rng_of((*ctx.key("propose", name), at, i)) for i in range(self.samples))
            return [self.author(there, rng) for rng in rngs]
        question = ASK.format(
            context=context, known="\n".join(there[-SHOWN:]), rules=self.checks.kernel.subgoal_rules
        ).strip()
        if self.guide is not None:
            first = at * self.samples
            return [
                await ctx.ask(self.guide, question, seed=first + i) for i in range(self.samples)
            ]
        asked = pl.Task(
            id=f"propose-{name}-{at}", prompt=(pl.Message(role="user", content=question),)
        )
        sample: Any = pl.Sample(n=self.samples)
        group = await sample(ctx, ctx.key("propose", name, at), pl.Group(task=asked))
        return [pl.response_text(e) for e in group.episodes if e.ok]

    def _save(
        self,
        ctx: pl.Context,
        proposals: Sequence[Mapping[str, Any]],
        problems: Sequence[Mapping[str, Any]],
        held: Sequence[tuple[str, pl.Task]],
    ) -> None:
        rules = f"\n\n{self.checks.kernel.rules}" if self.rules else ""
        rows = [
            {
                "prompt": f"{p['statement']}{rules}",
                "theorem": p["statement"],
                "file": p["file"],
                "round": p["round"],
                **({"split": "train"} if held else {}),
            }
            for p in problems
        ]
        rows += [{"prompt": f"{s}{rules}", "theorem": s, "split": "test"} for s, _ in held]
        record = {"checks": self.checks.record, "filters": self.filters}
        lines = [{**row, **record} for row in proposals]
        for name, some in (("problems.jsonl", rows), ("conjectures.jsonl", lines)):
            pl.tasks.write_records(ctx.folder / name, some)


def from_file(ctx: pl.Context) -> bool:
    """Whether the problems are a user's."""
    return isinstance(ctx.bench.tasks, pl.tasks.FileTasks)


def read_seeds(ctx: pl.Context, checks: ConjectureChecks, split: str) -> list[tuple[str, pl.Task]]:
    """The statements of a split in their normal spelling, each once. Raises UserError for one that the kernel does
    not take.
    """
    tasks = ctx.bench.tasks
    if split == "test":
        numbers: Sequence[int] = pl.run.chosen_tasks(ctx.bench, HELD)
    else:
        first = pl.curriculum.first_number(ctx)
        numbers = range(first, first + pl.curriculum.count_tasks(None, tasks.size, ENDLESS))
    seeds = dict[str, pl.Task]()
    for i in numbers:
        task = tasks.task(split, i)
        text = PROOF.sub("", HEAD.sub("", theorem_of(task)))
        statement = checks.normal(text)
        if statement is None:
            raise pl.UserError(
                f"task {task.id!r}: {text[:60]!r} is no statement that the kernel {checks.kernel.name} reads; mend it, or "
                f"choose another kernel. {checks.kernel.subgoal_rules}"
            )
        seeds.setdefault(statement, task)
    return list(seeds.items())


HELD, ENDLESS = 32, 30  # held-out problems at most, and seeds of a problem without an end


def yield_numbers(counts: Mapping[str, int], files: int) -> dict[str, float]:
    """How many were proposed and kept: "yield" kept / proposed, "filtered" the share of those that could be read,
    and were not known, that the filters dropped, "per_file" kept of a seed file, and each status.
    """
    total, kept = sum(counts.values()), counts.get("kept", 0)
    dropped = sum(counts.get(s, 0) for s in DROPPED)
    return {
        "proposed": float(total),
        "kept": float(kept),
        "yield": kept / total if total else 0.0,
        "filtered": dropped / (dropped + kept) if dropped + kept else 0.0,
        "per_file": kept / max(1, files),
        **{f"status/{s}": float(counts.get(s, 0)) for s in STATUSES if s != "kept"},
    }


@pl.stage
class MutateStatements:
    """A stand-in for a model: writes known statements of the theory of closure with operators put in, left out or
    exchanged, so that most of what it writes is easy or false.
    """

    lines: int = 24
    most: int = 3  # changes of a statement

    def __call__(self, known: Sequence[str], rng: np.random.Generator) -> str:
        return "\n".join(self._one(str(rng.choice(list(known))), rng) for _ in range(self.lines))

    def _one(self, statement: str, rng: np.random.Generator) -> str:
        head, arrow, last = statement.rpartition("=> ")
        sides = [side.split() for side in last.replace("~", "~ ").split(" <= ")]
        for _ in range(int(rng.integers(1, self.most + 1))):
            side = sides[int(rng.integers(len(sides)))]
            places = [i for i, w in enumerate(side) if w in ("cl", "int", "~")]
            at = int(rng.choice(places)) if places else 0
            change = int(rng.integers(3)) if places else 0
            word = ("cl", "int", "cl", "int", "~")[int(rng.integers(5))]
            side[at : at + (change > 0)] = [] if change == 2 else [word]
        return f"{head}{arrow}{' <= '.join(' '.join(s).replace('~ ', '~') for s in sides)}"
