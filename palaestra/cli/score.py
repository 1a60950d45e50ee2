"""`palaestra score`: what a verifier makes of given responses."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra.api.run import Run
from palaestra.errors import Fault, UserError
from palaestra.explanation.rescored import Rescored, RewardChange, change_of
from palaestra.markdown import escape_controls
from palaestra.plugins import Plugin, refused
from palaestra.tasks.records import Lines, Record
from palaestra.verifiers.base import judge_response
from palaestra.verifiers.registry import VERIFIERS, describe_verifier, get_verifier

SHOWN, EXCERPT = 5, 60  # answers, and characters of each
CASE = '{"response": "...", "answer": "..."}'


def run(arguments: argparse.Namespace) -> list[Any] | dict[str, Any]:
    if arguments.list:
        return list_verifiers(arguments.json)
    if not arguments.verifier:
        raise UserError("name a verifier; `palaestra score --list` shows them")
    if arguments.run:
        if arguments.cases:
            raise UserError("--cases and --run exclude each other: they are both the answers")
        return rescored(arguments)
    if not arguments.cases:
        raise UserError(
            "--cases is missing: a file with lines {'response': ..., 'answer': ...}; or --run DIR"
        )
    found = score_cases(arguments.verifier, Path(arguments.cases))
    if not arguments.json:
        for line in found:
            parts = "  ".join(f"{k} {v:.4g}" for k, v in line["parts"].items())
            print(
                f"{'  -' if line['score'] is None else format(line['score'], '6.4f')}  "
                f"{line['status']:<11} {parts}"
            )
    return found


def rescored(arguments: argparse.Namespace) -> dict[str, Any]:
    run, talk = Run(arguments.run), not arguments.json
    found = run.rescored(arguments.verifier, arguments.steps, talk=talk)
    change = change_of(found)
    if talk:
        show_change(arguments.verifier, run, found, change)
    return {"reward": arguments.verifier, "run": str(run.folder), **asdict(change)}


def show_change(reward: str, run: Run, found: Sequence[Rescored], change: RewardChange) -> None:
    """What another reward changes, and where it does most."""
    steps = [x.step for x in found]
    told = f"steps {min(steps)} to {max(steps)}" if steps else "no answers"
    print(f"{reward} on {change.answers:,} answers of {run.folder}, {told}")
    print(f"{'':<24}{'the run':>10}{'now':>10}")
    own, other = change.mean
    print(f"{'  mean reward':<24}{own:>10.4g}{other:>10.4g}")
    if change.judged:
        a, b = change.solved
        moved = f"  ({change.now_wrong} are right no more, {change.now_right} are now)"
        print(f"{'  solved':<24}{a / change.judged:>10.1%}{b / change.judged:>10.1%}{moved}")
    a, b = change.mixed
    print(f"{'  groups that differ':<24}{a:>10}{b:>10}  of {change.groups}: what learns from them")
    if change.agreement is not None:
        said = "Kendall's tau-b of the two, over answers to the same prompt"
        print(f"{'  order agrees by':<24}{'':>10}{change.agreement:>10.2f}  {said}")
    if change.unscored:
        why = next((f": {x.error}" for x in found if x.error), "")
        print(f"  {change.unscored} more were scored by one of them alone{why}")
    for x in sorted((x for x in found if x.moved), key=lambda x: -abs(x.moved))[:SHOWN]:
        end = escape_controls(" ".join(x.text.split()))[-EXCERPT:]
        place = f"step {x.step}, group {x.group}, answer {x.sample}"
        print(f"  {place}: {x.reward:.4g} -> {x.other:.4g}  ...{end}")


def list_verifiers(silent: bool) -> list[Any]:
    ours = [describe_verifier(name) for name in VERIFIERS]
    plugins = [offered(p, why) for p, why in refused("verifiers", VERIFIERS).items()]
    if not silent:
        for d in (*ours, *plugins):
            notes = "".join(f"  [{d[k]}]" for k in ("extra", "package") if d.get(k))
            print(f"{d['name']:<15} {', '.join(d['fields'][1:])}{notes}")
            print(f"{'':<15} {d['summary']}")
    return [*ours, *plugins]


def offered(plugin: Plugin, why: str) -> dict[str, Any]:
    """A verifier of another package, or why it is not used."""
    try:
        if not why:
            return {**describe_verifier(plugin.name), "package": plugin.package}
    except UserError as error:
        why = str(error)
    return {
        "name": plugin.name,
        "summary": f"not used: {why}",
        "fields": [],
        "required": [],
        "settings": {},
        "extra": "",
        "alone": False,
        "package": plugin.package,
    }


def score_cases(spec: str, path: Path) -> list[Any]:
    """A judgement a line. A verifier that failed gives the status "error:CAUSE" and no score."""
    verifier, found = get_verifier(spec), []
    for where, record in records(path):
        given = {k: v for k, v in record.items() if k not in ("response", "answer")}
        try:
            j = judge_response(verifier, record["response"], record.get("answer"), given)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        except Fault as fault:
            found.append({"score": None, "parts": {}, "status": f"error:{fault}"})
            continue
        found.append({"score": j.score, "parts": dict(j.parts), "status": j.status})
    return found


def records(path: Path) -> Iterator[tuple[str, Record]]:
    """The cases with their places."""
    try:
        lines = Lines(path, CASE)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a JSONL file") from None
    if not len(lines):
        raise UserError(f"{path}: no cases; it needs one a line, {CASE}")
    for i, record in enumerate(lines):
        if not isinstance(record.get("response"), str):
            raise UserError(f"{lines.where(i)}: no text 'response'; write {CASE}")
        yield lines.where(i), record
