"""`palaestra show`: shows what a method is, and how its recipe differs from its parent."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from palaestra import catalogue
from palaestra.needs.describe import lines
from palaestra.run.unmet import arguments_of_run
from palaestra.settings.overrides import arguments as arguments_of
from palaestra.values import brief, children, describe, difference, flatten


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    module, entry = catalogue.find(arguments.method), catalogue.entry_of(arguments.method)
    parent, built = catalogue.parent_of(arguments.method), module.build()
    changes = difference(catalogue.recipe(parent), built) if parent else []
    result = {
        "card": {
            "id": entry.id,
            "family": entry.family,
            "shape": entry.shape,
            **asdict(module.CARD),
            "parent": parent,
            "changes": {
                path: f"{brief(before)} -> {brief(after)}" for path, before, after in changes
            },
            "paper_scale": module.CARD.size.setting if module.CARD.size else "",
        },
        "formula": (module.__doc__ or "").strip(),
        "recipe": describe(built),
        "arguments": {n: brief(p.default) for n, p in arguments_of(arguments.method).items()},
        "fields": flatten(built),
        "difference": [{"path": p, "parent": brief(a), "method": brief(b)} for p, a, b in changes],
    }
    if not arguments.json:
        _print(built, result)
        given = arguments_of_run(arguments_of(arguments.method), {})
        print("", *lines(arguments.method, module.CARD.needs, given), sep="\n")
    if arguments.fields and not arguments.json:
        _print_fields(result)
    return result


def parts(built: Any) -> list[tuple[str, Any]]:
    """The parts of a recipe, those of a single learner among them."""
    pieces: list[tuple[str, Any]] = []
    for name, part in children(built):
        learners = part.values() if name == "learners" else ()
        pieces += (
            [c for l in learners for c in children(l)] if len(learners) == 1 else [(name, part)]
        )
    return [(n, p) for n, p in pieces if p not in ((), {}, "", None)]


def _print(built: Any, result: dict[str, Any]) -> None:
    card = result["card"]
    print(f"{card['id']}: {card['title']}" + (f"  ({card['paper']})" if card["paper"] else ""))
    print(f"\n{result['formula']}\n")
    if card["claim"]:
        print(f"claim: {card['claim']}\n")
    if card["parent"]:
        print(f"difference from {card['parent']}:")
        for row in result["difference"]:
            print(f"  {row['path']}\n    - {row['parent']}\n    + {row['method']}")
        print()
    print("recipe:")
    for name, part in parts(built):
        print(f"  {name:<12} {brief(part)}")


def _print_fields(result: dict[str, Any]) -> None:
    if result["arguments"]:
        print("\narguments of build:")
    for name, default in result["arguments"].items():
        print(f"  {name}={default}")
    print("\nfields (the end of a path is enough where only one ends so):")
    for path, x in result["fields"].items():
        print(f"  {path}={brief(x)}")
