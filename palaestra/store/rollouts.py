"""Rollouts as Parquet: one line per trajectory, `rollouts/step-NNNNNN.parquet`.

`rows` holds the contexts that were really seen, token by token: `logp` is null where unknown,
`advantage` where the token is not in the training view or has no credit. A line's `advantage` is
the mean over its trained tokens.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.store.checkpoint import disk_errors, jsonable, write_atomic
from palaestra.types import Episode, Group, Row

ROW = pa.struct(
    {
        "seat": pa.string(),
        "thread": pa.string(),
        "ids": pa.list_(pa.int32()),
        "tokens": pa.list_(pa.string()),
        "trained": pa.list_(pa.bool_()),
        "hidden": pa.list_(pa.bool_()),
        "logp": pa.list_(pa.float32()),
        "advantage": pa.list_(pa.float32()),
        "author": pa.list_(pa.dictionary(pa.int8(), pa.string())),
        "turn": pa.list_(pa.int16()),
    }
)
SCHEMA = pa.schema(
    {
        "step": pa.int32(),
        "group": pa.int32(),
        "sample": pa.int32(),
        "task_id": pa.string(),
        "domain": pa.string(),
        "prompt": pa.string(),
        "answer": pa.string(),  # the reference: text as it is, anything else as JSON
        "text": pa.string(),  # what was sampled
        "status": pa.string(),
        "muted": pa.bool_(),
        "reward": pa.float64(),
        "reward_parts": pa.string(),  # JSON
        "advantage": pa.float64(),
        "policy_version": pa.int32(),  # the newest among its tokens
        "n_tokens": pa.int32(),  # sampled
        "facts": pa.string(),  # JSON
        "rows": pa.list_(ROW),
    }
)


def path(run: Path, step: int) -> Path:
    return Path(run) / "rollouts" / f"step-{step:06d}.parquet"


def write(
    file: Path,
    step: int,
    groups: Sequence[Group],
    advantages: Mapping[int, Any],
    decode: Callable[[Sequence[int]], str],
) -> None:
    """`advantages` maps id(row) to a number or an array [T] over its training view; ValueError on
    another T.
    """
    with disk_errors(f"writing {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
    pieces: dict[int, str] = {}  # most tokens come many times

    def piece(token: int) -> str:
        if token not in pieces:
            pieces[token] = decode((token,))
        return pieces[token]

    lines = [
        {
            "step": step,
            "group": g,
            "sample": i,
            **_line(group, e, [_row(r, advantages.get(id(r)), piece) for r in e.rows]),
        }
        for g, group in enumerate(groups)
        for i, e in enumerate(group.episodes)
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(lines, schema=SCHEMA), buffer, compression="zstd")
    write_atomic(file, buffer.getvalue())


def _line(group: Group, e: Episode, rows: list[dict[str, Any]]) -> dict[str, Any]:
    credit = [
        a
        for r in rows
        for a, t in zip(r["advantage"], r["trained"], strict=True)
        if t and a is not None
    ]
    versions = [s.version for r in e.rows for s in r.segments if s.version is not None]
    answer = group.task.answer
    return {
        "task_id": group.task.id,
        "domain": group.task.domain,
        "prompt": "\n".join(m.content for m in group.task.prompt),
        "answer": answer
        if answer is None or isinstance(answer, str)
        else json.dumps(jsonable(answer), default=str),
        "text": e.text,
        "status": e.status,
        "muted": e.muted,
        "reward": e.reward.total if e.reward else None,
        "reward_parts": json.dumps(jsonable(e.reward.parts)) if e.reward else None,
        "advantage": float(np.mean(credit)) if credit else None,
        "policy_version": max(versions, default=None),
        "n_tokens": e.n_sampled,
        "facts": json.dumps(jsonable(e.facts), default=str),
        "rows": rows,
    }


def _row(row: Row, advantage: Any, piece: Callable[[int], str]) -> dict[str, Any]:
    seen = sum(len(s.ids) for s in row.segments if not s.hidden)
    credit = iter([None] * seen if advantage is None else np.broadcast_to(advantage, seen).tolist())
    tokens = [(s, token, at) for s in row.segments for at, token in enumerate(s.ids)]
    return {
        "seat": row.seat,
        "thread": row.thread,
        "ids": [token for _, token, _ in tokens],
        "tokens": [piece(token) for _, token, _ in tokens],
        "trained": [s.trained and not s.hidden for s, _, _ in tokens],
        "hidden": [s.hidden for s, _, _ in tokens],
        "logp": [
            None if s.logp is None or math.isnan(s.logp[at]) else s.logp[at] for s, _, at in tokens
        ],
        "advantage": [None if s.hidden else next(credit) for s, _, _ in tokens],
        "author": [s.author for s, _, _ in tokens],
        "turn": [s.turn for s, _, _ in tokens],
    }
