"""What a real model of 135 million weights does where recipes of the family data ask one to write or
to be judged: hints of nurl, instructions of refine-af, problems of logics-stem, the families of
internbootcamp and the filter of guru.

    python benchmarks/protocols.py       # extras gym and smollm2; half an hour on two cores; writes
                                         # benchmarks/protocols.json and its table in docs/runs.md

Nothing is trained. The problems are reasoning-gym's, of the families below. A part that has a result
is not run again; `--only` names some.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.markdown import fill_marks, table
from palaestra.recipes.data.guru import FilteredDomain, bucket
from palaestra.recipes.data.internbootcamp import VerifierAudit
from palaestra.recipes.data.logics_stem import FailureDriven
from palaestra.recipes.data.nurl import RevealAnswer
from palaestra.recipes.data.nurl.hints import write_hints
from palaestra.recipes.data.refine_af import is_novel, make_up
from palaestra.run import setup
from palaestra.run.machine import describe_machine
from palaestra.settings.fields import Settings
from palaestra.store.checkpoint import write_atomic

SUMS = "rg:chain_sum(min_terms=2,max_terms=2,min_digits=1,max_digits=1)"
FAMILIES = (
    SUMS,
    "rg:gcd",
    "rg:letter_counting",
    "rg:spell_backward",
    "rg:leg_counting",
    "rg:caesar_cipher",
)
TASK = "+".join(FAMILIES)
MODEL = pl.LocalModel("policy")
TOKENS = 96  # of an attempt
RESULT = Path("benchmarks/protocols.json")
PAGE = Path("docs/runs.md")


def problems(ctx: pl.Context, n: int) -> list[pl.Task]:
    """The first `n` training problems of each family."""
    return [task for part in pl.curriculum.arms_of(ctx.bench.tasks) for task in of_family(part, n)]


def of_family(part: pl.Tasks, n: int) -> list[pl.Task]:
    return [pl.tasks.part_task(part, "train", i) for i in range(n)]


async def solved(ctx: pl.Context, name: str, tasks: Sequence[pl.Task], n: int) -> list[float]:
    """The share of `n` attempts at each task, at temperature 1."""
    return (await pl.pass_rates(ctx, ("protocols", name), tasks, pl.Sample(n=n))).tolist()


async def written_hints(ctx: pl.Context) -> dict[str, Any]:
    """NuRL: a hint for each problem, and what it is worth to the one that wrote it. Two worked
    examples before each problem show the form of an answer.
    """
    tasks = [behind_examples(t) for t in problems(ctx, 4)]
    found = await write_hints(MODEL, tasks, 4, 0, ctx)
    pairs = [(t, h) for t, h in zip(tasks, found, strict=True) if h]
    behind = lambda source: [hinted(ctx, source, t, h) for t, h in pairs]
    return {
        "problems": len(tasks),
        "with a hint": len(pairs),
        "words": float(np.median([len(h.split()) for _, h in pairs])) if pairs else None,
        "bare": await solved(ctx, "bare", [t for t, _ in pairs], 8),
        "hinted": await solved(ctx, "hinted", behind(pl.rollout.HintColumn()), 8),
        "told": await solved(ctx, "told", behind(RevealAnswer()), 8),
        "examples": [{"question": pl.tasks.question_text(t), "hint": h} for t, h in pairs[:3]],
    }


def behind_examples(task: pl.Task) -> pl.Task:
    shown = (("What is 2 + 5?", "7"), ("How many letters has the word 'tree'?", "4"))
    said = [
        pl.Message(role=r, content=c)
        for pair in shown
        for r, c in zip(("user", "assistant"), pair, strict=True)
    ]
    return replace(task, prompt=(*said, *task.prompt))


def hinted(ctx: pl.Context, source: pl.rollout.GuidanceSource, task: pl.Task, hint: str) -> pl.Task:
    group = pl.Group(task=replace(task, meta={**task.meta, "hint": hint}))
    found = pl.Hinted(source)(ctx, group, np.random.default_rng(0))
    assert found is not None
    return found


async def instructions(ctx: pl.Context, n: int = 48) -> dict[str, Any]:
    """REFINE-AF: further instructions, in the form that is asked for and unlike all others."""
    shown = [pl.curriculum.prompt_text(t) for t in problems(ctx, 8)]
    kept: list[list[str]] = [text.split() for text in shown]

    async def ask(i: int) -> str:
        some = pl.rng_of(("instructions", i)).choice(len(shown), 8, replace=False)
        return await make_up(ctx, MODEL, [shown[j] for j in some], i)

    made = [text for text in await asyncio.gather(*map(ask, range(n))) if text]
    novel: list[str] = []
    for text in made:
        if is_novel([pl.verifiers.rouge_l(text.split(), other) for other in kept]):
            novel.append(text)
            kept.append(text.split())
    return {"asked": n, "in form": len(made), "novel": len(novel), "examples": novel[:3]}


@dataclass
class Recorded:
    """A writer that remembers its orders."""

    writer: pl.curriculum.ProblemWriter
    orders: list[pl.curriculum.ProblemOrder] = field(default_factory=list)
    written: int = 0

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, order: pl.curriculum.ProblemOrder
    ) -> list[pl.Task]:
        self.orders.append(order)
        made = await self.writer(ctx, key, order)
        self.written += len(made)
        return made


async def failures(ctx: pl.Context) -> dict[str, Any]:
    """Logics-STEM: failures, what is looked up for them, and what is written, by the sources and by
    the model.
    """
    found: dict[str, Any] = {}
    writers = {
        "source": pl.curriculum.ProblemsFromSource(),
        "model": pl.curriculum.ProblemsByModel(client=MODEL, votes=4, max_tokens=256),
    }
    for name, writer in writers.items():
        recorded = Recorded(writer)
        draw = FailureDriven(queries=36, attempts=4, written=36, corpus=96, writer=recorded)
        _, state = await draw(ctx, ("protocols", "failures"), 1, {})
        own = [o.domain == o.examples[0].domain for o in recorded.orders]
        found[name] = {
            "orders": len(own),
            "written": recorded.written,
            "own domain": sum(own),
            **state["found"],
        }
    return found


async def families(ctx: pl.Context) -> dict[str, Any]:
    """InternBootcamp: what each verifier pays; and the share of attempts that the model solves."""
    rates = {
        p.name: await solved(ctx, p.name, of_family(p, 12), 8)
        for p in pl.curriculum.arms_of(ctx.bench.tasks)
    }
    return {"audit": dict(await VerifierAudit(16)(ctx)), "solved": rates}


async def filtered(ctx: pl.Context) -> dict[str, Any]:
    """Guru: what a filter keeps that has the model for the weak one and for the strong one."""
    draw = FilteredDomain(candidates=12, weak="policy", strong="policy", sample=pl.Sample(n=8))
    try:
        _, state = await draw(ctx, ("protocols", "filter"), 1, {})
        return {"kept": {k: len(v) for k, v in state["kept"].items()}, "dropped": state["dropped"]}
    except pl.Fault as fault:
        return {"kept": {}, "ended": str(fault)}


PARTS: Mapping[str, Callable[[pl.Context], Coroutine[Any, Any, dict[str, Any]]]] = {
    "families": families,
    "filter": filtered,
    "hints": written_hints,
    "instructions": instructions,
    "failures": failures,
}


def share(rates: Sequence[float]) -> str:
    return f"{np.mean(rates):.3f}" if rates else "none"


def shown(found: Mapping[str, Any]) -> str:
    """The parts that have a result as rows."""
    rows: list[tuple[str, str, str]] = []
    for name, part in found.items():
        rows += [(METHODS[name], asked, came) for asked, came in ROWS[name](part)]
    return table(rows, "method", "what was asked", "what came")


def family_rows(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, rates in part["solved"].items():
        paid = part["audit"][name]
        says = ", ".join(f"{k} {v:.2f}" for k, v in paid.items())
        buckets = ", ".join(f"{n} {b}" for b, n in Counter(map(bucket, rates)).most_common())
        rows.append(
            (
                f"{name}: 12 problems, 8 attempts each",
                f"{share(rates)} solved ({buckets}); its verifier pays {says}",
            )
        )
    return rows


def filter_rows(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    kept = sum(part["kept"].values())
    more = f"; the run ends: {part['ended']}" if "ended" in part else ""
    return [
        (f"of {12 * len(FAMILIES)} problems those that are neither easy nor hard", f"{kept}{more}")
    ]


def hint_rows(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    worth = ", ".join(f"{n} {share(part[n])}" for n in ("bare", "hinted", "told"))
    return [
        (
            f"a hint for each of {part['problems']} problems, four tries",
            f"{part['with a hint']} that hold no answer",
        ),
        ("the same problems with their hints, and with the answer told", f"solved: {worth}"),
    ]


def instruction_rows(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (
            f"{part['asked']} further instructions",
            f"{part['in form']} in the form asked for, {part['novel']} of them new",
        )
    ]


def failure_rows(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    source, model = part["source"], part["model"]
    found = f"{source['failures']} fail; of {source['orders']} documents {source['own domain']} are of the failure's family"
    return [
        ("36 queries, and a document for each failure", found),
        (
            "a problem written of each document",
            f"by its generator {source['written']}, by the model {model['written']}",
        ),
    ]


METHODS = {
    "families": "internbootcamp",
    "filter": "guru",
    "hints": "nurl",
    "instructions": "refine-af",
    "failures": "logics-stem",
}
ROWS: Mapping[str, Callable[[Mapping[str, Any]], list[tuple[str, str]]]] = {
    "families": family_rows,
    "filter": filter_rows,
    "hints": hint_rows,
    "instructions": instruction_rows,
    "failures": failure_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=tuple(PARTS), default=tuple(PARTS))
    given = parser.parse_args()
    known: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.is_file() else {"found": {}}
    settings = Settings(
        recipe="", task=TASK, model="smollm2", max_tokens=TOKENS, device="cpu", dtype="float32"
    )
    with tempfile.TemporaryDirectory() as folder:
        ctx = setup.context(settings, out=Path(folder), talk=False)
        for name in given.only:
            if name not in known["found"]:
                known["found"][name] = asyncio.run(PARTS[name](ctx))
                about = {
                    "command": "python benchmarks/protocols.py",
                    "machine": describe_machine("cpu"),
                }
                ordered = {n: known["found"][n] for n in PARTS if n in known["found"]}
                known = {**about, "found": ordered}
                write_atomic(RESULT, json.dumps(known, indent=1) + "\n")
                print(name, json.dumps(known["found"][name])[:400], flush=True)
        ctx.close()
    PAGE.write_text(fill_marks(PAGE.read_text(), {"protocols": shown(known["found"])}))


if __name__ == "__main__":
    main()
