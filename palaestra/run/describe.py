"""What a step's episodes looked like, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.curriculum.pool import is_mixed
from palaestra.types import Episode, Groups, Metrics
from palaestra.worlds.tools import tool_numbers


def describe(seen: Groups, ready: Groups) -> Metrics:
    """What the step's episodes looked like, errors apart. Of what was neither sampled nor judged
    there are counts alone.
    """
    episodes = [e for g in seen for e in g.episodes]
    valid = [e for e in episodes if e.ok]
    judged = [e for e in valid if e.reward is None or e.reward.judged]
    sampled = [e for e in valid if not e.recorded]
    of_rewards = bool(judged or not valid)
    return {
        **(describe_rewards(seen, judged) if of_rewards else {}),
        **(describe_samples(sampled) if sampled or not valid else {}),
        "errors": 1 - len(valid) / len(episodes) if episodes else 0.0,
        "episodes": len(episodes),
        **tool_numbers(valid),
        "groups": len(seen),
        "groups_ready": len(ready),
        **(describe_parts(seen, judged) if of_rewards else {}),
    }


def describe_rewards(seen: Groups, judged: Sequence[Episode]) -> Metrics:
    """The mean reward with its interval over prompts."""
    scored = [e.total for e in judged if e.reward is not None]
    mean = float(np.mean(scored)) if scored else float("nan")
    known = [[e.total for e in g.valid if e.reward is not None and e.reward.judged] for g in seen]
    means = [float(np.mean(x)) for x in known if x]
    units = means if len(means) > 1 else scored  # answers to one prompt are alike
    half = 1.96 * float(np.std(units, ddof=1)) / len(units) ** 0.5 if len(units) > 1 else 0.0
    return {"reward": mean, "reward_low": mean - half, "reward_high": mean + half}


def describe_parts(seen: Groups, judged: Sequence[Episode]) -> Metrics:
    """The share of groups whose rewards differ, and the mean of each part of the reward."""
    parts = sorted({k for e in judged if e.reward for k in e.reward.parts})
    return {
        "groups_mixed": float(np.mean([is_mixed(g) for g in seen])) if seen else 0.0,
        **{
            f"part/{k}": float(np.mean([e.reward.parts.get(k, 0.0) for e in judged if e.reward]))
            for k in parts
        },
    }


def describe_samples(sampled: Sequence[Episode]) -> Metrics:
    """Lengths, in tokens, and how sure the policy was. Lengths of right and of wrong answers only
    where somebody says which are right.
    """
    known = [(e.n_sampled, e.reward.solved) for e in sampled if e.reward is not None]
    checks = any(solved is not None for _, solved in known)
    lengths = {
        name: [n for n, solved in known if solved is right]
        for name, right in (("length_right", True), ("length_wrong", False))
        if checks
    }
    logp = [
        x
        for e in sampled
        for r in e.rows
        for s in r.segments
        if s.trained and s.logp is not None
        for x in s.logp
    ]
    cut = [e.status.startswith("truncated") for e in sampled]
    return {
        "length": float(np.mean([e.n_sampled for e in sampled])) if sampled else 0.0,
        **{name: float(np.mean(x)) if x else float("nan") for name, x in lengths.items()},
        # nats a token: estimates the entropy
        "entropy_sampled": -float(np.mean(logp)) if logp else float("nan"),
        "truncated": float(np.mean(cut)) if cut else 0.0,
    }
