"""`palaestra show`: what a method is, and the recipe as its difference from its parent."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from palaestra import catalogue
from palaestra.ledger.pages import parts
from palaestra.values import brief, describe, difference


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    module = catalogue.find(arguments.method)
    card, built = module.CARD, module.build()
    parent = catalogue.find(card.parent).build() if card.parent else None
    changes = difference(parent, built) if parent is not None else []
    result = {
        "card": asdict(card),
        "formula": (module.__doc__ or "").strip(),
        "recipe": describe(built),
        "difference": [{"path": p, "parent": brief(a), "method": brief(b)} for p, a, b in changes],
    }
    if not arguments.json:
        _print(card, built, result)
    return result


def _print(card: Any, built: Any, result: dict[str, Any]) -> None:
    print(f"{card.id}: {card.title}" + (f"  ({card.paper})" if card.paper else ""))
    print(f"\n{result['formula']}\n")
    if card.claim:
        print(f"claim: {card.claim}")
    for stage, change in card.changes.items():
        print(f"  {stage}: {change}")
    if card.parent:
        print(f"\ndifference from {card.parent}:")
        for row in result["difference"]:
            print(f"  {row['path']}\n    - {row['parent']}\n    + {row['method']}")
        print()
    print("recipe:")
    for name, part in parts(built):
        print(f"  {name:<12} {brief(part)}")
