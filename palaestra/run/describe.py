"""What a step's episodes looked like, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.curriculum.pool import is_mixed
from palaestra.types import Groups, Metrics, Reward
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
        **part_numbers([e.reward for e in valid if e.reward]),
    }


def part_numbers(rewards: Sequence[Reward]) -> Metrics:
    """The mean of each named part over the episodes that it judged; where these are not all, their
    share as well.
    """
    found: Metrics = {}
    for name in sorted({k for r in rewards for k in r.parts}):
        values = [r.parts.get(name, 0.0) for r in rewards if not is_silent(name, r)]
        found[f"part/{name}"] = float(np.mean(values))
        if len(values) < len(rewards):
            found[f"part_share/{name}"] = len(values) / len(rewards)
    return found


def is_silent(name: str, reward: Reward) -> bool:
    """Whether a part, or the part that it belongs to, says nothing of the episode."""
    return any(name == s or name.startswith(f"{s}/") for s in reward.silent)
