"""How far an engine's log-probs are from the trainer's, on the tokens that are about to be trained
on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from palaestra.engines.own import OwnEngine
from palaestra.types import Groups, Metrics

if TYPE_CHECKING:
    from palaestra.context import Engine, Models


def mismatch(ctx: Models, engines: Mapping[str, Engine], learners: int, groups: Groups) -> Metrics:
    """d = log pi (trainer, present weights) - log mu (engine, as sampled), in nats, over trained
    tokens:

        mismatch_gap    mean |d|
        mismatch_max    max |d|
        mismatch_ratio  mean exp(d), 1 in expectation
        mismatch_kl     mean exp(d) - 1 - d, the k3 estimate of KL(mu || pi) (Schulman 2020)

    Costs one forward pass, nothing for an engine that is exact, and little for the own engine in
    bfloat16, which rounds otherwise than the trainer: there the step's first group stands for all.
    Tokens sampled under earlier weights, or truncated (top-k, top-p, min-p), differ for that reason
    too. Several `learners`: the names are prefixed.
    """
    metrics: Metrics = {}
    for name, n in compared(engines, groups).items():
        d_N = gaps(ctx, groups[:n], name)
        if len(d_N):
            ratio_N = np.exp(d_N)
            numbers = {
                "mismatch_gap": float(np.abs(d_N).mean()),
                "mismatch_max": float(np.abs(d_N).max()),
                "mismatch_ratio": float(ratio_N.mean()),
                "mismatch_kl": float((ratio_N - 1 - d_N).mean()),
            }
            metrics |= {f"{name}/{k}" if learners > 1 else k: v for k, v in numbers.items()}
    return metrics


def compared(engines: Mapping[str, Engine], groups: Groups) -> dict[str, int]:
    """On how many groups, from the first, each engine is compared; an exact one on none."""
    return {
        name: 1 if isinstance(engine, OwnEngine) else len(groups)
        for name, engine in engines.items()
        if not engine.exact
    }


def gaps(ctx: Models, groups: Groups, name: str) -> np.ndarray:
    """d of every trained token of a learner whose behaviour log-prob is known."""
    signals = ctx.measure(groups, ((name, "logp"),))
    gap_list: list[np.ndarray] = []
    for g, group in enumerate(groups):
        for e, episode in enumerate(group.episodes):
            for r, row in enumerate(episode.rows):
                view = row.view(name)
                on_T = view.trained_T & np.isfinite(view.logp_T)
                on_T[:1] = False  # nothing precedes the first token
                gap_list.append((signals[g][e][r][f"{name}_logp"] - view.logp_T)[on_T])
    return np.concatenate(gap_list) if gap_list else np.zeros(0)
