"""`palaestra needs`: what a method needs of its user, and example rows."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra import catalogue, values
from palaestra.errors import UserError
from palaestra.ledger.needs import costs_lines, costs_of
from palaestra.needs.declared import Requirements
from palaestra.needs.describe import lines, own_command, pointer, shown_words
from palaestra.needs.rows import columns_of, template
from palaestra.run.study import verb_of
from palaestra.run.unmet import needs_under
from palaestra.settings import overrides

BASE = "grpo"  # beside whose costs those of others stand


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    method, words = arguments.method, values.overrides(arguments.words)
    needs, read, given = needs_under(method, words)
    built = overrides.call_build(method, read)
    costs, verb = costs_of(built), verb_of(built)
    base = costs_of(catalogue.recipe(BASE))
    result = {
        "method": method,
        "command": own_command(method, needs, given, verb),
        "columns": [asdict(c) for c in columns_of(needs, given)],
        "models": [asdict(m) for m in needs.models],
        "places": [asdict(p) for p in needs.places],
        "least": dict(needs.least),
        "shows": needs.shows,
        "shown": shown_words(needs) if needs.shows else "",
        "costs": asdict(costs),
    }
    if arguments.template:
        write_template(Path(arguments.template), method, needs, given)
    if not arguments.json:
        print(*lines(method, needs, given, verb), *costs_lines(costs, base), sep="\n")
        if arguments.template:
            print(f"three example rows are in {arguments.template}")
    return result


def write_template(file: Path, method: str, needs: Requirements, given: dict[str, Any]) -> None:
    """Three example rows as JSON lines. Raises UserError where nothing can be written; of a method
    that reads no rows the error says what it takes instead.
    """
    rows = template(needs, given)
    if not rows[0]:
        instead = pointer(method, needs, given)
        raise UserError(f"{method} reads no file of rows, so there is no template: {instead}")
    if file.exists():
        raise UserError(f"{file} is there already; name another file")
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from None
