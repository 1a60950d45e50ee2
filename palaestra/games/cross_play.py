"""The cross-play matrix of a tournament as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.view.drawing import INK, drawing_style, percent, save

WIDEST = 24  # characters of a player's name


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Writes the picture: in each row the share of points that a player took from each other one."""
    from matplotlib.figure import Figure

    matrix: Mapping[str, Mapping[str, Any]] = result["matrix"]
    names = list(matrix)
    points_PP = np.full((len(names), len(names)), np.nan)
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            cell = matrix[a].get(b)
            if cell and cell["points"] is not None:
                points_PP[i, j] = cell["points"]
    size = 1.6 + 0.8 * len(names)
    with drawing_style():
        figure = Figure(figsize=(size + 1.2, size), layout="constrained")
        axes = figure.subplots()
        axes.imshow(points_PP, cmap="RdBu", vmin=0, vmax=1, alpha=0.75)
        for i, j in np.argwhere(~np.isnan(points_PP)):
            axes.text(j, i, percent(points_PP[i, j]), ha="center", va="center", color=INK)
        labels = [n if len(n) <= WIDEST else f"…{n[1 - WIDEST :]}" for n in names]
        axes.set_xticks(range(len(names)), labels, rotation=30, ha="right")
        axes.set_yticks(range(len(names)), labels)
        axes.grid(visible=False)
        axes.set_title(f"{result['task']}: share of points of the row against the column")
        save(figure, path)
