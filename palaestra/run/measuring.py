"""What frozen or unmoved models say of the rows of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from palaestra.models.model import Model
from palaestra.types import Batch, Example, Groups, Need, Signals
from palaestra.update import MEASURE_BUDGET, pack, split


class Measures(Protocol):
    """What of a context is needed: its models, and what they say of parts of a batch."""

    def model(self, name: str) -> Model: ...
    def outputs(
        self, name: str, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> Iterable[dict[str, np.ndarray]]: ...


@torch.no_grad()
def measure(ctx: Measures, groups: Groups, needs: Sequence[Need]) -> Signals:
    """Each need of each row as a [T] array "model_quantity", 0 where not trained; e.g. ("ref",
    "logp") -> "ref_logp".

    Features of whole rows are [1, D], distributions [T, V]. An episode's fact "exponent" is
    that of its "power_logp".
    """
    signals: Signals = [[[{} for _ in e.rows] for e in g.episodes] for g in groups]
    places = [
        (g, e, r)
        for g, rows in enumerate(signals)
        for e, each in enumerate(rows)
        for r in range(len(each))
    ]
    examples = [
        Example(
            row=groups[g].episodes[e].rows[r],
            columns={
                "place": float(i),
                "exponent": float(groups[g].episodes[e].facts.get("exponent", 1.0)),
            },
        )
        for i, (g, e, r) in enumerate(places)
    ]
    batch = pack(examples) if needs else None
    if batch is None:
        return signals
    blank: dict[str, tuple[int, ...]] = {}  # shapes of features
    for model in dict.fromkeys(m for m, _ in needs):
        quantities = [q for m, q in needs if m == model]
        parts = split(batch, MEASURE_BUDGET, whole_units=False, packed=ctx.model(model).packs)
        columns = ctx.outputs(model, quantities, batch, parts)
        for rows, out in zip(parts, columns, strict=True):
            part = batch.part(rows)
            blank |= {f"{model}_{k}": v.shape[1:] for k, v in out.items() if v.ndim == 3}
            for i, (place, length) in enumerate(
                zip(part["place"].long().tolist(), part["length"].tolist(), strict=True)
            ):
                g, e, r = places[place]
                for q in quantities:
                    signals[g][e][r][f"{model}_{q}"] = out[q][i, :length]
    for g, e, r in places:  # rows without a trained token have nothing to measure
        row = signals[g][e][r]
        missing = [f"{m}_{q}" for m, q in needs if f"{m}_{q}" not in row]
        T = len(groups[g].episodes[e].rows[r].view().ids_T)
        shapes = {k: blank.get(k, (T,)) for k in missing}
        row |= {k: np.zeros(s if s[0] == 1 else (T, *s[1:])) for k, s in shapes.items()}
    return signals
