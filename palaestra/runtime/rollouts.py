"""Rollouts as Parquet: one line per trajectory, `rollouts/step-NNNNNN.parquet`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.runtime.checkpoint import write_atomic
from palaestra.types import Episode, Group, Row

ROW = pa.struct(
    {
        "ids": pa.list_(pa.int32()),
        "tokens": pa.list_(pa.string()),
        "trained": pa.list_(pa.bool_()),
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
        "text": pa.string(),
        "status": pa.string(),
        "muted": pa.bool_(),
        "reward": pa.float64(),
        "reward_parts": pa.string(),
        "advantage": pa.float64(),
        "policy_version": pa.int32(),
        "n_tokens": pa.int32(),
        "facts": pa.string(),
        "rows": pa.list_(ROW),
    }
)


def path(run: Path, step: int) -> Path:
    return run / "rollouts" / f"step-{step:06d}.parquet"


def write(
    file: Path, step: int, groups: Sequence[Group], advantages: Mapping[int, Any], decode: Callable[[Sequence[int]], str]
) -> None:
    """`advantages` maps id(row) to [T] over the row's training view; hidden tokens and rows without credit have none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pieces: dict[int, str] = {}
    lines = [
        _line(step, g, i, group, e, advantages, decode, pieces) for g, group in enumerate(groups) for i, e in enumerate(group.episodes)
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(lines, schema=SCHEMA), buffer, compression="zstd")
    write_atomic(file, buffer.getvalue())


def read(run: Path, step: int | None = None) -> pa.Table:
    """One step's lines, or all of a run's."""
    files = [path(run, step)] if step is not None else sorted((run / "rollouts").glob("step-*.parquet"))
    return pa.concat_tables([pq.read_table(f) for f in files]) if files else SCHEMA.empty_table()


def _line(
    step: int, g: int, i: int, group: Group, e: Episode, advantages: Mapping[int, Any], decode: Callable[[Sequence[int]], str], pieces: dict[int, str]
) -> dict[str, Any]:
    rows = [_row(r, advantages.get(id(r)), decode, pieces) for r in e.rows]
    credit = [a for r in rows for a, t in zip(r["advantage"], r["trained"], strict=True) if t and a is not None]
    versions = [s.version for r in e.rows for s in r.segments if s.version is not None]
    return {
        "step": step,
        "group": g,
        "sample": i,
        "task_id": group.task.id,
        "domain": group.task.domain,
        "prompt": "\n".join(m.content for m in group.task.prompt),
        "text": e.text,
        "status": e.status,
        "muted": e.muted,
        "reward": e.reward.total if e.reward else None,
        "reward_parts": json.dumps(dict(e.reward.parts)) if e.reward else None,
        "advantage": float(np.mean(credit)) if credit else None,
        "policy_version": max(versions, default=None),
        "n_tokens": e.n_sampled,
        "facts": json.dumps(dict(e.facts), default=str),
        "rows": rows,
    }


def _row(row: Row, advantage_T: Any, decode: Callable[[Sequence[int]], str], pieces: dict[int, str]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {name: [] for name in ("ids", "tokens", "trained", "logp", "advantage", "author", "turn")}
    at = 0
    for s in row.segments:
        n = len(s.ids)
        for token in s.ids:
            if token not in pieces:
                pieces[token] = decode((token,))
        credit = [None] * n if s.hidden or advantage_T is None else [float(a) for a in advantage_T[at : at + n]]
        at += 0 if s.hidden else n
        out["ids"] += s.ids
        out["tokens"] += [pieces[t] for t in s.ids]
        out["trained"] += [s.trained] * n
        out["logp"] += [None] * n if s.logp is None else s.logp
        out["advantage"] += credit
        out["author"] += [s.author] * n
        out["turn"] += [s.turn] * n
    return out
