"""Episodes of a rollout file as trackers show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

SHOWN_EPISODES = 64  # episodes of a step that are sent; the file has them all
COLUMNS = (
    "prompt",
    "text",
    "answer",
    "reward",
    "advantage",
    "status",
    "n_tokens",
    "group",
    "sample",
    "task_id",
    "domain",
)


def read_episodes(file: Path) -> Sequence[Mapping[str, Any]]:
    """The first episodes of a step, in the order of the file."""
    return pq.read_table(file).slice(0, SHOWN_EPISODES).to_pylist()


def messages(episode: Mapping[str, Any]) -> list[dict[str, str]]:
    """An episode as a conversation: prompt and answer, or the turns of its first row."""
    rows = episode["rows"]
    if not rows or max(rows[0]["turn"], default=0) == 0:
        return [
            {"role": "user", "content": episode["prompt"]},
            {"role": "assistant", "content": episode["text"]},
        ]
    tokens = zip(rows[0]["author"], rows[0]["turn"], rows[0]["tokens"], strict=True)
    turns = groupby(tokens, key=lambda token: token[:2])
    return [
        {
            "role": "user" if author == "environment" else "assistant",
            "content": "".join(piece for *_, piece in turn),
        }
        for (author, _), turn in turns
    ]
