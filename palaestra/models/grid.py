"""Positions of pictures as grids, for models that rotate by time, height and width (M-RoPE,
arXiv:2409.12191, section 2.1; arXiv:2502.13923).

A text token, or a place of a sound, at place t of a row has the position t + s in all three. A picture of h x w places that
begins at the position p has (p, p + row, p + column) in them, and what follows goes on at
p + max(h, w). The shift, position less place, is all that has to be known beside the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.layout import Fork, Layout
from palaestra.pictures import FIRST_PLACE, PLACE_BITS
from palaestra.types import Batch

# rows and columns of the places of a picture, by its digest; None = they stand in a line, as a sound's
GridOf = Callable[[int], tuple[int, int] | None]


def shifts(ids: Sequence[int], grid_of: GridOf) -> np.ndarray:
    """[3, T + 1] shifts of the tokens of a row, and of the text that may follow it."""
    ids_T = np.asarray(ids, np.int64)
    shift_3T = np.zeros((3, len(ids_T) + 1), np.int64)
    t = shift = 0
    for begin in np.flatnonzero(ids_T >= FIRST_PLACE).tolist():
        if begin < t:
            continue  # within the picture before
        grid = grid_of(int(ids_T[begin] - FIRST_PLACE) >> PLACE_BITS)
        if grid is None:
            continue
        shift_3T[:, t:begin] = shift
        height, width = grid
        size = min(height * width, len(ids_T) - begin)  # a row may end within a picture
        row, column = np.divmod(np.arange(size), width)
        position_3P = begin + shift + np.stack([np.zeros_like(row), row, column])
        t = begin + size
        shift_3T[:, begin:t] = position_3P - np.arange(begin, t)
        shift += max(height, width) - height * width
    shift_3T[:, t:] = shift
    return shift_3T


def batch_shifts(ids_BT: Tensor, grid_of: GridOf) -> Tensor:
    """[3, B, T + 1] of the rows of a batch."""
    each = [shifts(row, grid_of) for row in ids_BT.tolist()]
    return torch.from_numpy(np.stack(each, 1)).to(ids_BT.device)


def layout_shifts(layout: Layout, batch: Batch, forks: Sequence[Fork], grid_of: GridOf) -> Tensor:
    """[3, N] of the tokens of a layout: those of their rows, and of a fork's texts that of the text
    which may stand in their place.
    """
    shift_3BT = batch_shifts(batch["ids"], grid_of)
    shift_3N = shift_3BT.new_zeros(3, len(layout.ids))
    T = batch["ids"].shape[1]
    # what the padding of a row points to is a token before, whose shift it has not
    real_BT = torch.arange(T - 1, device=layout.ids.device) < batch["length"][:, None] - 1
    shift_3N[:, layout.before[:, 1:][real_BT]] = shift_3BT[:, :, : T - 1][:, real_BT]
    at = 0
    for fork in forks:
        after = shifts(batch["ids"][fork.row, : fork.at].tolist(), grid_of)[:, -1]
        for text in fork.texts:
            places = layout.before_forks[at + 1 : at + len(text)]
            shift_3N[:, places] = torch.from_numpy(after).to(shift_3N)[:, None]
            at += len(text)
    return shift_3N


def no_grid(digest: int) -> tuple[int, int]:
    """Raises UserError: where there are no pixels there is no grid."""
    raise UserError(f"the pixels of the picture {digest:x} are not here; give them with the tokens")
