"""`palaestra edit`: takes a behaviour out of a model by editing rows of its weights."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from palaestra import catalogue
from palaestra.api.loops import run_blocking
from palaestra.cli.train import read_settings
from palaestra.run import setup
from palaestra.run.model_merge import REPORT, check_folder
from palaestra.store.checkpoint import jsonable

METHOD = "model-surgery"
OPTIONS = ("rows", "samples", "word", "cost", "loss")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.words = []
    settings = read_settings(arguments)
    has_exam = arguments.task is not None or arguments.data is not None
    options = {n: x for n in OPTIONS if (x := getattr(arguments, n)) is not None}
    if arguments.strengths:
        options["strengths"] = tuple(arguments.strengths)
    tasks = arguments.n if has_exam else 0
    program = catalogue.recipe(
        METHOD, unwanted=arguments.unwanted, fine=arguments.fine, tasks=tasks, folder="", **options
    )
    folder = check_folder(arguments.out)
    ctx = setup.context(settings, out=folder, talk=not arguments.json)
    try:
        result = run_blocking(program.run(ctx))
    finally:
        ctx.close()
    if not arguments.json:
        print(*table(result.metrics, settings.model, arguments.out), sep="\n")
    return jsonable({"model": settings.model, "out": arguments.out, **result.metrics})


def table(metrics: dict[str, Any], model: str, out: str) -> Iterator[str]:
    """What each strength changes, and which was kept."""
    yield (
        f"{model}: the probe tells {metrics['probe']:.1%} of held-out texts; "
        f"{metrics['edited_rows']} rows of gate projections"
    )
    names = ("unwanted", *(n for n in ("word", "exam") if n in metrics["strengths"][0]))
    yield ""
    yield f"{'strength':<10}{'perplexity':>12}" + "".join(f"{n:>11}" for n in names)
    for point in metrics["strengths"]:
        shares = (point[n]["mean"] if n == "exam" else point[n] for n in names)
        yield (
            f"{point['strength']:<10g}{point['perplexity']:>12.4g}"
            + "".join(f"{x:>11.1%}" for x in shares)
            + ("  kept" if point["strength"] == metrics["kept"] else "")
        )
    yield ""
    yield "legend: unwanted = continuations that the probe calls so; perplexity of held-out fine texts"
    yield f"model and {REPORT} in {out}"
