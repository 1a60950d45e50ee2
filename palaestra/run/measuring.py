"""What frozen or unmoved models say of the rows of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from palaestra.models.model import Model
from palaestra.rollout.privileged import Read, back_in_place
from palaestra.types import TRACK_PREFIX, Batch, Example, Groups, Need, Row, Signals
from palaestra.update import MEASURE_BUDGET, pack, split

Place: TypeAlias = tuple[int, int, int]  # the numbers of a group, an episode, a row


class Measures(Protocol):
    """What of a context is needed: its models, and what they say of parts of a batch."""

    def model(self, name: str) -> Model: ...
    def outputs(
        self, name: str, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> Iterable[dict[str, np.ndarray]]: ...


@torch.no_grad()
def measure(
    ctx: Measures, groups: Groups, needs: Sequence[Need], readers: Mapping[str, Read]
) -> Signals:
    """Each need of each row as a [T] array "model_quantity", 0 where not trained; e.g. ("ref",
    "logp") -> "ref_logp".

    Features of whole rows are [1, D], distributions [T, V]. An episode's fact "exponent" is
    that of its "power_logp". `readers` say how models read the rows that they see otherwise.
    """
    signals: Signals = [[[{} for _ in e.rows] for e in g.episodes] for g in groups]
    rows: dict[Place, Row] = {
        (g, e, r): row
        for g, group in enumerate(groups)
        for e, episode in enumerate(group.episodes)
        for r, row in enumerate(episode.rows)
    }
    places = list(rows)
    blank: dict[str, tuple[int, ...]] = {}  # shapes of features
    as_it_is = pack_rows(groups, rows) if any(m not in readers for m, _ in needs) else None
    for model in dict.fromkeys(m for m, _ in needs):
        quantities = [q for m, q in needs if m == model]
        seen, batch, read = rows, as_it_is, readers.get(model)
        if read is not None:
            seen = {at: read(groups[at[0]], at[1], row) for at, row in rows.items()}
            batch = pack_rows(groups, seen)
        for number, said in model_says(ctx, model, quantities, batch) if batch else ():
            at = places[number]
            blank |= {f"{model}_{k}": v.shape for k, v in said.items() if v.ndim == 2}
            g, e, r = at
            for k, v in said.items():
                placed = v if read is None else back_in_place(v, rows[at])
                signals[g][e][r][f"{model}_{k}"] = placed
            if read is not None:
                more_T = np.full(len(rows[at].view().ids_T), float(seen[at] is not rows[at]))
                signals[g][e][r][f"{TRACK_PREFIX}privileged"] = more_T
    for (g, e, r), row in rows.items():  # rows without a trained token have nothing to measure
        known = signals[g][e][r]
        missing = [f"{m}_{q}" for m, q in needs if f"{m}_{q}" not in known]
        T = len(row.view().ids_T)
        shapes = {k: blank.get(k, (T,)) for k in missing}
        known |= {k: np.zeros(s if s[0] == 1 else (T, *s[1:])) for k, s in shapes.items()}
    return signals


def pack_rows(groups: Groups, rows: Mapping[Place, Row]) -> Batch | None:
    """The rows that have a trained token, with their numbers as the column "place"; None = none has."""
    return pack(
        [
            Example(
                row=row,
                columns={
                    "place": float(i),
                    "exponent": float(groups[g].episodes[e].facts.get("exponent", 1.0)),
                },
            )
            for i, ((g, e, _), row) in enumerate(rows.items())
        ]
    )


def model_says(
    ctx: Measures, model: str, quantities: Sequence[str], batch: Batch
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """What a model says of each row of a batch, by the row's number."""
    parts = split(batch, MEASURE_BUDGET, whole_units=False, packed=ctx.model(model).packs)
    for numbers, out in zip(parts, ctx.outputs(model, quantities, batch, parts), strict=True):
        part = batch.part(numbers)
        for i, (place, length) in enumerate(
            zip(part["place"].long().tolist(), part["length"].tolist(), strict=True)
        ):
            yield place, {q: out[q][i, :length] for q in quantities}
