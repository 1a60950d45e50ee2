"""What a step's episodes looked like, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from palaestra.curriculum.pool import is_mixed
from palaestra.types import Episode, Groups, Metrics, Reward
from palaestra.worlds.tools import tool_numbers


def describe(seen: Groups, ready: Groups, whole: str = "") -> Metrics:
    """What the step's episodes looked like, errors apart, and answers of which no reward says
    anything. Of what was neither sampled nor judged there are counts alone. `whole` is the name of
    all tasks that may be drawn.
    """
    episodes = [e for g in seen for e in g.episodes]
    valid = [e for e in episodes if e.ok]
    unjudged = sum(e.unjudged for e in episodes)
    scored = [e for e in valid if e.reward is None or e.reward.judged]
    sampled = [e for e in valid if not e.recorded]
    failed = bool(episodes) and not valid
    of_rewards = bool(scored) or failed
    return {
        **(describe_rewards(seen, scored) if of_rewards else {}),
        **(describe_samples(sampled) if sampled or failed else {}),
        "errors": (len(episodes) - len(valid) - unjudged) / len(episodes) if episodes else 0.0,
        **({"unjudged": unjudged / len(episodes)} if unjudged else {}),
        "episodes": len(episodes),
        **tool_numbers(valid),
        **describe_sizes(seen),
        "groups": len(seen),
        "groups_ready": len(ready),
        **describe_domains(seen, whole),
        **describe_written(seen),
        **(describe_parts(seen, scored) if of_rewards else {}),
    }


def describe_sizes(seen: Groups) -> Metrics:
    """How many answers the largest group has above the smallest; nothing where all have as many."""
    sizes = [len(g.episodes) for g in seen]
    spread = max(sizes, default=0) - min(sizes, default=0)
    return {"answers_spread": spread} if spread else {}


def describe_domains(seen: Groups, whole: str) -> Metrics:
    """The share of the groups that each domain gave; nothing where all tasks are of one."""
    count = Counter(g.task.domain for g in seen)
    if len(count) <= 1 and set(count) <= {"", whole}:
        return {}
    return {f"drawn/{d}": n / len(seen) for d, n in sorted(count.items())}


def describe_written(seen: Groups) -> Metrics:
    """Of each column that models write: the share of groups whose value a model wrote, and the share
    of the records so far that no model could write.
    """
    written = [g.task.meta.get("written_columns", {}) for g in seen]
    metrics: Metrics = {}
    for name in sorted({name for columns in written for name in columns}):
        failed = [columns[name] for columns in written if name in columns]
        metrics[f"written/{name}"] = len(failed) / len(seen)
        metrics[f"unwritten/{name}"] = max(failed)
    return metrics


def describe_rewards(seen: Groups, episodes: Sequence[Episode]) -> Metrics:
    """The mean reward with its interval over prompts, which leaves 0 to 1 only where rewards may."""
    scored = [e.total for e in episodes if e.reward is not None]
    mean = float(np.mean(scored)) if scored else float("nan")
    known = [[e.total for e in g.valid if e.reward is not None and e.reward.judged] for g in seen]
    means = [float(np.mean(x)) for x in known if x]
    units = means if len(means) > 1 else scored  # answers to one prompt are alike
    half = 1.96 * float(np.std(units, ddof=1)) / len(units) ** 0.5 if len(units) > 1 else 0.0
    metrics = {"reward": mean, "reward_low": mean - half, "reward_high": mean + half}
    shares = all(e.reward is None or _is_share(e.reward) for e in episodes)
    return {k: min(max(x, 0.0), 1.0) for k, x in metrics.items()} if scored and shares else metrics


def _is_share(reward: Reward) -> bool:
    """Whether it says no more than right or wrong."""
    return reward.solved is not None and reward.total == float(reward.solved)


def describe_parts(seen: Groups, episodes: Sequence[Episode]) -> Metrics:
    """The share of groups whose rewards differ, of all answers and of those that train, and the mean
    of each part of the reward.
    """
    mixed = lambda trained: float(np.mean([is_mixed(g, trained) for g in seen])) if seen else 0.0
    return {
        "groups_mixed": mixed(False),
        "groups_mixed_trained": mixed(True),
        **part_numbers([e.reward for e in episodes if e.reward]),
    }


def part_numbers(rewards: Sequence[Reward]) -> Metrics:
    """The mean of each named part over the episodes that it judged; where these are not all, their
    share as well.
    """
    metrics: Metrics = {}
    for name in sorted({k for r in rewards for k in r.parts}):
        values = [r.parts.get(name, 0.0) for r in rewards if not is_silent(name, r)]
        if values:
            metrics[f"part/{name}"] = float(np.mean(values))
        if len(values) < len(rewards):
            metrics[f"part_share/{name}"] = len(values) / len(rewards)
    return metrics


def is_silent(name: str, reward: Reward) -> bool:
    """Whether a part, or the part that it belongs to, says nothing of the episode."""
    return any(name == s or name.startswith(f"{s}/") for s in reward.silent)


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
    masses = [
        s.choices.log_mass
        for e in sampled
        for r in e.rows
        for s in r.segments
        if s.trained and s.choices is not None
    ]
    cut = [e.status.startswith("truncated") for e in sampled]
    return {
        "length": float(np.mean([e.n_sampled for e in sampled])) if sampled else 0.0,
        **{name: float(np.mean(x)) if x else float("nan") for name, x in lengths.items()},
        # nats a token: estimates the entropy
        "entropy_sampled": -float(np.mean(logp)) if logp else float("nan"),
        "truncated": float(np.mean(cut)) if cut else 0.0,
        # how likely a legal reply was without the restriction
        **({"legal_mass": float(np.exp(masses).mean())} if masses else {}),
    }
