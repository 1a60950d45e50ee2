"""How well a reward model ranks and is calibrated on held-out pairs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.ends import HeldOut
from palaestra.errors import UserError
from palaestra.rewards.learned import scores
from palaestra.rollout.recorded import Recorded
from palaestra.run.evaluation import chosen_tasks
from palaestra.stats import proportion
from palaestra.types import Group, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.run.context import RunContext


@stage
class PairExam:
    """How a reward model ranks held-out pairs (`chosen`, `rejected`), d = s(chosen) - s(rejected):
    the share that it ranks right, by how far apart it scores them and, where the data have a column
    `gap`, by how far apart the data say they are; and the calibration error of sigmoid(d).

    Args:
        model: of the run, by name.
        head: of the model.
        n: pairs, at most.
        bins: equal parts into which pairs are sorted, both for margins and for the calibration.
    """

    model: str = "reward"
    head: str = "score"
    n: int = 512
    bins: int = 5

    def __post_init__(self) -> None:
        need_at_least(self, n=1, bins=1)

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        keys = [(ctx.seed, "pair exam", i) for i in chosen_tasks(ctx.bench, self.n)]
        starts = [Group(task=ctx.bench.tasks.task("test", key[-1])) for key in keys]
        pairs = await asyncio.gather(*map(Recorded(self.model), repeat(ctx), keys, starts))
        if any(len(g.episodes) != 2 for g in pairs):
            raise UserError("a reward model is measured on pairs: give columns chosen and rejected")
        episodes = [e for g in pairs for e in g.episodes]
        s_P2 = scores(ctx, self.model, (self.head,), episodes).reshape(len(pairs), 2)
        gaps = [g.episodes[0].facts.get("gap", math.nan) for g in pairs]
        return describe_pairs(s_P2[:, 0] - s_P2[:, 1], np.array(gaps, np.float64), self.bins)


def describe_pairs(d_P: np.ndarray, gap_P: np.ndarray, bins: int) -> dict[str, Any]:
    """What differences of scores say of their model.

    Args:
        d_P: score of the better reply minus that of the other.
        gap_P: by how much the data call it better; NaN = they do not say.
        bins: equal parts of the pairs, from the smallest difference to the largest.

    Returns:
        "accuracy"; "accuracy by margin" (|d|) and "accuracy by gap", by part, with the
        largest of each part in "margin up to" and "gap up to"; "calibration_error",
        see `calibration_error`.
    """
    numbers: dict[str, Any] = {"accuracy": share_right(d_P)}
    known_P = np.isfinite(gap_P)
    named = [("margin", np.abs(d_P), d_P), ("gap", gap_P[known_P], d_P[known_P])]
    for name, size_P, diff_P in named:
        if len(diff_P):
            numbers[f"accuracy by {name}"] = {
                part: share_right(diff_P[at]) for part, at in parts_of(size_P, bins).items()
            }
            numbers[f"{name} up to"] = {
                part: float(size_P[at].max()) for part, at in parts_of(size_P, bins).items()
            }
    numbers["calibration_error"] = calibration_error(d_P, bins)
    return numbers


def parts_of(size_P: np.ndarray, bins: int) -> dict[str, np.ndarray]:
    """Places in equal parts from the smallest to the largest, by name: "1 of 5" has the smallest."""
    parts = np.array_split(np.argsort(size_P, kind="stable"), bins)
    return {f"{i} of {bins}": part for i, part in enumerate(parts, 1) if len(part)}


def share_right(d_P: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """The share of differences above 0, a tie as one half, with its interval."""
    d_P = np.asarray(d_P)
    right = float((d_P > 0).sum() + (d_P == 0).sum() / 2)
    return HeldOut(of="ranking", interval=proportion(right, len(d_P))).json()


def calibration_error(d_P: np.ndarray, bins: int) -> float:
    """sum_b (n_b / n) |mean confidence - share right|, of pairs sorted by their confidence
    sigmoid(|d|) into equal parts: the expected calibration error with bins of equal mass
    (arXiv:1909.10155). Of nothing it is NaN.
    """
    if not len(d_P):
        return math.nan
    confidence_P = 1 / (1 + np.exp(-np.abs(d_P)))
    right_P = (d_P > 0) + (d_P == 0) / 2
    parts = parts_of(confidence_P, bins).values()
    gaps = [len(b) * abs(confidence_P[b].mean() - right_P[b].mean()) for b in parts]
    return float(sum(gaps) / len(d_P))
