"""Policy-gradient surrogates, and imitation. All are losses: to be minimised."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Reduction, reduce_terms, token_mean
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage

Trust = Literal["all", "one-side", "two-side", "ring"]
RatioLevel: TypeAlias = Literal["token", "turn", "sequence", "sequence-mean", "sequence-mean-token"]


def log_ratio(
    out: Outputs, batch: Batch, level: RatioLevel = "token", old: str = "behaviour"
) -> Tensor:
    """log pi - log pi_old [B, T] at trained tokens, by token or the same for a turn or a row.

    Args:
        level: "turn" and "sequence" sum it over the turn or the row; "sequence-mean" is the mean
            over the row's tokens (GSPO, arXiv:2507.18071 eq. 7); "sequence-mean-token" has the
            value of that mean, and each token the gradient of its own log-prob (GSPO-token, eq.
            14).
        old: the column of the log-probs is `old`_logp.

    Turns count over an episode of several rows, so a number may exceed its row's length.
    """
    x_BT = (out["logp"] - batch[f"{old}_logp"]) * batch.mask
    if level == "token":
        return x_BT
    if level in ("sequence", "sequence-mean", "sequence-mean-token"):
        sum_B1 = x_BT.sum(1, keepdim=True)
        if level == "sequence":
            return sum_B1.expand_as(x_BT) * batch.mask
        mean_BT = (sum_B1 / batch.mask.sum(1, keepdim=True).clamp(min=1)) * batch.mask
        # the value is that of the row; the gradient is that of the token alone
        return mean_BT if level == "sequence-mean" else mean_BT.detach() + x_BT - x_BT.detach()
    turn_BT = batch["turn"]
    total_BN = x_BT.new_zeros(len(x_BT), int(turn_BT.max()) + 1).scatter_add(1, turn_BT, x_BT)
    return total_BN.gather(1, turn_BT) * batch.mask


@stage
class Clipped(Algebra):
    """-min(rho A, clip(rho, 1 - low, 1 + high) A), PPO, arXiv:1707.06347 eq. 7.

    `high` > `low` is clip-higher (DAPO, arXiv:2503.14476 eq. 10). `ratio="sequence"` is a bandit
    over whole rows; "sequence-mean" is GSPO, whose rho is the geometric mean of the row's token
    ratios, and "sequence-mean-token" is GSPO-token. rho is against the behaviour; `old="policy"`
    takes it against the policy before the update, which leaves the age of a sample uncorrected (the
    learner must need ("policy", "logp")).
    """

    low: float = 0.2
    high: float = 0.2
    ratio: RatioLevel = "token"
    reduce: Reduction = "sequences"
    length: float | None = None
    old: str = "behaviour"

    def __post_init__(self) -> None:
        check_bounds("Clipped.low", self.low, least=0)
        check_bounds("Clipped.high", self.high, least=0)
        check_bounds("Clipped.length", self.length, above=0)

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """`length` is the run's longest answer where it is open."""
        open_ = self.reduce == "constant" and self.length is None
        return replace(self, length=max_tokens) if open_ else self

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        rho_BT = log_ratio(out, batch, self.ratio, self.old).exp()
        A_BT = batch["advantage"]
        clipped_BT = rho_BT.clamp(1 - self.low, 1 + self.high)
        loss_BT = -torch.minimum(rho_BT * A_BT, clipped_BT * A_BT)
        outside_BT = (clipped_BT * A_BT < rho_BT * A_BT).float()
        return reduce_terms(loss_BT, batch, self.reduce, self.length), {
            "ratio": token_mean(rho_BT, batch),
            "clipped": token_mean(outside_BT, batch),
            "kl_behaviour": token_mean(rho_BT - 1 - rho_BT.clamp(min=1e-30).log(), batch),
        }


@stage
class Reinforce(Algebra):
    """-A M w log pi: the score-function estimator (Williams 1992), with what makes it robust on
    data of another policy.

    The mask M trusts a token by its detached ratio rho = pi / pi_behaviour (REC, arXiv:2509.24203):

        all        M = 1
        one-side   rho <= 1 + high where A >= 0, rho >= 1 - low where A <= 0: exactly what PPO's clip leaves a gradient
        two-side   1 - low <= rho <= 1 + high
        ring       two-side, or far away but moving back: rho <= 1 - far_low where A >= 0, rho >= 1 + far_high where A <= 0

    w = rho with `weighted` (importance sampling), else 1; with a `cap` it is min(rho, cap), the
    one-sided truncation of AIPO (LlamaRL, arXiv:2505.24034). Regularisers add: `+ tau * Imitation()`
    lowers the baseline by tau (AsymRE), `+ 2 * tau * KL("k2", model="behaviour")` is tau (log
    rho)^2 (Kimi's OPMD). The group's mean as the baseline makes -A log pi the gradient of a
    KL-regularised consistency loss on samples of any policy, so no ratio is needed.
    """

    reduce: Reduction = "sequences"
    length: float | None = None
    trust: Trust = "all"
    weighted: bool = False
    low: float = 0.2
    high: float = 0.2
    far_low: float = 0.6
    far_high: float = 2.0
    cap: float | None = None  # of w, which asks for `weighted`; None = it has none

    def __post_init__(self) -> None:
        check_bounds("Reinforce.length", self.length, above=0)
        check_bounds("Reinforce.cap", self.cap, above=0)
        if self.cap is not None and not self.weighted:
            raise UserError("Reinforce.cap bounds the weight rho: say weighted=True as well")

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """`length` is the run's longest answer where it is open."""
        open_ = self.reduce == "constant" and self.length is None
        return replace(self, length=max_tokens) if open_ else self

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        A_BT = batch["advantage"]
        # reads no behaviour log-prob, which may be unknown
        if self.trust == "all" and not self.weighted:
            return reduce_terms(-A_BT * out["logp"], batch, self.reduce, self.length), {}
        # a weight of the sample, not a function to differentiate
        rho_BT = log_ratio(out, batch).detach().exp()
        trusted_BT = self.trust_mask(rho_BT, A_BT)
        capped_BT = rho_BT if self.cap is None else rho_BT.clamp(max=self.cap)
        weight_BT = capped_BT * trusted_BT if self.weighted else trusted_BT
        return reduce_terms(-A_BT * weight_BT * out["logp"], batch, self.reduce, self.length), {
            "ratio": token_mean(rho_BT, batch),
            "clipped": token_mean(1 - trusted_BT, batch),
        }

    def trust_mask(self, rho_BT: Tensor, A_BT: Tensor) -> Tensor:
        """The mask M, 1.0 or 0.0."""
        below_BT, above_BT = rho_BT <= 1 + self.high, rho_BT >= 1 - self.low
        if self.trust == "all":
            return torch.ones_like(rho_BT)
        if self.trust == "one-side":
            return ((below_BT | (A_BT < 0)) & (above_BT | (A_BT > 0))).to(rho_BT)
        if self.trust == "two-side":
            return (below_BT & above_BT).to(rho_BT)
        if self.trust == "ring":
            back_BT = ((A_BT >= 0) & (rho_BT <= 1 - self.far_low)) | (
                (A_BT <= 0) & (rho_BT >= 1 + self.far_high)
            )
            return ((below_BT & above_BT) | back_BT).to(rho_BT)
        raise UserError(f"unknown trust {self.trust!r}; there are all, one-side, two-side, ring")


@stage
class Imitation(Algebra):
    """-log pi of the recorded tokens: supervised fine-tuning. Needs no behaviour log-prob."""

    reduce: Reduction = "tokens"

    def measures(self, out: Outputs, batch: Batch) -> dict[str, Tensor]:
        return {"nll": -(out["logp"] * batch.mask).sum(1), "tokens": batch.mask.sum(1)}

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = reduce_terms(-out["logp"], batch, self.reduce)
        return loss, {"nll": token_mean(-out["logp"], batch)}
