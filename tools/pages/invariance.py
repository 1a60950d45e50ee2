"""Whether a method is deaf to a constant that is added to all rewards of one prompt: the direction
in which preferences leave a reward undetermined.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.explanation.trajectories import groups_from
from palaestra.method import Recipe

Shifted = Literal["same", "moved", "unknown"]
REWARDS = ((1.0, 0.0, 0.0, 1.0), (0.0, 0.5, 0.0, 1.0))  # two prompts, four answers each
LENGTHS = ((5, 9, 3, 7), (4, 4, 6, 8))
CONSTANTS = (3.0, -2.0)  # another for each prompt
ATOL = 1e-6


def under_shift(recipe: Any) -> Shifted:
    """Whether the advantages of two groups stay as they are; "unknown" where rewards and lengths
    alone do not give them.
    """
    if not isinstance(recipe, Recipe):
        return "unknown"
    try:
        before, after = advantages(recipe, (0.0, 0.0)), advantages(recipe, CONSTANTS)
    except UserError:  # the credit reads what is not given here
        return "unknown"
    pairs = [
        (np.asarray(x, float), np.asarray(y, float))
        for xs, ys in zip(before, after, strict=True)
        for x, y in zip(xs, ys, strict=True)
    ]
    alike = all(x.shape == y.shape and np.allclose(x, y, atol=ATOL) for x, y in pairs)
    return "same" if alike else "moved"


def advantages(recipe: Recipe, constants: tuple[float, float]) -> list[list[Any]]:
    rewards = [[r + c for r in group] for group, c in zip(REWARDS, constants, strict=True)]
    groups = groups_from(rewards, [list(lengths) for lengths in LENGTHS], None)
    return explain(recipe, groups)["advantages"]


def shifted_rows() -> dict[Shifted, list[str]]:
    """The built recipes by what such a constant does to them."""
    found: dict[Shifted, list[str]] = {"same": [], "moved": [], "unknown": []}
    for entry in catalogue.all_entries():
        if entry.built and entry.shape == "recipe":
            found[under_shift(catalogue.find(entry.id).build())].append(entry.id)
    return found
