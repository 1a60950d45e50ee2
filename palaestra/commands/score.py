"""`palaestra score`: what a verifier makes of given responses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palaestra.reward.verifiers.base import judged
from palaestra.reward.verifiers.registry import VERIFIERS, described, get
from palaestra.types import Fault, UserError


def run(arguments: argparse.Namespace) -> list[Any]:
    if arguments.list:
        return listed(arguments.json)
    if not arguments.verifier:
        raise UserError("name a verifier; `palaestra score --list` shows them")
    if not arguments.cases:
        raise UserError("--cases is missing: a file with lines {'response': ..., 'answer': ...}")
    found = scored(arguments.verifier, Path(arguments.cases))
    if not arguments.json:
        for line in found:
            parts = "  ".join(f"{k} {v:.4g}" for k, v in line["parts"].items())
            print(f"{'  -' if line['score'] is None else format(line['score'], '6.4f')}  {line['status']:<11} {parts}")
    return found


def listed(silent: bool) -> list[Any]:
    found = [described(name) for name in VERIFIERS]
    if not silent:
        for d in found:
            print(f"{d['name']:<15} {', '.join(d['fields'][1:])}{'  [' + d['extra'] + ']' if d['extra'] else ''}")
            print(f"{'':<15} {d['summary']}")
    return found


def scored(spec: str, path: Path) -> list[Any]:
    """A judgement a line. A verifier that failed gives the status "error:CAUSE" and no score."""
    verifier, found = get(spec), []
    for number, record in records(path):
        given = {k: v for k, v in record.items() if k not in ("response", "answer")}
        try:
            j = judged(verifier, record["response"], record.get("answer"), given)
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        except Fault as fault:
            found.append({"score": None, "parts": {}, "status": f"error:{fault}"})
            continue
        found.append({"score": j.score, "parts": dict(j.parts), "status": j.status})
    return found


def records(path: Path, texts: Sequence[str] = ("response",)) -> list[tuple[int, dict[str, Any]]]:
    """The lines of a JSONL file that hold something, with their numbers. Each has these columns as text."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); give a JSONL file") from None
    found: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: no JSON ({error}); write one object a line") from None
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number}: no object; write {{'response': ..., 'answer': ...}}")
        if missing := [t for t in texts if not isinstance(record.get(t), str)]:
            raise UserError(f"{path}:{number}: no text {missing[0]!r}; write {{'response': ..., 'answer': ...}}")
        found.append((number, record))
    return found
