"""A run folder of made-up rollouts in the files of a real one, as large as one likes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palaestra.store.columns import ROW, SAID, SCHEMA, SCHEMA_VERSION, VERSION, path
from palaestra.types import rng_of

LETTERS = list("abcdefghijklmnopqrstuvwxyz")
LONGEST = 6  # times the mean length of an answer


def write_run(
    folder: Path,
    steps: int,
    groups: int = 16,
    samples: int = 8,
    problems: int = 4000,
    tokens: int = 60,
    seed: int = 0,
) -> Path:
    """Writes `steps` files of groups x samples answers of about so many tokens, metrics.jsonl and
    config.toml. Problems have a difficulty, and the policy becomes better.
    """
    (folder / "rollouts").mkdir(parents=True)
    rng = rng_of((seed, "made-up run"))
    pieces = ["".join(rng.choice(LETTERS, k)) for k in rng.integers(1, 8, 500)]
    words = np.array([*(f" {p}" for p in pieces), " =", " 7", "\n", " so the answer is"])
    easy_P = rng.normal(size=problems)
    metadata = {SCHEMA_VERSION: str(VERSION)}
    with (folder / "metrics.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            table, record = write_step(rng, words, easy_P, step, steps, (groups, samples, tokens))
            schema = table.schema.with_metadata(metadata)
            pq.write_table(table.cast(schema), path(folder, step), compression="zstd")
            log.write(json.dumps(record) + "\n")
    settings = f'recipe = "grpo"\ntask = "made-up"\nmodel = "tiny"\nseed = {seed}\n'
    (folder / "config.toml").write_text(settings)
    return folder


def write_step(
    rng: np.random.Generator,
    words: np.ndarray,
    easy_P: np.ndarray,
    step: int,
    steps: int,
    size: tuple[int, int, int],
) -> tuple[pa.Table, dict[str, float]]:
    groups, n, tokens = size
    E, prompt = groups * n, 20
    task_E = np.repeat(rng.integers(0, len(easy_P), groups), n)
    chance_E = 1 / (1 + np.exp(2 - 2 * easy_P[task_E] - 4 * step / steps))
    reward_E = (rng.random(E) < chance_E).astype(float)
    longest = LONGEST * tokens
    length_E = np.clip(rng.lognormal(np.log(tokens), 0.5, E).astype(int), 4, longest)
    total_E = length_E + prompt
    ends_E = np.cumsum(total_E)
    begins_E, N = ends_E - total_E, int(ends_E[-1])
    place_N = np.arange(N) - np.repeat(begins_E, total_E)
    mine_N = place_N >= prompt
    ids_N = rng.integers(0, len(words), N)
    start_N = np.repeat(np.repeat(begins_E[::n], n), total_E)  # of the group's first answer
    ids_N = np.where(mine_N, ids_N, ids_N[start_N + np.minimum(place_N, prompt - 1)])
    by_group = reward_E.reshape(groups, n)
    spread = by_group.std(1, keepdims=True) + 1e-6
    credit_E = ((by_group - by_group.mean(1, keepdims=True)) / spread).ravel()
    logp_N, credit_N = -rng.exponential(0.4, N), np.repeat(credit_E, total_E)
    words_said = words[ids_N]
    parts = lambda a, b: "".join(words_said[a:b])
    columns = episode_columns(rng, step, task_E, reward_E, credit_E, length_E, (groups, n))
    columns["prompt"] = [parts(b, b + prompt) for b in begins_E]
    columns["text"] = [parts(b + prompt, e) for b, e in zip(begins_E, ends_E, strict=True)]
    rows = token_rows(total_E, ids_N, words_said, mine_N, logp_N, credit_N)
    nested = pa.ListArray.from_arrays(pa.array(np.arange(E + 1), pa.int32()), rows)
    arrays = [pa.array(columns[f.name], f.type) for f in SCHEMA if f.name != "rows"]
    record = {
        "step": step,
        "reward": float(reward_E.mean()),
        "length": float(length_E.mean()),
        "entropy_sampled": float(-logp_N[mine_N].mean()),
        "seconds/rollout": 1.0 + float(rng.random()),
        "seconds/backward": 0.5,
    }
    return pa.Table.from_arrays([*arrays, nested], schema=SCHEMA), record


def episode_columns(
    rng: np.random.Generator,
    step: int,
    task_E: np.ndarray,
    reward_E: np.ndarray,
    credit_E: np.ndarray,
    length_E: np.ndarray,
    size: tuple[int, int],
) -> dict[str, Any]:
    """What is said of episodes beside their texts and tokens."""
    (groups, n), E = size, len(task_E)
    status_E = np.where(rng.random(E) < 0.03, "truncated:length", "finished")
    status_E = np.where(rng.random(E) < 0.005, "error:sandbox", status_E)
    version_E = step - 1 - rng.integers(0, 3, E)
    return {
        "step": [step] * E,
        "group": np.repeat(np.arange(groups), n),
        "sample": np.tile(np.arange(n), groups),
        "task_id": [f"train-{t}" for t in task_E],
        "domain": [f"d{t % 5}" for t in task_E],
        "answer": ["42"] * E,
        "status": status_E.tolist(),
        "muted": [False] * E,
        "reward": reward_E,
        "solved": reward_E > 0,
        "reward_parts": [json.dumps({"right": r}) for r in reward_E],
        "advantage": credit_E,
        "policy_version": version_E,
        "oldest_version": version_E,
        "kept": ["trained"] * E,
        "n_tokens": length_E,
        "seconds": 0.1 + length_E / 50,
        "parent": [None] * E,
        "forked_at": [None] * E,
        "facts": ["{}"] * E,
        "verdicts": [[]] * E,
        "pictures": [[]] * E,
        "sounds": [[]] * E,
    }


def token_rows(
    total_E: np.ndarray,
    ids_N: np.ndarray,
    said_N: np.ndarray,
    mine_N: np.ndarray,
    logp_N: np.ndarray,
    credit_N: np.ndarray,
) -> pa.StructArray:
    """[E] of `ROW`."""
    N, offsets = len(ids_N), pa.array(np.concatenate([[0], np.cumsum(total_E)]), pa.int32())
    number = lambda x_N: pa.array(x_N, pa.float32(), mask=~mine_N)
    author = pa.array(mine_N.astype(np.int8))
    flat: dict[str, Any] = {
        "ids": pa.array(ids_N, pa.int64()),
        "tokens": pa.array(said_N),
        "trained": pa.array(mine_N),
        "hidden": pa.array(np.zeros(N, bool)),
        "logp": number(logp_N),
        "advantage": number(credit_N),
        "weight": number(credit_N / N),
        "ratio": number(np.ones(N)),
        "author": pa.DictionaryArray.from_arrays(author, pa.array(["environment", "policy"])),
        "turn": pa.array(np.zeros(N), pa.int16()),
    }
    E = len(total_E)
    columns: dict[str, pa.Array] = {"seat": pa.array(["policy"] * E), "thread": pa.array([""] * E)}
    columns["said"] = pa.array([[]] * E, pa.list_(SAID))
    columns |= {k: pa.ListArray.from_arrays(offsets, v) for k, v in flat.items()}
    return pa.StructArray.from_arrays([columns[f.name] for f in ROW], fields=list(ROW))
