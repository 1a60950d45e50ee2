"""Gradient maps: where in a picture the loss of the chosen reply depends on what the encoder gives."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import palaestra as pl
from palaestra.recipes.multimodal.pivot.look import Box, SeenItem

SIDE = 160  # pixels of a cell's longer side
GAP = 4  # between cells
HEAT = (255, 96, 0)
EDGE = 255  # of a box


def heat_map(
    picture: pl.Picture, gradient_P: Sequence[float], grid: tuple[int, int], boxes: Sequence[Box]
) -> np.ndarray:
    """[H, W, 3] the picture at half its brightness, each patch coloured by its |g| as a share of the
    largest, with the borders of the boxes in white.
    """
    height, width, _ = picture.shape
    share = np.asarray(gradient_P, np.float64).reshape(grid)
    share = share / max(share.max(), 1e-300)
    rows, columns = (
        (np.arange(n) + 0.5) * g // n for n, g in zip((height, width), grid, strict=True)
    )
    heat_HW = share[rows.astype(int)[:, None], columns.astype(int)]
    drawn = pixels_of(picture) * 0.5 + heat_HW[..., None] * np.array(HEAT) * 0.5
    for left, top, right, bottom in (tuple(round(x) for x in box) for box in boxes):
        drawn[[top, bottom], left : right + 1] = EDGE
        drawn[top : bottom + 1, [left, right]] = EDGE
    return drawn.astype(np.uint8)


def pixels_of(picture: pl.Picture) -> np.ndarray:
    """[H, W, 3], grey ones in three equal channels, without what is transparent."""
    array = np.frombuffer(picture.data, np.uint8).reshape(picture.shape)
    return array.repeat(3, 2) if picture.shape[2] < 3 else array[..., :3]


def draw_maps(
    items: Sequence[SeenItem], looks: Mapping[str, Mapping[str, Any]], path: Path
) -> list[str]:
    """Writes a sheet with a row for each item and a column for each model behind the picture itself.

    Returns the columns from left to right; () and no file where no look has a map.
    """
    by_task = {name: {m["task"]: m for m in look.get("drawn", ())} for name, look in looks.items()}
    columns = [name for name, maps in by_task.items() if maps]
    rows = [x for x in items if columns and all(x.task.id in by_task[n] for n in columns)]
    if not rows:
        return []
    cells = list[np.ndarray]()
    for item in rows:
        maps = [by_task[n][item.task.id] for n in columns]
        heats = [heat_map(item.picture, m["gradient"], tuple(m["grid"]), item.target) for m in maps]
        cells.append(np.concatenate([cell(x) for x in (pixels_of(item.picture), *heats)], 1))
    Image.fromarray(np.concatenate(cells)).save(path)
    return ["picture", *columns]


def cell(pixels: np.ndarray) -> np.ndarray:
    """[SIDE + GAP, SIDE + GAP, 3] a picture brought to one size, on white."""
    height, width, _ = pixels.shape
    scale = SIDE / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    large = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST))
    room = np.full((SIDE + GAP, SIDE + GAP, 3), 255, np.uint8)
    room[: size[1], : size[0]] = large
    return room
