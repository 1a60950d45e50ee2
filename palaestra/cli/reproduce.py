"""`palaestra reproduce`: a paper's claim as a small experiment, with its verdict."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from palaestra.cores import cores
from palaestra.ledger import results
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.files import read_result
from palaestra.ledger.pages import interval
from palaestra.markdown import one_line_lists
from palaestra.run.headway import Headway
from palaestra.run.parts import go_on, stoppable
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.view.drawing import duration


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    method = arguments.method
    experiment = experiment_of(method)
    out, arms = (
        make_folder(Path(arguments.out)),
        arguments.arms.split(",") if arguments.arms else list(experiment.arms),
    )
    n = (arguments.seeds or experiment.seeds) * len(arms) * len(experiment.tasks)
    print(
        f"{method}: {experiment.claim}\n{n} cells of about {duration(experiment.seconds)} on "
        f"{cores()} cores",
        file=sys.stderr,
        flush=True,
    )
    with stoppable(lambda: go_on(arguments.command)), Headway(f"reproduce {method}") as headway:
        found = results.reproduce(
            method,
            out=out,
            headway=headway,
            seeds=arguments.seeds,
            arms=arms,
            tokens=arguments.tokens,
            jobs=arguments.jobs,
        )
    result = {**found, "command": command(arguments)}
    kept = keep(result, out)
    if not arguments.json:
        print(table(result, kept))
    return result


def command(arguments: argparse.Namespace) -> str:
    given = {n: v for n in ("seeds", "arms", "tokens") if (v := getattr(arguments, n))}
    flags = [f"--{n} {shlex.quote(str(v))}" for n, v in given.items()]
    return " ".join(["palaestra", "reproduce", arguments.method, *flags])


def keep(result: dict[str, Any], out: Path) -> str:
    """Writes the result, unless it has no effect or one lies there that it does not cover; says
    what it did.
    """
    path = out / "results" / f"{result['id']}.json"
    before = read_result(result["id"], path.parent)
    if result["effect"] is None:
        return f"not written to {path}: {result['reason']}"
    if before is not None and not covers(result, before):
        more = (
            f"{before['seeds']} seeds, {before['budget_tokens']:,} tokens, arms "
            f"{', '.join(before['arms'])}"
        )
        return f"{path} keeps its result of {more}; write this one elsewhere with --out DIR"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, one_line_lists(result))
    return str(path)


def covers(result: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a result has at least the seeds, the budget and the arms of an earlier one."""
    sizes = all(result[k] >= before[k] for k in ("seeds", "budget_tokens"))
    return sizes and set(before["arms"]) <= set(result["arms"])


def table(result: dict[str, Any], kept: str) -> str:
    lines = [
        f"{result['metric']}, {result['budget_tokens']:,} sampled tokens a run, {result['seeds']} "
        "seeds, 95% intervals"
    ]
    for name, arm in result["arms"].items():
        values = " ".join("failed" if x is None else f"{x:.4g}" for x in arm["values"])
        lines.append(f"  {name:<24} {interval(arm['interval'], 4):<34} {values}")
        lines += [f"    {label}: {error}" for label, error in arm["failed"].items()]
    ends = {"mean": result["effect"], "low": result["ci95"][0], "high": result["ci95"][1]}
    why = f" ({result['reason']})" if result["reason"] else ""
    lines += [f"  {'effect':<24} {interval(ends, 4)}", f"  {'expected':<24} {result['expected']}"]
    lines += [f"verdict  {result['verdict']}{why}", f"result   {kept}"]
    return "\n".join(lines)
