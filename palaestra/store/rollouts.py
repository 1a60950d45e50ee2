"""Rollouts as Parquet: one line per trajectory, `rollouts/step-NNNNNN.parquet`.

`rows` holds the contexts that were really seen, token by token: `logp` is null where unknown,
`advantage` where the token is not in the training view or has no credit. A line's `advantage` is
the mean over its trained tokens.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.pictures import by_digest
from palaestra.store.checkpoint import disk_errors, jsonable, write_atomic
from palaestra.types import Episode, Group, Key, Row

PICTURE = pa.struct(
    {
        "height": pa.int32(),
        "width": pa.int32(),
        "channels": pa.int32(),
        "data": pa.binary(),  # 8 bits a channel, row by row
    }
)
ROW = pa.struct(
    {
        "seat": pa.string(),
        "thread": pa.string(),
        "ids": pa.list_(pa.int64()),  # from 2**62 on they are places of pictures
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
        "solved": pa.bool_(),  # null where the reward does not say it
        "reward_parts": pa.string(),  # JSON
        "advantage": pa.float64(),
        "policy_version": pa.int32(),  # the newest among its tokens
        "n_tokens": pa.int32(),  # sampled
        "facts": pa.string(),  # JSON
        "pictures": pa.list_(PICTURE),  # those that ids of its rows are places of, each once
        "rows": pa.list_(ROW),
    }
)


# in the file's own metadata where it holds some of the step's episodes: how many there were
SAMPLED_FROM = b"palaestra.sampled_from"


def path(run: Path, step: int) -> Path:
    return Path(run) / "rollouts" / f"step-{step:06d}.parquet"


def evaluation_path(run: Path, name: str, step: int) -> Path:
    """Where the attempts of an evaluation stand that was made after a step."""
    return Path(run) / "evaluations" / name / f"step-{step:06d}.parquet"


def sampled_from(file: Path) -> int | None:
    """How many episodes the step of a file had, where it holds some of them; None = it holds all."""
    found = (pq.read_schema(file).metadata or {}).get(SAMPLED_FROM)
    return None if found is None else int(found)


def kept(which: str) -> int | None:
    """How many episodes of a step are written: "all" (None), "sample:N" or "none" (0)."""
    return None if which == "all" else int(which.removeprefix("sample:")) if which != "none" else 0


def remove_after(run: Path, step: int) -> None:
    """Removes the rollouts of later steps, and the attempts of evaluations after these: they belong
    to a future that was left.
    """
    with disk_errors(f"removing rollouts in {run}"):
        files = Path(run).glob("evaluations/*/step-*.parquet")
        for file in (*(Path(run) / "rollouts").glob("step-*.parquet"), *files):
            number = file.stem.removeprefix("step-")
            if number.isdecimal() and int(number) > step:
                file.unlink()


def write(
    file: Path,
    step: int,
    groups: Sequence[Group],
    advantages: Mapping[Key, Any],
    decode: Callable[[Sequence[int]], str],
    keep: int | None = None,
    rng: np.random.Generator | None = None,
) -> None:
    """A step's file, see `encode`."""
    with disk_errors(f"writing {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, encode(step, groups, advantages, decode, keep, rng))


def encode(
    step: int,
    groups: Sequence[Group],
    advantages: Mapping[Key, Any],
    decode: Callable[[Sequence[int]], str],
    keep: int | None = None,
    rng: np.random.Generator | None = None,
) -> bytes:
    """The bytes of a step's file.

    Args:
        advantages: maps the key of a row to a number or an array [T] over its training view; ValueError on
            another T.
        keep: at most so many episodes, see `sample`; None = all.
        rng: draws them.
    """
    lines = [
        (g, i, group, e) for g, group in enumerate(groups) for i, e in enumerate(group.episodes)
    ]
    total = len(lines)
    if keep is not None and keep < total:
        lines = sample(lines, keep, rng or np.random.default_rng(0))
    rows = [r for *_, e in lines for r in e.rows]
    tokens = TokenColumns(rows, advantages)
    row_L = np.cumsum([0, *(len(e.rows) for *_, e in lines)])
    place = {"step": step}
    plain = [
        place
        | {"group": g, "sample": i}
        | _line(group, e, tokens.trained_credit(*row_L[n : n + 2]))
        for n, (g, i, group, e) in enumerate(lines)
    ]
    nested = pa.ListArray.from_arrays(pa.array(row_L, pa.int32()), tokens.as_arrow(decode))
    table = pa.Table.from_pylist(plain, schema=SCHEMA.remove(SCHEMA.get_field_index("rows")))
    table = table.append_column(SCHEMA.field("rows"), nested)
    if len(lines) < total:
        table = table.replace_schema_metadata({SAMPLED_FROM: str(total)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


Line: TypeAlias = tuple[int, int, Group, Episode]  # number of the group, and in it


def sample(lines: Sequence[Line], keep: int, rng: np.random.Generator) -> list[Line]:
    """At most `keep` of the episodes, in their order: whole groups, drawn at random, as long as they
    fit, for an answer says most beside the others; of groups that are larger the first of one.
    """
    groups: dict[int, list[Line]] = {}
    for line in lines:
        groups.setdefault(line[0], []).append(line)
    order = [[*groups.values()][i] for i in rng.permutation(len(groups))]
    found: list[Line] = []
    for group in order:
        found += group if len(found) + len(group) <= keep else []
    found = found or order[0][:keep]
    return sorted(found, key=lambda line: line[:2])


class TokenColumns:
    """The tokens of R rows, one after another: N in all, of S segments."""

    def __init__(self, rows: Sequence[Row], advantages: Mapping[Key, Any]):
        self.rows = rows
        self.segments = [s for r in rows for s in r.segments]
        self.length_S = np.array([len(s.ids) for s in self.segments], np.int64)
        length_R = [sum(len(s.ids) for s in r.segments) for r in rows]
        self.start_R = np.cumsum([0, *length_R])  # R + 1, the end of the last among them
        hidden_S = [s.hidden for s in self.segments]
        self.hidden_N = self.spread(hidden_S, np.bool_)
        self.trained_N = self.spread([s.trained for s in self.segments], np.bool_) & ~self.hidden_N
        self.credited_N = np.zeros(len(self.hidden_N), np.bool_)
        self.credit_N = np.zeros(len(self.hidden_N))
        for n, row in enumerate(rows):
            if (given := advantages.get(row.key)) is not None:
                of = slice(*self.start_R[n : n + 2])
                seen_T = ~self.hidden_N[of]
                self.credited_N[of] = seen_T
                self.credit_N[of][seen_T] = np.broadcast_to(given, int(seen_T.sum()))

    def spread(self, values_S: Sequence[Any], dtype: type) -> np.ndarray:
        """[N] of every token, what its segment has."""
        return np.repeat(np.array(values_S, dtype), self.length_S)

    def trained_credit(self, first: int, end: int) -> np.ndarray:
        """The advantages of the trained tokens of rows first ... end - 1, where they have one."""
        of = slice(self.start_R[first], self.start_R[end])
        return self.credit_N[of][self.trained_N[of] & self.credited_N[of]]

    def as_arrow(self, decode: Callable[[Sequence[int]], str]) -> pa.StructArray:
        """[R] of `ROW`."""
        ids_N = np.fromiter((i for s in self.segments for i in s.ids), np.int64, len(self.hidden_N))
        kinds, kind_N = np.unique(ids_N, return_inverse=True)  # most tokens come many times
        logp_S = ([np.nan] * len(s.ids) if s.logp is None else s.logp for s in self.segments)
        logp_N = np.fromiter((x for logp in logp_S for x in logp), np.float64, len(ids_N))
        authors = list(dict.fromkeys(s.author for s in self.segments))
        author_S = [authors.index(s.author) for s in self.segments]
        texts = pa.array([decode((i,)) for i in kinds.tolist()], pa.string())
        of_tokens = {
            "ids": pa.array(ids_N),
            "tokens": texts.take(pa.array(kind_N)),
            "trained": pa.array(self.trained_N),
            "hidden": pa.array(self.hidden_N),
            "logp": pa.array(logp_N, pa.float32(), mask=np.isnan(logp_N)),
            "advantage": pa.array(self.credit_N, pa.float32(), mask=~self.credited_N),
            "author": pa.DictionaryArray.from_arrays(
                pa.array(self.spread(author_S, np.int8)), pa.array(authors, pa.string())
            ),
            "turn": pa.array(self.spread([s.turn for s in self.segments], np.int16)),
        }
        offsets = pa.array(self.start_R, pa.int32())
        columns: dict[str, pa.Array] = {
            "seat": pa.array([r.seat for r in self.rows], pa.string()),
            "thread": pa.array([r.thread for r in self.rows], pa.string()),
        }
        columns |= {k: pa.ListArray.from_arrays(offsets, v) for k, v in of_tokens.items()}
        return pa.StructArray.from_arrays([columns[f.name] for f in ROW], fields=list(ROW))


def _pictures(e: Episode) -> list[dict[str, Any]]:
    names = ("height", "width", "channels")
    known = by_digest(p for r in e.rows for p in r.pictures)
    return [dict(zip(names, p.shape, strict=True)) | {"data": p.data} for p in known.values()]


def _line(group: Group, e: Episode, credit: np.ndarray) -> dict[str, Any]:
    """What is said of an episode, but for its rows."""
    versions = [v for r in e.rows for s in r.segments for _, v in s.versions]
    answer = group.task.answer
    return {
        "task_id": group.task.id,
        "domain": group.task.domain,
        "prompt": "\n".join(m.shown for m in group.task.prompt),
        "answer": answer
        if answer is None or isinstance(answer, str)
        else json.dumps(jsonable(answer), default=str),
        "text": e.text,
        "status": e.status,
        "muted": e.muted,
        "reward": e.reward.total if e.reward else None,
        "solved": e.reward.solved if e.reward else None,
        "reward_parts": json.dumps(jsonable(e.reward.parts)) if e.reward else None,
        "advantage": float(np.mean(credit)) if len(credit) else None,
        "policy_version": max(versions, default=None),
        "n_tokens": e.n_sampled,
        "facts": json.dumps(jsonable(e.facts), default=str),
        "pictures": _pictures(e),
    }
