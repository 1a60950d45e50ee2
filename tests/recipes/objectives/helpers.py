"""Groups as `explain` takes them and as a run leaves them, and what a method makes of them."""

import numpy as np
import pytest
from palaestra.explanation.method import explain
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

near = lambda x, tolerance=1e-5: pytest.approx(x, abs=tolerance)


def scored(*rewards, **fields):
    return [{"reward": r, **{k: v[i] for k, v in fields.items()}} for i, r in enumerate(rewards)]


def advantages(recipe, *given):
    """The advantages of groups, which are lists of trajectories, or of the trajectories of one group."""
    groups = [list(given)] if isinstance(given[0], dict) else given
    found = explain(recipe, groups)["advantages"]
    return found[0] if len(groups) == 1 else found


def by_token(*credit, n=4):
    """The same credit at each of a trajectory's n tokens."""
    return [near([x] * n) for x in credit]


# losses that read log-probs, at most with entropies and a reference
PLAIN = ("apo", "asymre", "confucius3", "dr-grpo", "egsw", "lite-ppo", "nsr", "rec")


def group(totals, lengths=None, **fields):
    """Trajectories of one group; a field is a list with one value a trajectory."""
    lengths = lengths or [4] * len(totals)
    rows = [{"reward": r, "length": n} for r, n in zip(totals, lengths, strict=True)]
    for name, values in fields.items():
        for row, v in zip(rows, values, strict=True):
            row[name] = [v] * row["length"] if np.isscalar(v) else v
    return rows


def weights(recipe, *groups):
    found = explain(recipe, groups)["token_weights"]
    return found[0] if len(groups) == 1 else found


def groups_of(rewards, facts=None):
    """One group of one-row episodes with two trained tokens."""
    said = [Segment(ids=(i, i + 1), trained=True, policy="policy", logp=(-1.0, -1.0)) for i in range(len(rewards))]
    episodes = tuple(
        Episode(rows=(Row(segments=(Segment(ids=(0,)), s)),), reward=Reward(total=float(r)), status="finished")
        for r, s in zip(rewards, said, strict=True)
    )
    return [Group(task=Task(id="t"), episodes=episodes)]


def pair(reference="ref_logp"):
    """r = [1, 0], log-ratios of whole generations [.2, -.1] over two tokens each."""
    return [
        {"reward": 1, "logp": [-0.9, -0.9], reference: [-1.0, -1.0]},
        {"reward": 0, "logp": [-1.0, -1.1], reference: [-1.0, -1.0]},
    ]
