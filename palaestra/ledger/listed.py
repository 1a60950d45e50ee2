"""Where methods stand, as a listing tells it: from `standings.json`, which the generated pages write,
without building any experiment. Nothing heavy is imported here.

Of a result that was published since then, or that nobody wrote pages for, it is not known. An
installed package has no results, and its verdicts are those of the pages that it was built with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from palaestra.catalogue import Entry
from palaestra.ledger.files import folder, result_path
from palaestra.types import value_class

FILE = "standings.json"  # of this package; by method the digest of its result, status and note


@value_class
class Standing:
    """Where a method stands: planned, built or a verdict, and what there is to say about it."""

    status: str
    note: str = ""


def without_result(entry: Entry) -> Standing:
    """Where a method without a result stands."""
    return Standing(status="built" if entry.built or entry.page else "planned")


def listed(entry: Entry) -> Standing | None:
    """Where a method stands, the verdict of its published result if it has one. None where only the
    result itself can say (`ledger.standing`).
    """
    known = _standings().get(entry.id, {})
    digest = result_digest(entry) if folder().is_dir() else known.get("result", "")
    if not digest or not entry.built:
        return without_result(entry)
    if known.get("result") != digest:
        return None
    return Standing(status=known["status"], note=known["note"])


def result_digest(entry: Entry) -> str:
    """Of the file of a method's published result; "" where there is none."""
    path = result_path(entry.id)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@cache
def _standings() -> Mapping[str, Any]:
    path = resources.files("palaestra.ledger").joinpath(FILE)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
