"""Rollouts as Parquet: one line per trajectory, `rollouts/step-NNNNNN.parquet`.

`rows` holds the contexts that were really seen, token by token: `logp` is null where unknown,
`advantage` where the token is not in the training view or has no credit. A line's `advantage` is
the mean over its trained tokens. `weight` is what multiplied the gradient of a token's log-prob,
minus the derivative of the loss, summed over the updates of the step; `ratio` the probability in
the last of them over that of the sampling. Both are null where the step moved nothing by the token.

Files say which `VERSION` of the columns they have; those of version 1 say none. A reader takes
every version up to its own, what is missing is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

PICTURE = pa.struct(
    {
        "height": pa.int32(),
        "width": pa.int32(),
        "channels": pa.int32(),
        "data": pa.binary(),  # 8 bits a channel, row by row
    }
)
SOUND = pa.struct(
    {
        "rate": pa.int32(),  # samples a second
        "data": pa.binary(),  # 16 bits a sample, one channel
    }
)
VERDICT = pa.struct(
    {
        "judge": pa.string(),
        "score": pa.float64(),  # null where what it said could not be read
        "said": pa.string(),  # the beginning
    }
)
SAID = pa.struct(
    {
        "at": pa.int32(),  # how many of the row's tokens stand before it
        "author": pa.string(),
        "turn": pa.int16(),
        "text": pa.string(),
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
        "weight": pa.list_(pa.float32()),
        "ratio": pa.list_(pa.float32()),
        "author": pa.list_(pa.dictionary(pa.int8(), pa.string())),
        "turn": pa.list_(pa.int16()),
        "said": pa.list_(SAID),  # what who has no tokens heard and said: scripts, endpoints
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
        "oldest_version": pa.int32(),  # the oldest
        "kept": pa.string(),  # see `StepTrace`; null of an evaluation
        "n_tokens": pa.int32(),  # sampled
        "seconds": pa.float32(),  # from its beginning to its end, waiting for others included
        "parent": pa.int32(),  # of a forked episode: the sample of its group that it left
        "forked_at": pa.int32(),  # the turn at which it did
        "facts": pa.string(),  # JSON
        "verdicts": pa.list_(VERDICT),  # of judges
        "pictures": pa.list_(PICTURE),  # those that ids of its rows are places of, each once
        "sounds": pa.list_(SOUND),  # likewise
        "rows": pa.list_(ROW),
    }
)


VERSION = 3
SCHEMA_VERSION = b"palaestra.rollouts"  # in the file's own metadata
# there too, where it holds some of the step's episodes: how many there were
SAMPLED_FROM = b"palaestra.sampled_from"


def path(run: Path, step: int) -> Path:
    return Path(run) / "rollouts" / f"step-{step:06d}.parquet"


def evaluation_path(run: Path, name: str, step: int) -> Path:
    """Where the attempts of an evaluation stand that was made after a step."""
    return Path(run) / "evaluations" / name / f"step-{step:06d}.parquet"


def sampled_from(file: Path) -> int | None:
    """How many episodes the step of a file had, where it holds some of them; None = it holds all."""
    metadata = (pq.read_schema(file).metadata or {}).get(SAMPLED_FROM)
    return None if metadata is None else int(metadata)


def version_of(file: Path) -> int:
    """Which version of the columns a file has."""
    return int((pq.read_schema(file).metadata or {}).get(SCHEMA_VERSION, b"1"))


def read_episodes(files: Sequence[Path], tokens: bool) -> pa.Table:
    """Episodes of Parquet files as one table, without their tokens if not asked for."""
    names = [n for n in SCHEMA.names if tokens or n not in ("rows", "pictures", "sounds")]
    if not files:
        return SCHEMA.empty_table().select(names)
    dataset = ds.dataset(list(map(str, files)), schema=SCHEMA, format="parquet")
    return dataset.to_table(columns=names)
