"""`palaestra explain`: the advantages and token weights that a method computes from rewards."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palaestra import values
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.explanation.trajectories import read_groups
from palaestra.method import Recipe
from palaestra.settings.overrides import build
from palaestra.store.checkpoint import make_folder

LEGEND = (
    "legend: advantage = how much better than expected the method takes an answer to be; weights = "
    "how strongly each token is made likelier, or less likely below 0 (0.5 x 3: three tokens, 0.5 each)"
)
PICTURES = (".png", ".svg", ".pdf", ".html")  # the last of recorded groups only


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    recipe = build(arguments.method, values.overrides(arguments.words))
    if not isinstance(recipe, Recipe):
        raise UserError(
            f"{arguments.method!r} is not an RL recipe: it has no advantages to explain"
        )
    check_source(arguments)
    if arguments.picture:
        check_place(Path(arguments.picture), PICTURES if arguments.rollouts else PICTURES[:-1])
    if arguments.rollouts:
        return explain_recorded(arguments, recipe)
    groups = read_groups(arguments.rewards, arguments.lengths, arguments.group)
    result = explain(recipe, groups)
    if arguments.picture:
        from palaestra.view.plots import token_weights

        if result["token_weights"] is None:
            raise UserError(f"--picture {arguments.picture}: {result['notes'][-1]}")
        token_weights(groups, result, arguments.picture, title=arguments.method)
    if not arguments.json:
        for g, group in enumerate(groups):
            print(f"group {g}")
            for i, t in enumerate(group):
                weights = (
                    _short(result["token_weights"][g][i])
                    if result["token_weights"]
                    else "not known"
                )
                print(
                    f"  {i}: reward {t.get('reward', t.get('turn_rewards'))}  advantage "
                    f"{_short(result['advantages'][g][i])}  weights {weights}"
                )
        print(LEGEND)
        remark(result["notes"])
    return result


def remark(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}")


def check_source(arguments: argparse.Namespace) -> None:
    """Raises UserError unless the groups are given exactly once."""
    given = [
        f"--{n}" for n in ("rewards", "group", "rollouts") if getattr(arguments, n) is not None
    ]
    if len(given) > 1:
        raise UserError(
            f"{given[0]} and {given[1]} exclude each other: both are the groups; give one of them"
        )
    if arguments.lengths is not None and given != ["--rewards"]:
        raise UserError(
            "--lengths are those of --rewards; in a --group FILE.json a trajectory has its own "
            "length"
        )


def check_place(picture: Path, kinds: Sequence[str]) -> None:
    """Raises UserError if the picture cannot be drawn or written, before the work starts."""
    if picture.suffix not in kinds:
        raise UserError(
            f"--picture {picture}: cannot draw {picture.suffix or 'a file without suffix'}; use "
            f"{', '.join(kinds)}"
        )
    make_folder(picture.parent)


def explain_recorded(arguments: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
    """A real group from a run's rollouts."""
    from palaestra.explanation.recorded import explain_rollouts
    from palaestra.view.token_picture import describe_answer, write

    explained = explain_rollouts(arguments.method, recipe, Path(arguments.rollouts))
    if arguments.picture:
        write(explained, Path(arguments.picture))
    if not arguments.json:
        print(explained.prompt)
        for a in explained.answers:
            print(f"  {describe_answer(a)}\n    {''.join(a.tokens)!r}")
        print(LEGEND)
        remark(explained.notes)
    return explained.json()


def _short(x: Any) -> str:
    if isinstance(x, list):
        same = len({round(v, 9) for v in x}) == 1
        return (
            f"{x[0]:.6g} x {len(x)}" if x and same else "[" + ", ".join(f"{v:.6g}" for v in x) + "]"
        )
    return f"{x:.6g}"
