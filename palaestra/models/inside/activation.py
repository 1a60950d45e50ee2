"""Hidden states by layer, and steering by vectors added to them. N = rows, L = chosen places, T =
tokens of a row, D = the model's width.

A model of 4 layers has the places 0 to 4, as transformers counts its hidden states: 0 the
embeddings, l what layer l gives. The last place is read after the model's last norm, and added to
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from palaestra.errors import UserError
from palaestra.models.arithmetic import weights_of
from palaestra.models.inside.residual import check_places
from palaestra.models.model import Model
from palaestra.pictures import need_text_alone
from palaestra.types import Row

POSITIONS = 8192  # of a forward pass


@torch.no_grad()
def activations(
    model: Model,
    rows: Sequence[str | Sequence[int] | Row],
    layers: Sequence[int] | None = None,
    at: Literal["last", "mean"] = "last",
) -> np.ndarray:
    """Hidden states of texts, ids or rows.

    Args:
        model: what reads them, steered as it is.
        rows: texts as the tokenizer reads them, without a chat template; or ids; or rows of
            episodes, of which the training view counts. Each at least one token.
        layers: places, 0 the embeddings; all where none are named.
        at: the state at the last token, or the mean over all.

    Returns:
        [N, L, D] in float64.

    Raises:
        UserError: for a place that the model does not have, for places of several widths (some
            models project their last state), and for a row without tokens, longer than the context
            or with a picture.
    """
    states = _read(model, rows, layers, lambda x_TLD: x_TLD[-1] if at == "last" else x_TLD.mean(0))
    places = len(model.layers) + 1 if layers is None else len(layers)
    return np.stack(states) if states else np.zeros((0, places, model.width))


@torch.no_grad()
def token_states(
    model: Model,
    rows: Sequence[str | Sequence[int] | Row],
    last: int,
    layers: Sequence[int] | None = None,
) -> list[np.ndarray]:
    """Hidden states at the `last` tokens of each row, or at all of a shorter one: [T, L, D] in float32.

    Rows, layers and errors are those of `activations`.
    """
    return _read(model, rows, layers, lambda x_TLD: x_TLD[-last:].float())


def _read(
    model: Model,
    rows: Sequence[str | Sequence[int] | Row],
    layers: Sequence[int] | None,
    keep: Callable[[Tensor], Tensor],
) -> list[np.ndarray]:
    """What is kept of the hidden states [T, L, D] of each row."""
    places = range(len(model.layers) + 1) if layers is None else layers
    check_places(places, len(model.layers), model.name)
    ids = [_ids(model, r) for r in rows]
    for i, each in enumerate(ids):
        need_text_alone(each, f"row {i} is read as text alone")
        if not 0 < len(each) <= model.context:
            raise UserError(
                f"row {i} has {len(each)} tokens; {model.name} reads 1 to {model.context}"
            )
    states: list[np.ndarray] = [np.zeros(0)] * len(ids)
    todo = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))
    while todo:
        n = max(1, POSITIONS // len(ids[todo[0]]))
        part, todo = todo[:n], todo[n:]
        read = _read_part(model, [ids[i] for i in part], list(places), keep)
        for i, x in zip(part, read, strict=True):
            states[i] = x
    return states


def _ids(model: Model, row: str | Sequence[int] | Row) -> Sequence[int]:
    if isinstance(row, Row):
        return row.view().ids_T.tolist()
    return (
        model.tokenizer.encode(row, add_special_tokens=False) if isinstance(row, str) else list(row)
    )


def _read_part(
    model: Model,
    ids: list[Sequence[int]],
    places: list[int],
    keep: Callable[[Tensor], Tensor],
) -> list[np.ndarray]:
    """Of one forward pass. Rows are padded behind, where no token of theirs looks."""
    T = max(map(len, ids))
    ids_nT = torch.tensor([[*i, *[0] * (T - len(i))] for i in ids], device=model.device)
    stream_D = model.stream(ids_nT, places)
    if len({x.shape[-1] for x in stream_D}) > 1:
        raise UserError(f"the last state of {model.name} has another width: ask for it alone")
    stream_nTLD = torch.stack(stream_D, 2).double()
    return [keep(x_TLD[: len(i)]).cpu().numpy() for x_TLD, i in zip(stream_nTLD, ids, strict=True)]


@torch.no_grad()
def input_magnitudes(model: Model, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """How large the inputs of each linear layer are, by the name of its weight.

    Args:
        model: what reads the rows.
        rows: ids of texts, each at least one.

    Returns:
        mean |x_j| over all tokens, [columns of the weight] in float64. A layer whose weight is tied
        to the embedding is left out.
    """
    totals, hooks, n = dict[str, Tensor](), list[RemovableHandle](), 0
    own = weights_of(model.module)

    def listen(name: str, layer: nn.Linear) -> None:
        def add(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            total = args[0].detach().double().abs().flatten(0, -2).sum(0)
            totals[name] = totals.get(name, torch.zeros_like(total)) + total

        hooks.append(layer.register_forward_pre_hook(add))

    for name, layer in model.module.named_modules():
        if isinstance(layer, nn.Linear) and f"{name}.weight" in own:
            listen(f"{name}.weight", layer)
    try:
        for ids in rows:
            n += len(ids)
            model.logits(model.hidden(torch.tensor([list(ids)], device=model.device))[0])
    finally:
        for hook in hooks:
            hook.remove()
    return {name: total / max(n, 1) for name, total in totals.items()}


@contextmanager
def steered(model: Model, added: Mapping[int, np.ndarray | Tensor]) -> Generator[None]:
    """Inside, a vector is added to the hidden states at each named place, at every token: in what
    the model's own engine samples, in what is scored, measured and trained (activation addition,
    arXiv:2308.10248). Afterwards the model is what it was, to the bit.

    Weights are not touched; copies made inside are not steered. Blocks may stand inside one
    another: their vectors add up. Answers under way when a block begins or ends are of both.

    Args:
        model: what is steered.
        added: a vector [D] by place, see `activations`.

    Raises:
        UserError: for a place or a width that the model does not have.
    """
    check_places(added, len(model.layers), model.name)
    before, vectors = model.added, dict(model.added)
    width = model.causal.config.get_text_config().hidden_size
    for place, given in added.items():
        vector = torch.as_tensor(given).to(model.device, model.dtype).detach()
        if vector.shape != (width,):
            raise UserError(
                f"a vector of shape {tuple(vector.shape)} cannot be added to hidden states of "
                f"{width} numbers"
            )
        vectors[place] = vectors[place] + vector if place in vectors else vector
    model.added = vectors
    try:
        yield
    finally:
        model.added = before
