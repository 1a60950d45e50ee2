"""`palaestra plan --model`: memory and seconds of a step of GRPO on GPUs, from dimensions and data
sheets; `palaestra plan --published`: the same beside what others measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from palaestra.errors import UserError
from palaestra.planning import published
from palaestra.planning.model_sizes import SIZES, size_named
from palaestra.planning.sizing import (
    GPUS,
    Assumptions,
    GpuUse,
    Work,
    ladder,
    report,
)

DEFAULTS = {
    "gpus": 8, "gpu": "h100", "prompts": 128, "group": 16, "prompt_tokens": 256,
    "answer_tokens": 2048, "max_tokens": 0, "references": 0, "lora": 0, "tensor": 0,
}  # fmt: skip
LONGEST = 4  # times the mean, where nobody says how long an answer may be
OTHERS = ("costs", "run", "waves", "trace", "picture")
METHOD = "grpo"
WAY_HEAD = (
    "way",
    "replica",
    "sample",
    "learn",
    "s/step",
    "rollout",
    "log-probs",
    "update",
    "weights",
    "at once",
)


def refuse_flags(arguments: argparse.Namespace) -> None:
    """Raises UserError where flags of --model are given without it."""
    given = [f"--{k.replace('_', '-')}" for k in DEFAULTS if getattr(arguments, k) is not None]
    if given:
        raise UserError(f"{given[0]} goes with --model: palaestra plan --model 7b {given[0]} ...")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    given = [f"--{k}" for k in OTHERS if getattr(arguments, k) is not None]
    flag = "--model" if arguments.model else "--published"
    if given:
        raise UserError(f"{flag} computes all seconds; leave {given[0]} out")
    if arguments.recipe not in (None, METHOD):
        raise UserError(
            f"{arguments.recipe}: {flag} counts a step of {METHOD}; leave the recipe out"
        )
    if arguments.published:
        if arguments.model:
            raise UserError("--published has models of its own; leave --model out")
        refuse_flags(arguments)
        return run_published(arguments.json)
    settings: dict[str, Any] = {
        k: d if (x := getattr(arguments, k)) is None else x for k, d in DEFAULTS.items()
    }
    gpu, gpus, tensor = GPUS[settings.pop("gpu")], settings.pop("gpus"), settings.pop("tensor")
    settings["max_tokens"] = settings["max_tokens"] or LONGEST * settings["answer_tokens"]
    work = Work(**settings)
    if work.max_tokens < work.answer_tokens:
        raise UserError(
            f"--max-tokens {work.max_tokens}: answers have {work.answer_tokens} tokens on average"
        )
    if tensor > gpus:
        raise UserError(f"--tensor {tensor}: there are {gpus} GPUs")
    if arguments.model == SIZES:
        rows = ladder(gpu, gpus, work)
        if not arguments.json:
            print(*show_ladder(rows, work), sep="\n")
        return {"rows": [plain(r) for r in rows]}
    result = report(size_named(arguments.model), gpu, gpus, work, tensor=tensor)
    if not arguments.json:
        print(*show(result, work), sep="\n")
    return plain(result)


def plain(result: Mapping[str, Any]) -> dict[str, Any]:
    """The report with its ways as plain data."""
    return {**result, "ways": [asdict(w) for w in result["ways"]]}


def describe(work: Work) -> str:
    """The step in words."""
    lora = f", adapters of rank {work.lora}" if work.lora else ""
    also = f", {work.references} reference{'s' * (work.references > 1)}" if work.references else ""
    return (
        f"{work.prompts:,} prompts x {work.group} answers, {work.prompt_tokens:,} + {work.answer_tokens:,.0f} tokens on "
        f"average, {work.prompt_tokens:,} + {work.max_tokens:,} at most{also}{lora}"
    )


def show(result: Mapping[str, Any], work: Work) -> Iterator[str]:
    """Lines for people."""
    sparse = (
        ""
        if result["active"] == result["parameters"]
        else f", {result['active'] / 1e9:.1f} of them for a token"
    )
    yield (
        f"a step of {METHOD}, computed and not measured: {result['model']}, {result['parameters'] / 1e9:.1f} billion weights"
        f"{sparse}, {result['gpus']} x {result['gpu']}"
    )
    yield f"{describe(work)}; GB are 10^9 bytes\n"
    yield "GB on each GPU"
    for where, parts in result["learner_gb"].items():
        n = result["learner_gpus"][where]
        yield f"  {f'learner on {n}':<18}{sum(parts.values()):>7.1f}  = {add_up(parts)}"
    sampler = {k: v for k, v in result["sampler_gb"].items() if k != "answer"}
    yield (
        f"  {'replica of ' + str(result['tensor']):<18}{sum(sampler.values()):>7.1f}  = {add_up(sampler)}; then "
        f"{result['sampler_gb']['answer']:.2f} for each longest answer, {result['at_once']:,} average ones at once"
    )
    least = gpus_text(result["least_learner"])
    yield f"  {result['cache_bytes']:,} bytes of keys and values a token; the learner needs at least {least}\n"
    yield from show_ways(result["ways"])
    yield "\nwhat breaks"
    yield from (f"  - {line}" for line in result["breaks"])
    yield "\nassumptions, the same for all models"
    yield from (f"  - {line}" for line in result["assumptions"])


def gpus_text(n: int) -> str:
    """How many GPUs, in words."""
    return f"{n} GPU{'s' * (n != 1)}" if n else "more than 1,024 GPUs"


def add_up(parts: Mapping[str, float]) -> str:
    """Parts as a sum."""
    return " + ".join(f"{v:.1f} {k}" for k, v in parts.items() if v)


def show_ways(rows: Sequence[GpuUse]) -> Iterator[str]:
    """A line for each way to use the GPUs."""
    if not rows:
        yield "no way to use these GPUs fits"
        return
    yield f"{WAY_HEAD[0]:<19}" + "".join(f"{x:>10}" for x in WAY_HEAD[1:]) + "  in Palaestra"
    for w in rows:
        seconds = (w.step, w.rollout, w.log_probs, w.update, w.weights)
        cells = [
            f"{w.tensor}",
            f"{w.sampling}",
            f"{w.learning}",
            *(f"{x:.3g}" for x in seconds),
            f"{w.slots:,}",
        ]
        yield f"{w.name:<19}" + "".join(f"{x:>10}" for x in cells) + f"  {w.here}"


def show_ladder(rows: Sequence[Mapping[str, Any]], work: Work) -> Iterator[str]:
    """A line for each size, and what breaks there."""
    first = rows[0]
    yield f"a step of {METHOD}, computed and not measured, {first['gpus']} x {first['gpu']}; {describe(work)}\n"
    head = ("learner GB", "least GPUs", "replica of", "at once", "colocated s", "lag 1 s")
    yield f"{'model':<15}" + "".join(f"{x:>12}" for x in head) + "  what breaks"
    for r in rows:
        step = {w.name: f"{w.step:.3g}" for w in r["ways"]}
        cells = (
            f"{sum(r['learner_gb']['all'].values()):.1f}", f"{r['least_learner'] or 'none'}", f"{r['tensor']}",
            f"{r['at_once']:,}", step.get("colocated", "-"), step.get("separate, lag 1", "-"),
        )  # fmt: skip
        yield f"{r['model']:<15}" + "".join(f"{x:>12}" for x in cells) + f"  {r['breaks'][0]}"
    yield "\nassumptions, the same for all models"
    yield from (f"  - {line}" for line in first["assumptions"])


def run_published(json: bool) -> dict[str, Any]:
    """The published table; prints it, unless it is asked for as JSON."""
    rows = published.compare()
    if not json:
        cells = [published.HEAD, *published.table(rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        for row in cells:
            print("  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)).rstrip())
        print(
            "\nsources", *(f"  - {x}" for x in dict.fromkeys(c.row.source for c in rows)), sep="\n"
        )
        print("\nassumptions, the same for all rows")
        kinds = dict.fromkeys(c.row.gpu for c in rows)
        lines = dict.fromkeys(x for kind in kinds for x in Assumptions().lines(GPUS[kind]))
        print(*(f"  - {x}" for x in lines), sep="\n")
    return {
        "rows": [
            {**asdict(c.row), "answer": c.answer, "predicted": c.predicted, "ratio": c.ratio,
             "inferred": c.inferred, "tests": c.tests}
            for c in rows
        ]
    }  # fmt: skip
