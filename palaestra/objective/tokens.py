"""Token weights: which tokens of a policy-gradient loss count, and how much. A weight scales the
advantage, so it acts after clipping and leaves the trust region alone. It is always detached: no
gradient flows through the choice of tokens.

Ranks and extremes are those of the whole optimiser batch, so these weights couple its rows: a batch
that is split for memory gives the same gradient (the released codes of the papers rank within a
micro-batch, whose size then changes the method).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from palaestra.objective.algebra import ORDER, Algebra, Couples, Reduction, reduce_terms, token_mean
from palaestra.objective.policy import log_ratio
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Objective, Outputs, rng_of, stage


class TokenWeight(Protocol):
    """[B, T] weights of trained tokens from detached outputs, and metrics."""

    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def couples(self) -> Couples: ...

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]: ...


@stage
class TokenWeighted(Algebra):
    """An objective on advantages, with the advantage of every token multiplied by its weight."""

    objective: Objective
    weight: TokenWeight

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.objective.needs, *self.weight.needs)))

    @property
    def couples(self) -> Couples:
        return ORDER[max(ORDER.index(p.couples) for p in (self.objective, self.weight))]

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        # a choice, not a path
        w_BT, value = self.weight({k: v.detach() for k, v in out.items()}, batch)
        weighted = replace(batch, columns={**batch.columns, "advantage": w_BT * batch["advantage"]})
        loss, metrics = self.objective(out, weighted)
        return loss, metrics | value


@stage
class TopTokens:
    """1 for the ceil(share * N) of the batch's N tokens that rank highest, else 0; ties are cut in
    the order of the batch.

    `by`: "entropy" of the policy as it is, "low-entropy" for the complement, "random" for a control
    that depends on the row's tokens alone. `over`: what a token mean is over, "all" tokens or the
    "selected" ones (then weights are N / k). `micro` ranks the tokens of each micro-batch by
    themselves, N being theirs, so that its size is a setting of the method.
    """

    share: float = 0.2
    by: Literal["entropy", "low-entropy", "random"] = "entropy"
    over: Literal["all", "selected"] = "all"
    micro: bool = False

    def __post_init__(self) -> None:
        check_bounds("TopTokens.share", self.share, least=0, most=1)

    @property
    def needs(self) -> tuple[str, ...]:
        return () if self.by == "random" else ("entropy",)

    @property
    def couples(self) -> Couples:
        return "row" if self.micro else "batch"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        score_BT = random_scores(batch) if self.by == "random" else out["entropy"]
        chosen_BT = mark_top_share(
            score_BT if self.by != "low-entropy" else -score_BT, batch.mask > 0, self.share
        )
        metrics = {"tokens_selected": token_mean(chosen_BT, batch)}
        if "entropy" in out:
            metrics["entropy"] = token_mean(out["entropy"], batch)
            metrics["entropy_left_out"] = token_mean(out["entropy"] * (1 - chosen_BT), batch)
        scale = (
            float(batch.mask.sum()) / max(float(chosen_BT.sum()), 1.0)
            if self.over == "selected"
            else 1.0
        )
        return scale * chosen_BT, metrics


@stage
class Unmastered:
    """(1 - pi)^gamma: rare tokens count most, those that the policy is sure of nothing (RL-PLUS,
    arXiv:2508.00222, exploration-based advantage; gamma 0.5).
    """

    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_bounds("Unmastered.gamma", self.gamma, least=0)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("logp",)

    @property
    def couples(self) -> Couples:
        return "row"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        w_BT = (-torch.expm1(out["logp"] * batch.mask)).clamp(min=0.0) ** self.gamma
        return w_BT, {"unmastered": token_mean(w_BT, batch)}


def mark_top_share(score_BT: Tensor, on_BT: Tensor, share: float) -> Tensor:
    """[B, T] 1.0 at the ceil(share * N) highest of the N scores where `on`."""
    score_N = score_BT[on_BT]
    # 0.2 * 5 is 1, also in floating point
    k = min(len(score_N), math.ceil(share * len(score_N) - 1e-9))
    chosen_N = torch.zeros_like(score_N)
    chosen_N[torch.sort(score_N, descending=True, stable=True).indices[:k]] = 1.0
    return torch.zeros_like(score_BT).masked_scatter(on_BT, chosen_N)


def random_scores(batch: Batch) -> Tensor:
    """[B, T] uniform numbers that belong to each row's tokens, however the batch is split."""
    out_BT = torch.zeros_like(batch.mask)
    for b, (ids, n) in enumerate(zip(batch["ids"].tolist(), batch["length"].tolist(), strict=True)):
        out_BT[b, :n] = torch.from_numpy(rng_of(("random tokens", *ids[:n])).random(n)).to(out_BT)
    return out_BT


@stage
class DualClipped(Algebra):
    """-max(min(rho A, clip(rho, 1 - low, 1 + high) A), c A) where A < 0, PPO's clip where A >= 0
    (dual clip, arXiv:1912.09729).

    The bound c on the ratio of a negative advantage keeps one token from carrying the batch. log
    rho stays within +-20.
    """

    low: float = 0.2
    high: float = 0.28
    c: float = 10.0
    reduce: Reduction = "tokens"
    length: float | None = None

    def __post_init__(self) -> None:
        check_bounds("DualClipped.length", self.length, above=0)

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """`length` is the run's longest answer where it is open."""
        open_ = self.reduce == "constant" and self.length is None
        return replace(self, length=max_tokens) if open_ else self

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        rho_BT, A_BT = log_ratio(out, batch).clamp(-20, 20).exp(), batch["advantage"]
        gain_BT = torch.minimum(rho_BT * A_BT, rho_BT.clamp(1 - self.low, 1 + self.high) * A_BT)
        gain_BT = torch.where(A_BT < 0, torch.maximum(gain_BT, self.c * A_BT), gain_BT)
        return reduce_terms(-gain_BT, batch, self.reduce, self.length), {
            "ratio": token_mean(rho_BT, batch),
            "clipped": token_mean((gain_BT != rho_BT * A_BT).float(), batch),
        }
