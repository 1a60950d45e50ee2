"""What became of the episodes that a step saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaestra.types import Episode, Example, Group, Groups, Key


def outcomes(
    seen: Groups,
    ready: Groups,
    later: Groups,
    examples: Mapping[str, Sequence[Example]],
    oldest: int,
    pool: str,
) -> dict[Key, str]:
    """What became of each episode, by the keys of its rows.

    Args:
        ready: the groups of the step's batch.
        later: those that wait in the pool, or go on in a later step.
        examples: what was learned from, by learner.
        oldest: the step whose weights a token of the batch may have been sampled from at the
            earliest.
        pool: the name of the stage that chose the batch.

    Returns:
        "trained", "muted" or "no credit" for episodes of the batch; else "held:POOL", "stale" or
        "dropped:POOL".
    """
    batch, waiting = episode_by_key(ready), episode_by_key(later)
    learned = {e.row.key for each in examples.values() for e in each}
    became: dict[Key, str] = {}
    for group in seen:
        ages = [a for e in group.episodes if not e.muted and (a := e.oldest()) is not None]
        gone = "stale" if min(ages, default=oldest) < oldest else f"dropped:{pool}"
        for key in (r.key for e in group.episodes for r in e.rows):
            if key in learned:
                became[key] = "trained"
            elif key in batch:
                became[key] = "muted" if batch[key].muted else "no credit"
            else:
                became[key] = f"held:{pool}" if key in waiting else gone
    return became


def episode_by_key(groups: Sequence[Group]) -> dict[Key, Episode]:
    """Episodes by the keys of their rows."""
    return {r.key: e for g in groups for e in g.episodes for r in e.rows}
