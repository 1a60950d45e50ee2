"""What an episode heard after its prompt, as text to search: results of tools, what a world said, what
infrastructure and judges said.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from palaestra.store.limits import (
    UNREADABLE,
    check_unpacked,
    json_object,
    open_rollouts,
    read_row_groups,
)

pc: Any = import_module("pyarrow.compute")  # its functions are made when it is imported

READ = ("rows", "facts", "verdicts")
FAILED = r'"tool_(errors|malformed)":\s*[1-9]'  # in the facts of an episode


def heard(file: Path, rows: int) -> pa.Array:
    """[rows] of a rollout file; null where nothing was heard, or it cannot be read. Raises UserError
    for a file above a limit.
    """
    try:
        opened = open_rollouts(file, READ)
        there = [n for n in READ if n in opened.schema_arrow.names]
        parts = [_texts(check_unpacked(file, p)) for p in read_row_groups(opened, there)]
    except (*UNREADABLE, KeyError, AttributeError):
        parts = []
    texts = [x for part in parts for x in part]
    return pa.array(texts if len(texts) == rows else [None] * rows, pa.string())


def _texts(part: pa.Table) -> list[str | None]:
    pieces: list[list[str]] = [[] for _ in range(part.num_rows)]
    if "rows" in part.column_names:
        for chunk_text, at in _of_tokens(part["rows"].combine_chunks()):
            pieces[at].append(chunk_text)
    if "facts" in part.column_names:
        facts = part["facts"].cast(pa.string())
        errors = pc.fill_null(pc.match_substring(facts, '"error"'), False)
        for at in np.flatnonzero(np.asarray(errors)).tolist():
            pieces[at].append(str(json_object(facts[at].as_py()).get("error") or ""))
    if "verdicts" in part.column_names:
        lists = part["verdicts"].combine_chunks()
        for at in np.flatnonzero(np.asarray(pc.fill_null(pc.list_value_length(lists), 0))).tolist():
            pieces[at] += [v.get("said") or "" for v in lists[at].as_py() if isinstance(v, dict)]
    return ["\n".join(filter(None, p)) or None for p in pieces]


def _of_tokens(episodes: pa.ListArray) -> list[tuple[str, int]]:
    """(text, number of the episode) of each context in which somebody spoke after the policy."""
    contexts, of_R = episodes.flatten(), np.asarray(pc.list_parent_indices(episodes))
    text_places: list[tuple[str, int]] = []
    heard_R: list[Any] = contexts.field("said").to_pylist() if _has(contexts, "said") else []
    for r, row_text in enumerate(heard_R):
        texts = [s["text"] or "" for s in row_text or () if s["author"] == "environment"]
        text_places += [("\n".join(texts), int(of_R[r]))] if texts else []
    if not (_has(contexts, "tokens") and _has(contexts, "trained")):
        return text_places
    tokens, trained = contexts.field("tokens"), contexts.field("trained")
    mine_N = np.asarray(pc.fill_null(trained.flatten(), False)).astype(bool)
    if _has(contexts, "author"):
        author = contexts.field("author").flatten().cast(pa.string())
        others = pc.is_in(author, value_set=pa.array(["environment", "", None]))
        mine_N |= ~np.asarray(others).astype(bool)
    of_N = np.asarray(pc.list_parent_indices(tokens))
    if len(of_N) != len(mine_N) or not len(of_N):
        return text_places
    spoken_N = np.cumsum(mine_N)
    first_N = np.r_[True, of_N[1:] != of_N[:-1]]
    before_N = (spoken_N - mine_N)[first_N][np.cumsum(first_N) - 1]  # of the contexts before it
    at_N = np.flatnonzero(~mine_N & (spoken_N > before_N))
    if not len(at_N):
        return text_places
    texts = tokens.flatten().take(pa.array(at_N)).cast(pa.string())
    rows, start_R = np.unique(of_N[at_N], return_index=True)
    lists = pa.ListArray.from_arrays(pa.array([*start_R, len(at_N)], pa.int32()), texts)
    joined = pc.binary_join(lists, "").to_pylist()
    return text_places + [(text or "", int(of_R[r])) for text, r in zip(joined, rows, strict=True)]


def _has(contexts: pa.StructArray, name: str) -> bool:
    return contexts.type.get_field_index(name) >= 0
