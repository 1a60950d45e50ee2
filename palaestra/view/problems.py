"""What became of each problem of a run, judged for all of them at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from palaestra.stats import false_discoveries, fisher
from palaestra.types import SOLVED_TOTAL
from palaestra.view.reader import pc

BOUND = 0.1  # expected share of false ones among problems that are called learned or forgotten
COLUMNS = ("step", "task_id", "domain", "status", "reward", "solved")


def plainest(episodes: pa.Table, task_E: np.ndarray) -> np.ndarray:
    """[P] of each problem an episode with its shortest prompt: others may have been shown a hint."""
    if "prompt" not in episodes.column_names:
        return np.unique(task_E, return_index=True)[1]
    prompts = pc.fill_null(pc.cast(episodes["prompt"], pa.string()), "")
    order_E = np.argsort(pc.utf8_length(prompts).to_numpy(), kind="stable")
    return order_E[np.unique(task_E[order_E], return_index=True)[1]]


def fates(episodes: pa.Table) -> list[dict[str, Any]]:
    """One record a problem that was tried and judged, see `api.run.Run.problems`; `at` is the row of
    its first episode. Columns: `COLUMNS`, and "prompt" where it is to be told.
    """
    valid = pc.and_(
        pc.is_valid(episodes["reward"]),
        pc.invert(
            pc.starts_with(pc.fill_null(pc.cast(episodes["status"], pa.string()), ""), "error")
        ),
    )
    rows_E = np.flatnonzero(valid.to_numpy(zero_copy_only=False))
    if not len(rows_E):
        return []
    scored = episodes.take(pa.array(rows_E))
    task = pc.fill_null(pc.cast(scored["task_id"], pa.string()), "").combine_chunks()
    coded = task.dictionary_encode()
    task_E, n = coded.indices.to_numpy(), len(coded.dictionary)
    tally = lambda where_E: np.bincount(task_E[where_E], minlength=n)
    _, first_P = np.unique(task_E, return_index=True)
    plainest_P = pa.array(plainest(scored, task_E))
    about = {
        k: scored[k].take(plainest_P).to_pylist()
        for k in ("domain", "prompt")
        if k in scored.column_names
    }
    records = [
        {
            "task_id": name,
            **{k: v[p] for k, v in about.items()},
            "episodes": int(count),
            "at": int(rows_E[first_P[p]]),
        }
        for p, (name, count) in enumerate(
            zip(coded.dictionary.to_pylist(), np.bincount(task_E), strict=True)
        )
    ]
    right_E = solved(scored)
    if right_E is None:
        unknown: dict[str, Any] = dict.fromkeys(("solved", "first", "last", "p"))
        return [{**row, **unknown, "fate": "unknown"} for row in records]
    step_E = scored["step"].to_numpy()
    third = (step_E.max() - step_E.min() + 1) / 3
    early_E, late_E = step_E < step_E.min() + third, step_E >= step_E.max() + 1 - third
    a, n1 = tally(early_E & right_E), tally(early_E)
    b, n2 = tally(late_E & right_E), tally(late_E)
    p_P = [_p(*x) for x in zip(a.tolist(), n1.tolist(), b.tolist(), n2.tolist(), strict=True)]
    sure = false_discoveries(p_P, BOUND)
    share = (tally(right_E) / np.bincount(task_E)).tolist()
    ends = [
        (_share(*x), _share(*y))
        for x, y in zip(zip(a, n1, strict=True), zip(b, n2, strict=True), strict=True)
    ]
    return [
        {**row, "solved": s, "first": e[0], "last": e[1], "p": p, "fate": _fate(s, e, moved)}
        for row, s, e, p, moved in zip(records, share, ends, p_P, sure, strict=True)
    ]


def solved(scored: pa.Table) -> np.ndarray | None:
    """[E] whether each is right: as somebody said, else a reward of 1; None = the reward never says
    it and never is 1.
    """
    reward_E = scored["reward"].to_numpy()
    known = (
        scored["solved"] if "solved" in scored.column_names else pa.nulls(len(scored), pa.bool_())
    )
    said_E = np.asarray(pc.is_valid(known))
    if not said_E.any() and reward_E.max() < SOLVED_TOTAL:
        return None
    return np.where(said_E, np.asarray(pc.fill_null(known, False)), reward_E >= SOLVED_TOTAL)


@lru_cache(maxsize=100_000)
def _p(a: int, n: int, b: int, m: int) -> float:
    return fisher(a, n, b, m)


def _share(right: int, n: int) -> float | None:
    return float(right / n) if n else None


def _fate(share: float, ends: tuple[float | None, float | None], moved: bool) -> str:
    if moved:
        return "learned" if (ends[1] or 0.0) > (ends[0] or 0.0) else "forgotten"
    return {1.0: "solved", 0.0: "never"}.get(share, "mixed")
