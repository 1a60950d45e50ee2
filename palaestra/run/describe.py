"""What a step's episodes looked like, in numbers."""

from __future__ import annotations

import numpy as np

from palaestra.curriculum.pool import is_mixed
from palaestra.types import Groups, Metrics
from palaestra.worlds.tools import tool_numbers


def describe(seen: Groups, ready: Groups) -> Metrics:
    """What the step's episodes looked like, errors apart."""
    episodes = [e for g in seen for e in g.episodes]
    valid = [e for e in episodes if e.ok]
    scored = [e.total for e in valid if e.reward is not None]
    mean = float(np.mean(scored)) if scored else float("nan")
    by_group = [[e.total for e in g.valid if e.reward is not None] for g in seen]
    means = [float(np.mean(x)) for x in by_group if x]
    units = means if len(means) > 1 else scored  # answers to one prompt are alike
    half = 1.96 * float(np.std(units, ddof=1)) / len(units) ** 0.5 if len(units) > 1 else 0.0
    right = [e.n_sampled for e in valid if e.reward is not None and e.solved]
    wrong = [e.n_sampled for e in valid if e.reward is not None and not e.solved]
    logp = [
        x
        for e in valid
        for r in e.rows
        for s in r.segments
        if s.trained and s.logp is not None
        for x in s.logp
    ]
    parts = sorted({k for e in valid if e.reward for k in e.reward.parts})
    return {
        "reward": mean,
        "reward_low": mean - half,
        "reward_high": mean + half,
        "length": float(np.mean([e.n_sampled for e in valid])) if valid else 0.0,
        "length_right": float(np.mean(right)) if right else float("nan"),
        "length_wrong": float(np.mean(wrong)) if wrong else float("nan"),
        # nats a token: estimates the entropy
        "entropy_sampled": -float(np.mean(logp)) if logp else float("nan"),
        "truncated": float(np.mean([e.status.startswith("truncated") for e in valid]))
        if valid
        else 0.0,
        "errors": 1 - len(valid) / len(episodes) if episodes else 0.0,
        "episodes": len(episodes),
        **tool_numbers(valid),
        "groups": len(seen),
        "groups_ready": len(ready),
        "groups_mixed": float(np.mean([is_mixed(g) for g in seen])) if seen else 0.0,
        **{
            f"part/{k}": float(np.mean([e.reward.parts.get(k, 0.0) for e in valid if e.reward]))
            for k in parts
        },
    }
