"""How the credit of a batch is to be read: its level, whether the loss uses it, and what training
would do otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from palaestra.abilities import drops_equal
from palaestra.context import Collect, Credit, Pool
from palaestra.credit.links import Chain
from palaestra.credit.table import Table
from palaestra.curriculum.pool import is_mixed
from palaestra.rollout.collect import Links, Sample
from palaestra.types import Batch, Groups, Objective, Signals
from palaestra.update import loss_of
from palaestra.values import brief, walk

UNUSED_ADVANTAGES = (
    "the loss of this method does not use the advantages; token_weights show what it does"
)


def varies_within_episode(credit: Credit, groups: Groups, signals: Signals) -> bool:
    """Whether the credit is by turn or token, and so may differ within a trajectory."""
    chains = [part for _, part in walk((credit,)) if isinstance(part, Chain)]
    return any(c.values(Table(groups, signals, {})).level != "episode" for c in chains)


def derivative(
    objective: Objective, out: Mapping[str, Tensor], batch: Batch
) -> tuple[Tensor, bool]:
    """[B, T] minus the derivative of the loss to each log-prob, and whether the loss leaves the
    column "advantage" unused.
    """
    columns = dict(batch.columns)
    if "advantage" in columns:
        columns["advantage"] = columns["advantage"].clone().requires_grad_()
    leaves = {k: v.detach().clone().requires_grad_() for k, v in out.items()}
    loss, _ = loss_of(objective, leaves, replace(batch, columns=columns))
    asked = [leaves["logp"], *([columns["advantage"]] if "advantage" in columns else [])]
    gradients: list[Tensor | None] = list(torch.autograd.grad(loss, asked, allow_unused=True))
    slope_BT = torch.zeros_like(asked[0]) if gradients[0] is None else gradients[0]
    return 0.0 - slope_BT, len(gradients) > 1 and gradients[1] is None


def muted_answers_remark(groups: Groups) -> list[str]:
    """The remark that answers of a prompt do not train, where some do not."""
    muted = sum(e.muted for g in groups for e in g.episodes)
    total = sum(len(g.episodes) for g in groups)
    return [
        f"{muted} of {total} answers do not train: the method samples more of a prompt than it trains on"
    ] * bool(muted)


def dropped_groups_remark(pool: Pool, groups: Groups) -> list[str]:
    """The remark that the pool would not train on groups of equal rewards, if it would not."""
    equal = [str(g) for g, group in enumerate(groups) if not is_mixed(group)]
    if not equal or not drops_equal(pool):
        return []
    which = (
        f"group {equal[0]}: all its answers"
        if len(equal) == 1
        else f"groups {', '.join(equal)}: all answers of each"
    )
    return [f"the pool {type(pool).__name__} would drop {which} earn the same"]


def other_links_remark(method: Collect, run: Collect, name: str) -> list[str]:
    """The remark that rollouts of the run `name` lack what a method's own links do, if they do.

    Samples are samples, whatever their number.
    """
    theirs = links_of(run)
    same = lambda a, b: (
        a == b or (isinstance(a, Sample) and isinstance(b, Sample) and a.model == b.model)
    )
    lacking = [
        brief(link) for link in links_of(method) if not any(same(link, other) for other in theirs)
    ]
    if not lacking:
        return []
    return [
        f"these are rollouts of {name}: what this method collects by {' and '.join(lacking)} is "
        "not in them"
    ]


def sampled_remark(n: int, total: int | None) -> list[str]:
    """The remark that a file holds `n` of a step's `total` episodes; None = it holds all."""
    if total is None:
        return []
    return [
        f"the run wrote {n} of the step's {total} episodes (--rollouts sample): what a method "
        "compares across groups, or in a group that is cut, is of these alone"
    ]


def links_of(collect: Collect) -> Sequence[Collect]:
    """The links of a collection, which may be a single one."""
    return collect.links if isinstance(collect, Links) else (collect,)
