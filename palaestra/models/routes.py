"""Which experts of a mixture were taken for the tokens of rows: how samples and rows keep it. What it is
for, and the letters of shapes: `models.routing`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from palaestra.types import ExpertChoices, Row

NARROW = 256  # experts whose numbers fit in a byte


def choices_from(chosen_NLK: np.ndarray, ids: Sequence[int], experts: int) -> ExpertChoices:
    """What a sample keeps of the choices for the first N tokens of its context."""
    n, layers, top = chosen_NLK.shape
    wide = experts > NARROW
    data = chosen_NLK.astype("<u2" if wide else "u1").tobytes()
    return ExpertChoices(
        start=0, layers=layers, top=top, wide=wide, digest=_digest(ids[:n]), data=data
    )


def later_choices(row: Row, choices: ExpertChoices | None) -> ExpertChoices | None:
    """The part of a sample's choices that its row does not have yet: those of a token are kept once,
    as they were when it was first sampled after.
    """
    if choices is None:
        return None
    known = max((s.experts.end for s in row.segments if s.experts is not None), default=0)
    gone = max(known - choices.start, 0)
    return replace(
        choices, start=choices.start + gone, data=choices.data[gone * choices.token_bytes :]
    )


def _digest(ids: Sequence[int]) -> int:
    return zlib.crc32(np.asarray(ids, "<i8").tobytes())


def experts_of(row: Row) -> Mapping[str, np.ndarray]:
    """[T, L, K] of the training view by the learner that sampled, -1 where nothing is recorded. Choices
    whose context is not that of the row, as where a prompt was replaced or a turn was cut, are left out.
    """
    if all(s.experts is None for s in row.segments):
        return {}
    ids, columns = row.context(), dict[str, np.ndarray]()
    for s in row.segments:
        c = s.experts
        if c is None or c.end > len(ids) or _digest(ids[: c.end]) != c.digest:
            continue
        shape = (len(ids), c.layers, c.top)
        known_TLK = columns.setdefault(s.policy, np.full(shape, -1, np.int16))
        given = np.frombuffer(c.data, "<u2" if c.wide else "u1").reshape(-1, *shape[1:])
        known_TLK[c.start : c.end] = given
    seen_T = np.concatenate([np.full(len(s.ids), not s.hidden) for s in row.segments])
    return {name: known_TLK[seen_T] for name, known_TLK in columns.items()}
