"""`palaestra show`: what a method is, and the recipe as its difference from its parent."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from palaestra import catalogue
from palaestra.runtime.config import describe, difference


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    module = catalogue.find(arguments.method)
    card, built = module.CARD, module.build()
    parent = catalogue.find(card.parent).build() if card.parent else None
    changes = difference(parent, built) if parent is not None else []
    result = {
        "card": asdict(card),
        "formula": (module.__doc__ or "").strip(),
        "recipe": describe(built),
        "difference": [{"path": p, "parent": _text(a), "method": _text(b)} for p, a, b in changes],
    }
    if not arguments.json:
        _print(card, result)
    return result


def _text(part: Any) -> str:
    return "-" if part is None else str(part)


def _print(card: Any, result: dict[str, Any]) -> None:
    print(f"{card.id}: {card.title}" + (f"  ({card.paper})" if card.paper else ""))
    print(f"\n{result['formula']}\n\nclaim: {card.claim}")
    for stage, change in card.changes.items():
        print(f"  {stage}: {change}")
    if card.parent:
        print(f"\ndifference from {card.parent}:")
        for row in result["difference"]:
            print(f"  {row['path']}\n    - {row['parent']}\n    + {row['method']}")
    else:
        print("\nrecipe:")
        _tree(result["recipe"], 1)


def _tree(part: Any, depth: int) -> None:
    for key, inner in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(inner, dict | list | tuple) and inner:
            print("  " * depth + f"{key}:")
            _tree(inner, depth + 1)
        else:
            print("  " * depth + f"{key}: {inner}")
