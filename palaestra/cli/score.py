"""`palaestra score`: what a verifier makes of given responses."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palaestra.errors import Fault, UserError
from palaestra.plugins import Plugin, refused
from palaestra.tasks.records import Lines, Record
from palaestra.verifiers.base import judge_response
from palaestra.verifiers.registry import VERIFIERS, describe_verifier, get_verifier

CASE = '{"response": "...", "answer": "..."}'


def run(arguments: argparse.Namespace) -> list[Any]:
    if arguments.list:
        return list_verifiers(arguments.json)
    if not arguments.verifier:
        raise UserError("name a verifier; `palaestra score --list` shows them")
    if not arguments.cases:
        raise UserError("--cases is missing: a file with lines {'response': ..., 'answer': ...}")
    found = score_cases(arguments.verifier, Path(arguments.cases))
    if not arguments.json:
        for line in found:
            parts = "  ".join(f"{k} {v:.4g}" for k, v in line["parts"].items())
            print(
                f"{'  -' if line['score'] is None else format(line['score'], '6.4f')}  "
                f"{line['status']:<11} {parts}"
            )
    return found


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
