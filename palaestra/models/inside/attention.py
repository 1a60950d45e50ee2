"""Scores of tokens from attention maps, one pass with plain attention; the maps themselves are
reduced row by row.

A map is A[l, h, t, s], the attention from t to s <= t. Five evenly spaced layers between L/3 and
2L/3 are read. Heads differ in their span, the mean over response tokens t of sum_s A[t, s] (t - s):
the 30% with the shortest are the local heads, the 30% with the longest the global ones
(arXiv:2510.13554).

`picture_mass` is the share of attention that goes to places of pictures, the mean over all heads of these
layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.eyes import Seen
from palaestra.pictures import FIRST_PLACE
from palaestra.types import Batch

LAYERS, HEADS = 5, 0.3  # of arXiv:2510.13554
NUMBERS = 1 << 26  # of attention that may exist at a time: 256 MB in float32


def waad(local_TT: Tensor, global_TT: Tensor, response_T: Tensor, window: int) -> Tensor:
    """[T] windowed average attention distance: sum_{s <= t} A_local[t, s] min(t - s, window)."""
    return (local_TT * distances(len(local_TT), local_TT).clamp(0, window)).sum(1)


def fai(local_TT: Tensor, global_TT: Tensor, response_T: Tensor, near: int, far: int) -> Tensor:
    """[T] future attention influence of s: mean of A_global[t, s] over response tokens t with near
    <= t - s <= far.

    0 where no such token is there, so everywhere in answers shorter than `near`.
    """
    gap_TT = distances(len(global_TT), global_TT)
    seen_TT = ((gap_TT >= near) & (gap_TT <= far) & response_T[:, None]).to(global_TT.dtype)
    return (global_TT * seen_TT).sum(0) / seen_TT.sum(0).clamp(min=1)


def distances(T: int, like: Tensor) -> Tensor:
    """[T, T] t - s."""
    at_T = torch.arange(T, device=like.device, dtype=like.dtype)
    return at_T[:, None] - at_T[None]


SCORES: Mapping[str, Callable[..., Tensor]] = {"waad": waad, "fai": fai}
PICTURE_MASS = "picture_mass"
FROM_MAPS = (*SCORES, PICTURE_MASS)


def picture_mass(maps_HTT: Tensor, ids_T: Tensor) -> Tensor:
    """[T] mean over heads of sum_s A[t, s] over places s of pictures."""
    return (maps_HTT.mean(0) * (ids_T >= FIRST_PLACE)).sum(1)


def split_heads(maps_HTT: Tensor, response_T: Tensor) -> tuple[Tensor, Tensor]:
    """Mean map of the local and of the global heads, at least one each."""
    span_HT = (maps_HTT * distances(maps_HTT.shape[-1], maps_HTT)).sum(-1)
    order = span_HT[:, response_T].mean(1).argsort(stable=True)
    n = max(1, round(HEADS * len(order)))
    return maps_HTT[order[:n]].mean(0), maps_HTT[order[-n:]].mean(0)


@torch.no_grad()
def attention_scores(model: Any, batch: Batch, needs: Sequence[str]) -> dict[str, Tensor]:
    """Each need ("waad:W", "fai:NEAR:FAR", "picture_mass") as [B, T] at trained tokens, 0
    elsewhere.
    """
    scores = {n: torch.zeros(batch["ids"].shape, device=batch["ids"].device) for n in needs}
    if not needs:
        return scores
    config, T = model.causal.config.get_text_config(), batch["ids"].shape[1]
    size = max(1, NUMBERS // (T * T * config.num_attention_heads * config.num_hidden_layers))
    before = config._attn_implementation
    model.causal.set_attn_implementation("eager")  # the only one that gives its maps
    try:
        for rows in torch.arange(len(batch.unit_B)).split(size):
            part = batch.part(rows.to(batch["ids"].device))
            maps = read_maps(model, part["ids"], Seen.in_batch(part))
            for i, row in enumerate(rows.tolist()):
                n, on_T = int(part["length"][i]), part.mask[i] > 0
                local_TT, global_TT = split_heads(maps[i, :, :n, :n], on_T[:n])
                for need in needs:
                    name, *parameters = need.split(":")
                    score_T = (
                        picture_mass(maps[i, :, :n, :n], part["ids"][i, :n])
                        if name == PICTURE_MASS
                        else SCORES[name](local_TT, global_TT, on_T[:n], *map(int, parameters))
                    )
                    scores[need][row, :n] = torch.where(on_T[:n], score_T, 0.0).to(
                        scores[need].dtype
                    )
    finally:
        model.causal.set_attn_implementation(before)
    return scores


def read_maps(model: Any, ids_BT: Tensor, seen: Seen | None = None) -> Tensor:
    """[B, layers * heads, T, T] of the chosen layers."""
    every = model.attention(ids_BT, seen)
    if not every or every[0] is None:
        raise UserError(
            f"{model.name} gives no attention maps, which this method needs; use a model with "
            "attention"
        )
    L = len(every)
    chosen = {min(L - 1, round(L / 3 + L / 3 * i / (LAYERS - 1))) for i in range(LAYERS)}
    return torch.cat([every[i] for i in sorted(chosen)], 1)
