"""Rollouts as Parquet: how a step's file is made. What its columns are: `store.columns`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.pictures import Picture, by_digest
from palaestra.sounds import Sound
from palaestra.store.checkpoint import disk_errors, jsonable, write_atomic
from palaestra.store.columns import ROW, SAID, SAMPLED_FROM, SCHEMA, SCHEMA_VERSION, VERSION
from palaestra.types import Episode, Group, Key, Row, Segment, value_class


@value_class
class StepTrace:
    """What a step made of its episodes.

    Args:
        advantages: by the key of a row, a number or an array [T] over its training view.
        weights, ratios: likewise, see the columns; of what was not updated there are none.
        kept: by the key of a row, what became of its episode: "trained", "muted" (in the batch, and
            masked by the recipe), "no credit" (in the batch, and nothing to learn), "dropped:POOL"
            (the pool did not take its group), "held:POOL" (it waits there), or "stale".
    """

    advantages: Mapping[Key, Any] = field(default_factory=dict)
    weights: Mapping[Key, Any] = field(default_factory=dict)
    ratios: Mapping[Key, Any] = field(default_factory=dict)
    kept: Mapping[Key, str] = field(default_factory=dict)


NOTHING = StepTrace()


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
    trace: StepTrace,
    decode: Callable[[Sequence[int]], str],
    keep: int | None = None,
    rng: np.random.Generator | None = None,
) -> None:
    """A step's file, see `encode`."""
    with disk_errors(f"writing {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, encode(step, groups, trace, decode, keep, rng))


def encode(
    step: int,
    groups: Sequence[Group],
    trace: StepTrace,
    decode: Callable[[Sequence[int]], str],
    keep: int | None = None,
    rng: np.random.Generator | None = None,
) -> bytes:
    """The bytes of a step's file.

    Args:
        trace: what the step made of them. ValueError on an array of another T than its row's.
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
    tokens = TokenColumns(rows, trace)
    row_L = np.cumsum([0, *(len(e.rows) for *_, e in lines)])
    place = {"step": step}
    plain = [
        place
        | {"group": g, "sample": i}
        | _line(group, e, tokens.trained_credit(*row_L[n : n + 2]))
        | {"kept": next((trace.kept[r.key] for r in e.rows if r.key in trace.kept), None)}
        for n, (g, i, group, e) in enumerate(lines)
    ]
    nested = pa.ListArray.from_arrays(pa.array(row_L, pa.int32()), tokens.as_arrow(decode))
    table = pa.Table.from_pylist(plain, schema=SCHEMA.remove(SCHEMA.get_field_index("rows")))
    table = table.append_column(SCHEMA.field("rows"), nested)
    metadata = {SCHEMA_VERSION: str(VERSION)}
    metadata |= {SAMPLED_FROM: str(total)} if len(lines) < total else {}
    buffer = io.BytesIO()
    # one row group: pyarrow cannot read nested dictionaries (the authors) across several
    pq.write_table(table.replace_schema_metadata(metadata), buffer, compression="zstd")
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
    kept_lines: list[Line] = []
    for group in order:
        kept_lines += group if len(kept_lines) + len(group) <= keep else []
    kept_lines = kept_lines or order[0][:keep]
    return sorted(kept_lines, key=lambda line: line[:2])


class TokenColumns:
    """The tokens of R rows, one after another: N in all, of S segments."""

    def __init__(self, rows: Sequence[Row], trace: StepTrace):
        self.rows = rows
        self.segments = [s for r in rows for s in r.segments]
        self.length_S = np.array([len(s.ids) for s in self.segments], np.int64)
        length_R = [sum(len(s.ids) for s in r.segments) for r in rows]
        self.start_R = np.cumsum([0, *length_R])  # R + 1, the end of the last among them
        hidden_S = [s.hidden for s in self.segments]
        self.hidden_N = self.spread(hidden_S, np.bool_)
        self.trained_N = self.spread([s.trained for s in self.segments], np.bool_) & ~self.hidden_N
        self.n = len(self.hidden_N)
        self.credit_N, self.credited_N = self.gather(trace.advantages)
        self.weight_N, self.ratio_N = self.gather(trace.weights), self.gather(trace.ratios)

    def gather(self, given: Mapping[Key, Any]) -> tuple[np.ndarray, np.ndarray]:
        """[N] of what is given by row over the training view, and where there is some."""
        found_N, known_N = np.zeros(self.n), np.zeros(self.n, np.bool_)
        for n, row in enumerate(self.rows):
            if (values := given.get(row.key)) is not None:
                of = slice(*self.start_R[n : n + 2])
                seen_T = ~self.hidden_N[of]
                known_N[of] = seen_T
                found_N[of][seen_T] = np.broadcast_to(values, int(seen_T.sum()))
        return found_N, known_N

    def optional(self, gathered: tuple[np.ndarray, np.ndarray], on_N: np.ndarray) -> pa.Array:
        """A column of numbers, null where there is none."""
        values_N, known_N = gathered
        return pa.array(values_N, pa.float32(), mask=~(known_N & on_N & np.isfinite(values_N)))

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
        logp_S = ([np.nan] * len(s.ids) if s.logp is None else s.logp for s in self.segments)
        logp_N = np.fromiter((x for logp in logp_S for x in logp), np.float64, len(ids_N))
        authors = list(dict.fromkeys(s.author for s in self.segments))
        author_S = [authors.index(s.author) for s in self.segments]
        everywhere_N = np.ones(self.n, np.bool_)
        of_tokens = {
            "ids": pa.array(ids_N),
            "tokens": token_texts(ids_N, self.start_R, decode),
            "trained": pa.array(self.trained_N),
            "hidden": pa.array(self.hidden_N),
            "logp": pa.array(logp_N, pa.float32(), mask=np.isnan(logp_N)),
            "advantage": self.optional((self.credit_N, self.credited_N), everywhere_N),
            "weight": self.optional(self.weight_N, self.trained_N),
            "ratio": self.optional(self.ratio_N, self.trained_N),
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
        columns["said"] = pa.array([said_without_tokens(r) for r in self.rows], pa.list_(SAID))
        return pa.StructArray.from_arrays([columns[f.name] for f in ROW], fields=list(ROW))


def said_without_tokens(row: Row) -> list[dict[str, Any]]:
    """The segments of who has text alone, see `SAID`."""
    entries: list[dict[str, Any]] = []
    at = 0
    for s in row.segments:
        if s.text and not s.ids:
            entries.append({"at": at, "author": s.author, "turn": s.turn, "text": s.text})
        at += len(s.ids)
    return entries


UNREAD = "\ufffd"  # what decoders make of a part of a character


def token_texts(
    ids_N: np.ndarray, start_R: np.ndarray, decode: Callable[[Sequence[int]], str]
) -> pa.Array:
    """[N] the text that each token adds. Of a character that several tokens share, the last of them
    has it and the others are empty; what is no character at all stays U+FFFD.
    """
    kinds, kind_N = np.unique(ids_N, return_inverse=True)  # most tokens come many times
    alone = [decode((i,)) for i in kinds.tolist()]
    texts = pa.array(alone, pa.string()).take(pa.array(kind_N))
    broken_N = np.array([UNREAD in t for t in alone], np.bool_)[kind_N]
    if not broken_N.any():
        return texts
    joined: list[str] = texts.to_pylist()
    for start, end in pairwise(start_R):
        at = np.flatnonzero(broken_N[start:end]) + start
        for run in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if len(at) else []:
            joined[run[0] : run[-1] + 1] = _joined(ids_N[run].tolist(), decode)
    return pa.array(joined, pa.string())


def _joined(ids: list[int], decode: Callable[[Sequence[int]], str]) -> list[str]:
    """What each of some neighbours adds to the text of those before it."""
    pieces, text = list[str](), ""
    for i in range(len(ids)):
        whole = decode(tuple(ids[: i + 1]))
        ends = i + 1 == len(ids)
        read = whole if ends else whole.rstrip(UNREAD)  # the last bytes may be continued
        piece = read[len(text) :] if read.startswith(text) else ""
        pieces.append(piece)
        text += piece
    return pieces


def _pictures(e: Episode) -> list[dict[str, Any]]:
    names = ("height", "width", "channels")
    return [dict(zip(names, p.shape, strict=True)) | {"data": p.data} for p in _media(e, False)]


def _sounds(e: Episode) -> list[dict[str, Any]]:
    return [{"rate": s.rate, "data": s.data} for s in _media(e, True) if isinstance(s, Sound)]


def _media(e: Episode, heard: bool) -> list[Picture]:
    """Its sounds or its pictures, each once."""
    known = by_digest(p for r in e.rows for p in r.pictures)
    return [p for p in known.values() if isinstance(p, Sound) == heard]


def sampled_turns(e: Episode) -> Iterator[list[Segment]]:
    """What was sampled: the segments of each turn, row by row."""
    for row in e.rows:
        sampled = (s for s in row.segments if s.logp is not None)
        for _, turn in groupby(sampled, key=lambda s: s.turn):
            yield list(turn)


def _text(e: Episode) -> str:
    """What was sampled, a line of its own for every turn."""
    return "\n".join("".join(s.text for s in turn) for turn in sampled_turns(e))


def reference_text(answer: Any) -> str | None:
    """A task's answer as the column has it."""
    is_text = answer is None or isinstance(answer, str)
    return answer if is_text else json.dumps(jsonable(answer), default=str)


def _line(group: Group, e: Episode, credit: np.ndarray) -> dict[str, Any]:
    """What is said of an episode, but for its rows."""
    versions = [v for r in e.rows for s in r.segments for _, v in s.versions]
    return {
        "task_id": group.task.id,
        "domain": group.task.domain,
        "prompt": "\n".join(m.shown for m in e.prompt or group.task.prompt),
        "answer": reference_text(group.task.answer),
        "text": _text(e),
        "status": e.status,
        "muted": e.muted,
        "reward": e.reward.total if e.reward else None,
        "solved": e.reward.solved if e.reward else None,
        "reward_parts": json.dumps(jsonable(e.reward.parts)) if e.reward else None,
        "advantage": float(np.mean(credit)) if len(credit) else None,
        "policy_version": max(versions, default=None),
        "oldest_version": min(versions, default=None),
        "n_tokens": e.n_sampled,
        "seconds": e.seconds,
        "parent": e.origin.parent if e.origin else None,
        "forked_at": e.origin.turn if e.origin else None,
        "facts": json.dumps(jsonable(e.facts), default=str),
        "verdicts": [
            {"judge": v.judge, "score": v.score, "said": v.said}
            for v in (e.reward.verdicts if e.reward else ())
        ],
        "pictures": _pictures(e),
        "sounds": _sounds(e),
    }
