"""Rows as a method needs them: examples for people, and for the test on a user's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palaestra.needs.declared import NeededColumn, Requirements, holds


def columns_of(needs: Requirements, arguments: Mapping[str, Any]) -> list[NeededColumn]:
    """The columns that are read under these arguments of `build`, by the names that they have there."""
    read = [c for c in needs.columns if holds(c.when, arguments)]
    named = [replace(c, name=arguments.get(c.named_by, "")) if c.named_by else c for c in read]
    return [c for c in named if c.name]


def template(needs: Requirements, arguments: Mapping[str, Any], n: int = 3) -> list[dict[str, Any]]:
    """`n` rows with an example in every column; row i has the example i, in turn."""
    columns = columns_of(needs, arguments)
    return [{c.name: c.examples[i % len(c.examples)] for c in columns} for i in range(n)]
