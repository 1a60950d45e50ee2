"""`palaestra merge`: makes one model of two, without training."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from palaestra.run.model_merge import REPORT, merge
from palaestra.store.checkpoint import jsonable

OPTIONS = ("share", "scale", "removed", "drop", "then", "rank", "omega", "seed")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    options = {n: x for n in OPTIONS if (x := getattr(arguments, n)) is not None}
    report = merge(
        arguments.first,
        arguments.second,
        arguments.base or "",
        how=arguments.how,
        out=arguments.out,
        data=arguments.data or "",
        tokenizer=arguments.tokenizer,
        device=arguments.device,
        **options,
    )
    if not arguments.json:
        print(*report_lines(report, arguments.out), sep="\n")
    return jsonable({**report, "out": arguments.out})


def report_lines(report: dict[str, Any], out: str) -> Iterator[str]:
    """The report as a table."""
    options = ", ".join(f"{k} {v}" for k, v in report["options"].items() if v is not None)
    names = report["models"]
    yield f"{report['with']} of {', '.join(names.values())} ({options})"
    yield ""
    yield f"{'distance of the weights':<26}{'length':>10}"
    for name, x in report["distance"].items():
        yield f"  {name:<24}{x:>10.4g}"
    if report["cosine"] is not None:
        yield f"  {'cosine of task vectors':<24}{report['cosine']:>10.3f}  (0 = they change other things)"
    if "line" in report:
        yield ""
        yield f"{'share of the second':<26}{'loss':>10}  nats a token, {report['data']['texts']} texts"
        for share, loss in report["line"].items():
            yield f"  {share:<24}{loss:>10.4f}"
        yield f"  {'barrier':<24}{report['barrier']:>10.4f}  (above the line between the ends; near 0 = one basin)"
        yield f"  {'the merge':<24}{report['loss']['merge']:>10.4f}"
    yield from (f"note: {note}" for note in report["notes"])
    yield f"model and {REPORT} in {out}; the tokenizer is that of {report['tokenizer']}"
