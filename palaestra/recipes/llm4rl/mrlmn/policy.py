"""A policy for each group of agents, targets that are matched with agents, and the loss that distils them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl

NEVER = -1e9  # the logit of an action that is not legal
TARGET = "target"  # a column [n, A, T, K]: 1 for actions that bring an agent nearer to its target


class GroupTowers(nn.Module):
    """One network for each group; a row of observations [..., O] is read by that of its group, which stands in O
    as a one-hot from `first` on.
    """

    def __init__(self, towers: Sequence[nn.Module], first: int):
        super().__init__()
        self.towers, self.first = nn.ModuleList(towers), first

    def forward(self, obs: Tensor) -> Tensor:
        of = obs[..., self.first : self.first + len(self.towers)]
        out = torch.stack([tower(obs) for tower in self.towers], -1)
        return (out * of[..., None, :]).sum(-1)


class GroupedActorCritic(pl.control.ActorCritic):
    """An actor-critic for each group, which also says how likely the action towards a target is."""

    def __init__(self, observation: int, actions: int, groups: int, first: int, width: int = 64):
        super().__init__(observation, actions, width)
        each = [pl.control.ActorCritic(observation, actions, width) for _ in range(groups)]
        if groups > 1:
            self.actor = GroupTowers([x.actor for x in each], first)
            self.critic = GroupTowers([x.critic for x in each], first)

    def forward(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        out = super().forward(columns)
        if TARGET in columns:
            logits = self.actor(columns["obs"])
            if "legal" in columns:
                logits = logits.masked_fill(~columns["legal"].bool(), NEVER)
            logp = torch.log_softmax(logits, -1)
            nearer = columns[TARGET] > 0
            none = ~nearer.any(-1, keepdim=True)  # 0 = log of all probability
            out["target_logp"] = logp.masked_fill(~(nearer | none), -torch.inf).logsumexp(-1)
        return out


@pl.stage
class DistilTargets(pl.Algebra):
    """L_KD = mean -log sum_a pi(a), a the actions that bring an agent nearer to its matched target, over the steps of
    agents that have one.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        return ("target_logp",)

    def __call__(
        self, out: Mapping[str, Tensor], batch: pl.Batch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        has = batch["distil"]
        loss = -(out["target_logp"] * has).sum() / has.sum().clamp(min=1)
        return loss, {"distil_loss": loss.detach()}


def match_targets(cost_AJ: np.ndarray) -> np.ndarray:
    """[A] which target each agent has, -1 = none, of least cost in sum (the Hungarian method); of more targets than
    agents, or more agents than targets, some are left. Raises UserError without scipy.
    """
    target_A = np.full(len(cost_AJ), -1)
    if cost_AJ.size:
        agents, targets = solver().linear_sum_assignment(cost_AJ)
        target_A[agents] = targets
    return target_A


def solver() -> Any:
    """scipy.optimize. Raises UserError where it is missing."""
    try:
        import scipy.optimize
    except ImportError:
        raise pl.UserError("scipy is missing; `pip install 'palaestra[milp]'`") from None
    return scipy.optimize


def clean_targets(
    given: Sequence[Sequence[float]], low: np.ndarray, high: np.ndarray, most: int
) -> np.ndarray:
    """[J, 2] targets within bounds, none twice, the first `most` of them; NaN and places outside are dropped."""
    kept = list[tuple[float, float]]()
    for x, y in given:
        inside = low[0] <= x <= high[0] and low[1] <= y <= high[1]
        if inside and (x, y) not in kept and len(kept) < most:
            kept.append((float(x), float(y)))
    return np.array(kept).reshape(-1, 2)


def actions_towards(delta: np.ndarray, moves_Kd: np.ndarray) -> np.ndarray:
    """[..., K] which actions bring an agent nearer to a target `delta` [..., 2] away, or where none does the best one;
    none where there is no target (NaN).
    """
    there = ~np.isnan(delta).any(-1)
    now = np.linalg.norm(np.nan_to_num(delta), axis=-1)
    left = np.linalg.norm(np.nan_to_num(delta)[..., None, :] - moves_Kd, axis=-1)
    nearer = left < now[..., None] - 1e-9
    best = np.equal(left.argmin(-1)[..., None], np.arange(len(moves_Kd)))
    return np.where(nearer.any(-1, keepdims=True), nearer, best) & np.asarray(there)[..., None]


def action_towards(delta: np.ndarray, moves_Kd: np.ndarray) -> np.ndarray:
    """[...] the action whose move brings an agent nearest to a target `delta` [..., 2] away, the first of equal ones;
    -1 where there is no target (NaN).
    """
    left = np.linalg.norm(np.nan_to_num(delta)[..., None, :] - moves_Kd, axis=-1)
    return np.where(np.isnan(delta).any(-1), -1, left.argmin(-1))
