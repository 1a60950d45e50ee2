"""What frozen or unmoved models say of the rows of a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from palaestra.chat.dialect import Chat
from palaestra.errors import UserError
from palaestra.models.model import NO_BOUND, Model
from palaestra.objective.divergence import TOP
from palaestra.rollout.privileged import PrivilegedReader, back_in_place
from palaestra.rollout.respelled import RespelledScores, respell
from palaestra.services.chat.scoring import Scorer
from palaestra.types import (
    SPAN,
    SPAN_LOGP,
    TRACK_PREFIX,
    Batch,
    Example,
    Groups,
    Need,
    Row,
    Signals,
)
from palaestra.update import MEASURE_BUDGET, pack, split

Place: TypeAlias = tuple[int, int, int]  # the numbers of a group, an episode, a row


class Measures(Protocol):
    """What of a context is needed: its models, what they say of parts of a batch, and endpoints that
    stand for models.
    """

    @property
    def scorers(self) -> Mapping[str, Scorer]: ...
    def model(self, name: str) -> Model: ...
    def dialect(self, name: str) -> Chat: ...
    def outputs(
        self, name: str, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> Iterable[dict[str, np.ndarray]]: ...


@torch.no_grad()
def measure(
    ctx: Measures, groups: Groups, needs: Sequence[Need], readers: Mapping[str, PrivilegedReader]
) -> Signals:
    """Each need of each row as a [T] array "model_quantity", 0 where not trained; e.g. ("ref",
    "logp") -> "ref_logp".

    Features of whole rows are [1, D], distributions [T, V]. An episode's fact "exponent" is
    that of its "power_logp". `readers` say how models read the rows that they see otherwise. A model of
    which "span_logp" is asked reads the texts of rows in its own tokens.
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
        if SPAN_LOGP in quantities:
            measure_spans(ctx, groups, rows, model, readers.get(model), signals)
            quantities = [q for q in quantities if q not in (SPAN, SPAN_LOGP)]
        seen, batch, read = rows, as_it_is, readers.get(model)
        if read is not None:
            seen = {at: read(groups[at[0]], at[1], row) for at, row in rows.items()}
            batch = pack_rows(groups, seen)
        for number, outputs in model_says(ctx, model, quantities, batch):
            at = places[number]
            blank |= {f"{model}_{k}": v.shape for k, v in outputs.items() if v.ndim == 2}
            g, e, r = at
            for k, v in outputs.items():
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


def measure_spans(
    ctx: Measures,
    groups: Groups,
    rows: Mapping[Place, Row],
    model: str,
    reader: PrivilegedReader | None,
    signals: Signals,
) -> None:
    """Adds to the signals of rows with a trained token the spans that they share with what the model
    reads, what it says of these, and for the log which tokens stand in a span of one token of each
    ("aligned"), in a longer one ("coarse"), or in none ("lost"). A row that is too long for it is lost.
    """
    own, theirs = ctx.dialect("policy"), ctx.dialect(model)
    room = NO_BOUND if model in ctx.scorers else ctx.model(model).context
    read: dict[Place, RespelledScores] = {}
    for at, row in rows.items():
        group = groups[at[0]]
        if any(s.trained and s.ids for s in row.segments):
            other_task = reader.task(group, at[1], row) if reader else None
            read[at] = respell(row, group.task, other_task or group.task, own, theirs)
            if reader:
                more_T = np.full(len(row.view().ids_T), float(other_task is not None))
                signals[at[0]][at[1]][at[2]][f"{TRACK_PREFIX}privileged"] = more_T
    seen = {at: x.row for at, x in read.items() if len(x.row.context()) <= room}
    batch, places = pack_rows(groups, seen), list(seen)
    logps = {places[i]: out["logp"] for i, out in model_says(ctx, model, ["logp"], batch)}
    for at, x in read.items():
        g, e, r = at
        alignment, trained_T = x.alignment, rows[at].view().trained_T
        if at not in logps:
            alignment = replace(alignment, own_T=np.zeros_like(alignment.own_T))
        span_T = alignment.own_T
        sums = alignment.sums(logps[at]) if at in logps else np.zeros(1)
        own_n, their_n = alignment.sizes()
        one_T = (own_n == 1)[span_T] & (their_n == 1)[span_T] & (span_T > 0)
        signals[g][e][r] |= {
            f"{model}_{SPAN}": span_T.astype(float),
            f"{model}_{SPAN_LOGP}": np.where(span_T > 0, sums[span_T], 0.0),
            f"{TRACK_PREFIX}aligned": one_T.astype(float),
            f"{TRACK_PREFIX}coarse": ((span_T > 0) & ~one_T).astype(float),
            f"{TRACK_PREFIX}lost": ((span_T == 0) & trained_T).astype(float),
        }


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
    ctx: Measures, model: str, quantities: Sequence[str], batch: Batch | None
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """What a model says of each row of a batch, by the row's number; None = there are no rows."""
    if batch is None or not quantities:
        return
    if model in ctx.scorers:
        yield from endpoint_says(ctx.scorers[model], model, quantities, batch)
        return
    parts = split(batch, MEASURE_BUDGET, whole_units=False, packed=ctx.model(model).packs)
    for numbers, out in zip(parts, ctx.outputs(model, quantities, batch, parts), strict=True):
        part = batch.part(numbers)
        for i, (place, length) in enumerate(
            zip(part["place"].long().tolist(), part["length"].tolist(), strict=True)
        ):
            yield place, {q: out[q][i, :length] for q in quantities}


def check_sayable(model: str, quantities: Iterable[str]) -> None:
    """Raises UserError for what an endpoint cannot say."""
    sayable = ("logp", SPAN, SPAN_LOGP)
    if strange := [q for q in quantities if q not in sayable and not q.startswith(f"{TOP}:")]:
        raise UserError(
            f"{model}: an endpoint cannot say {strange[0]}; it says how likely the tokens of a text are "
            "(over=tokens), and its likeliest ones (top=K)"
        )


def refuse_temperature(model: str, where: str = "") -> NoReturn:
    raise UserError(
        f"{model}: an endpoint says how likely tokens are at temperature 1; {where}take "
        "sample.temperature=1"
    )


def refuse_pictures(model: str) -> NoReturn:
    raise UserError(
        f"{model}: an endpoint is sent the ids of tokens alone, and a prompt holds a picture or a "
        "sound; give a folder"
    )


def endpoint_says(
    scorer: Scorer, model: str, quantities: Sequence[str], batch: Batch
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """`model_says` of an endpoint. Raises UserError for what it cannot say."""
    check_sayable(model, quantities)
    tops = {q: int(q.partition(":")[2]) for q in quantities if q.startswith(f"{TOP}:")}
    trained = batch.mask > 0
    if bool((batch["temperature"][trained] != 1).any()):
        refuse_temperature(model)
    if "picture" in batch.columns:
        refuse_pictures(model)
    texts = [
        ids[:n] for ids, n in zip(batch["ids"].tolist(), batch["length"].tolist(), strict=True)
    ]
    scores = scorer(texts, max(tops.values(), default=0))
    for i, (place, s) in enumerate(zip(batch["place"].long().tolist(), scores, strict=True)):
        trained_T = trained[i, : len(s.logp_T)].cpu().numpy()
        out = {"logp": s.logp_T * trained_T} if "logp" in quantities else {}
        for q, k in tops.items():
            pair_TK = (s.top_logp_TK[:, :k], s.top_ids_TK[:, :k])
            out[q] = np.concatenate(pair_TK, 1) * trained_T[:, None]
        yield place, out
