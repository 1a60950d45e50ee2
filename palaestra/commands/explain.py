"""`palaestra explain`: what a method does to given rewards."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palaestra.explain import explain, read_groups
from palaestra.runtime import config
from palaestra.runtime.checkpoint import made
from palaestra.runtime.setup import build
from palaestra.step import Recipe
from palaestra.types import UserError

PICTURES = (".png", ".svg", ".pdf", ".html")  # the last of recorded groups only


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    recipe = build(arguments.method, config.overrides(arguments.words))
    if not isinstance(recipe, Recipe):
        raise UserError(f"{arguments.method!r} is not an RL recipe: it has no advantages to explain")
    if arguments.picture:
        check_place(Path(arguments.picture), PICTURES if arguments.rollouts else PICTURES[:-1])
    if arguments.rollouts:
        return recorded(arguments, recipe)
    groups = read_groups(arguments.rewards, arguments.lengths, arguments.group)
    result = explain(recipe, groups)
    if arguments.picture:
        from palaestra.runtime.plots import token_weights

        token_weights(groups, result, arguments.picture, title=arguments.method)
    if not arguments.json:
        for g, group in enumerate(groups):
            print(f"group {g}")
            for i, t in enumerate(group):
                advantage, weights = (_short(result[k][g][i]) for k in ("advantages", "token_weights"))
                print(
                    f"  {i}: reward {t.get('reward', t.get('turn_rewards'))}  advantage {advantage}  weights {weights}"
                )
    return result


def check_place(picture: Path, kinds: Sequence[str]) -> None:
    """Before the work: that the picture can be drawn and written."""
    if picture.suffix not in kinds:
        raise UserError(
            f"--picture {picture}: cannot draw {picture.suffix or 'a file without suffix'}; use {', '.join(kinds)}"
        )
    made(picture.parent)


def recorded(arguments: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    """A real group from a run's rollouts."""
    from palaestra.runtime.token_picture import explained, told, write

    found = explained(arguments.method, recipe, Path(arguments.rollouts))
    if arguments.picture:
        write(found, Path(arguments.picture))
    if not arguments.json:
        print(found.prompt)
        for a in found.answers:
            print(f"  {told(a)}\n    {''.join(a.tokens)!r}")
    return found.json()


def _short(x: Any) -> str:
    if isinstance(x, list):
        same = len({round(v, 9) for v in x}) == 1
        return f"{x[0]:.6g} x {len(x)}" if x and same else "[" + ", ".join(f"{v:.6g}" for v in x) + "]"
    return f"{x:.6g}"
