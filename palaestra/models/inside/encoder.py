"""What the encoder of a model that sees pictures gives to its projector: read, differentiated, and
put into another model. P = patches of a picture, E = the encoder's width.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.errors import UserError
from palaestra.models.eyes import EYES, Eyes, Seen
from palaestra.models.model import Model
from palaestra.models.tower import Tower, model_parts
from palaestra.pictures import Picture
from palaestra.types import Row

# the module that takes what the encoder gives, by its last name; further ones, such as those of
# DeepStack, take features of layers before
TAKES = ("multi_modal_projector", "connector", "merger")
BLIND = (
    "sees no pictures; take a vision-language model, or one that was trained with heads=('eyes',)"
)


def projector_of(model: Model) -> nn.Module:
    """The module between encoder and language part. Raises UserError where there is none."""
    if isinstance(model.eyes, Eyes):
        return model.eyes.out
    if isinstance(model.eyes, Tower):
        for name, module in model.causal.named_modules():
            if name.rpartition(".")[2] in TAKES:
                return module
        raise UserError(f"{model.name} has no projector that is known here: {', '.join(TAKES)}")
    raise UserError(f"{model.name} {BLIND}")


@contextmanager
def encoder_outputs(model: Model) -> Generator[list[Tensor]]:
    """What the projector takes in forward passes inside, each as a leaf of its own: after a backward
    pass it has a gradient, and nothing reaches the encoder.
    """
    outputs: list[Tensor] = []

    def take(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        # cut off: the gradient is to the features, and the encoder does not need one
        leaf = args[0].detach().requires_grad_(torch.is_grad_enabled())
        outputs.append(leaf)
        return (leaf, *args[1:])

    handle = projector_of(model).register_forward_pre_hook(take)
    try:
        yield outputs
    finally:
        handle.remove()


@torch.no_grad()
def picture_states(model: Model, pictures: Sequence[Picture]) -> list[np.ndarray]:
    """[P, E] of each picture in float64: what the encoder gives to the projector, patches row by row
    where they are a grid (`patch_grid`).
    """
    states: list[np.ndarray] = []
    with encoder_outputs(model) as outputs:
        for picture in pictures:
            outputs.clear()
            _look(model, picture)
            flat_PE = outputs[0].flatten(0, -2)
            states.append(_rows(model, picture, flat_PE).double().cpu().numpy())
    return states


def picture_gradients(model: Model, row: Row) -> np.ndarray:
    """[P] the sum over the features of a patch of |d loss / d feature|, with the loss -log p of the
    trained tokens of a row that holds one picture, in nats.

    Raises ValueError for a row with another number of pictures.
    """
    (picture,) = row.pictures
    view = row.view()
    ids_T = torch.from_numpy(np.array(view.ids_T)).to(model.device)
    at_N = torch.from_numpy(np.flatnonzero(view.trained_T)).to(model.device)
    with torch.enable_grad(), encoder_outputs(model) as outputs:
        hidden_TD = model.hidden(ids_T[None], Seen.of([picture], model.device))[0]
        logp_NV = torch.log_softmax(model.logits(hidden_TD[at_N - 1]).float(), -1)
        loss = -logp_NV.gather(1, ids_T[at_N][:, None]).sum()
        loss.backward(inputs=[outputs[0]])
    gradient = outputs[0].grad
    assert gradient is not None
    flat_PE = gradient.flatten(0, -2)
    return _rows(model, picture, flat_PE).abs().sum(1).double().cpu().numpy()


def patch_grid(model: Model, picture: Picture, patches: int) -> tuple[int, int] | None:
    """Rows and columns of the P patches of a picture; None where they are no single grid, as where a
    processor cuts it into tiles.
    """
    tower = model.sight
    if tower is None:
        side = math.isqrt(patches)
        return side, side
    if tower.has_grid:
        rows, columns = tower.grid(picture)
        merged = math.isqrt(patches // (rows * columns))
        return rows * merged, columns * merged
    side = math.isqrt(patches)
    return (side, side) if side**2 == patches and tower.tiles(picture) == 1 else None


def encoder_weights(model: Model) -> dict[str, nn.Parameter]:
    """The weights of the encoder, the projector left out, by name."""
    eyes = {EYES: model.eyes} if isinstance(model.eyes, Eyes) else {}
    parts = model_parts(model.module, model.causal, eyes)
    return {n: p for n, (part, p) in parts.items() if part == "tower"}


@torch.no_grad()
def put_encoder(source: Model, target: Model) -> None:
    """Gives a model the encoder of another one; its projector and language part stay.

    Raises UserError where the encoders have different weights.
    """
    ours, theirs = encoder_weights(target), encoder_weights(source)
    shapes = lambda weights: {n: tuple(p.shape) for n, p in weights.items()}
    if not theirs or shapes(ours) != shapes(theirs):
        odd = sorted(set(shapes(ours).items()) ^ set(shapes(theirs).items()))
        where = f"; {odd[0][0]} differs" if odd else ""
        raise UserError(
            f"the encoder of {source.name} does not fit into {target.name}{where}; take models with "
            "one encoder"
        )
    for name, p in ours.items():
        p.copy_(theirs[name])


def encoder_distance(model: Model, start: Mapping[str, Tensor]) -> float:
    """|w - w_start| / |w_start| of the encoder's weights, without a unit; 0 where it is the same."""
    weights = encoder_weights(model)
    moved = sum(float((p.detach() - start[n]).double().square().sum()) for n, p in weights.items())
    size = sum(float(w.double().square().sum()) for w in start.values())
    return (moved / max(size, 1e-300)) ** 0.5


def _look(model: Model, picture: Picture) -> None:
    if isinstance(model.eyes, Tower):
        model.eyes.look(picture)
        return
    seen = Seen.of([picture], model.device)
    assert isinstance(model.eyes, Eyes) and seen is not None
    model.places(picture)  # refuses a picture of another size
    model.eyes(seen.pixels_MHWC)


def _rows(model: Model, picture: Picture, flat_PE: Tensor) -> Tensor:
    """Patches row by row, which Qwen's encoders have in blocks that are merged."""
    tower = model.sight
    if tower is None or not tower.has_grid:
        return flat_PE
    rows, columns = tower.grid(picture)
    units_UME = flat_PE.view(rows * columns, -1, flat_PE.shape[-1])
    order = tower.units(picture)
    if order is not None:
        units_UME = units_UME[order.argsort()]
    m = math.isqrt(units_UME.shape[1])
    blocks = units_UME.view(rows, columns, m, m, -1).transpose(1, 2)
    return blocks.reshape(rows * m * columns * m, -1)
