"""Surrogates for tokens that another policy, or the same one in another context, has said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Couples, Reduction, reduce_terms, token_mean
from palaestra.objective.policy import log_ratio
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage

LEAST_LOG_WEIGHT = math.log(1e-8)
Shape: TypeAlias = Literal["power", "saturating", "quantile", "mixture"]


@stage
class Shaped(Algebra):
    """-A g, without a clip, of x = pi / pi_old.

        power       g = x^power; 1 = plain importance sampling
        saturating  g = x / (x + constant), f of LUFFY, arXiv:2504.14945: with x = pi its weight pi constant / (pi + constant)^2
                    is highest at pi = constant, where the policy would rarely say what it is shown
        quantile    the same, the constant being the 0.9-quantile of the x of these tokens in the whole batch (Guide-GRPO;
                    at least 1e-4, detached)
        mixture     g = 2 pi / (pi_old + pi_w), pi_w = (pi_old + density) / 2: a token is of pi_old or of an unknown author,
                    whose density is estimated by pi_w (RL-PLUS, arXiv:2508.00222; its released code has density 1)

    pi_old: "behaviour" is the recorded log-prob; "policy" that before the update (the learner must
    need ("policy", "logp")); "unknown" is probability 1, so that x = pi and nothing is read. The
    mixture reads "policy". Weights of a token, such as RL-PLUS's, are `TokenWeighted`.
    """

    form: Shape = "saturating"
    old: Literal["unknown", "behaviour", "policy"] = "unknown"
    power: float = 1.0
    constant: float = 0.1
    quantile: float = 0.9
    density: float = 1.0
    reduce: Reduction = "tokens"
    length: float | None = None

    def __post_init__(self) -> None:
        check_bounds("Shaped.constant", self.constant, above=0)
        check_bounds("Shaped.quantile", self.quantile, least=0, most=1)
        check_bounds("Shaped.density", self.density, least=0)
        check_bounds("Shaped.length", self.length, above=0)
        if self.form == "mixture" and self.old != "policy":
            raise UserError(
                'Shaped: the mixture is with the policy before the update: old="policy"'
            )

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """`length` is the run's longest answer where it is open."""
        open_ = self.reduce == "constant" and self.length is None
        return replace(self, length=max_tokens) if open_ else self

    @property
    def couples(self) -> Couples:
        return "batch" if self.form == "quantile" else "row"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        p_BT = (out["logp"] * batch.mask).exp()
        g_BT = self.shape(p_BT, self._old(batch), batch.mask > 0)
        loss = reduce_terms(-batch["advantage"] * g_BT, batch, self.reduce, self.length)
        return loss, {"shaped": token_mean(g_BT, batch), "probability": token_mean(p_BT, batch)}

    def _old(self, batch: Batch) -> Tensor:
        if self.old == "unknown":
            return torch.ones_like(batch.mask)
        return (batch[f"{self.old}_logp"] * batch.mask).exp()

    def shape(self, p_BT: Tensor, old_BT: Tensor, on_BT: Tensor) -> Tensor:
        """g of the tokens' probabilities, under the policy and pi_old, where `on`."""
        if self.form == "mixture":
            return 2 * p_BT / (old_BT + (old_BT + self.density) / 2)
        x_BT = p_BT / old_BT
        if self.form == "power":
            return x_BT**self.power
        if self.form == "saturating":
            return x_BT / (x_BT + self.constant)
        if self.form == "quantile":
            x_N = x_BT[on_BT].detach()  # a scale of the batch, not a path to its extremes
            at = torch.quantile(x_N, self.quantile) if len(x_N) else x_BT.new_ones(())
            return x_BT / (x_BT + at.clamp(min=1e-4))
        raise UserError(
            f"unknown form {self.form!r}; there are power, saturating, quantile, mixture"
        )


@stage
class SoftGated(Algebra):
    """-A (4 / tau) sigmoid(tau (rho - 1)), rho = pi / pi_behaviour: a soft trust region in the place
    of a clip (SAPO, arXiv:2511.20347 eq. 5 and 6).

    tau is `positive` where A > 0 and `negative` elsewhere. The gradient of a token is that of rho A
    times sech^2(tau (rho - 1) / 2): 1 on policy, and falling smoothly on both sides. A larger tau
    for negative advantages makes their gradients fall faster.
    """

    positive: float = 1.0
    negative: float = 1.05
    reduce: Reduction = "sequences"
    length: float | None = None

    def __post_init__(self) -> None:
        check_bounds("SoftGated.positive", self.positive, above=0)
        check_bounds("SoftGated.negative", self.negative, above=0)
        check_bounds("SoftGated.length", self.length, above=0)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        rho_BT, A_BT = log_ratio(out, batch).exp(), batch["advantage"]
        up_BT = (A_BT > 0).to(rho_BT)
        tau_BT = self.positive * up_BT + self.negative * (1 - up_BT)
        gate_BT = torch.sigmoid(tau_BT * (rho_BT - 1))
        loss = reduce_terms(-A_BT * gate_BT * 4 / tau_BT, batch, self.reduce, self.length)
        return loss, {
            "ratio": token_mean(rho_BT, batch),
            "gate": token_mean(4 * gate_BT * (1 - gate_BT), batch),
        }


@stage
class GammaWeighted(Algebra):
    """-phi(w) A log pi, w = the whole answer's ratio pi / pi_behaviour, phi(w) = w^k exp(lam (1 - w)):
    VESPO (arXiv:2602.10693), 1 on policy, 0 for answers that the policy would hardly say, and falling
    again where w is large.

    k and lam are `k_up`, `lam_up` where A >= 0, else `k_down`, `lam_down`. phi is a weight: no gradient
    flows through it. log of a token's ratio is held within +-20, that of w within log 1e-8 and 20, as
    in the released code and TRL.
    """

    k_up: float = 2.0
    lam_up: float = 3.0
    k_down: float = 3.0
    lam_down: float = 2.0
    reduce: Reduction = "tokens"

    def __post_init__(self) -> None:
        check_bounds("GammaWeighted.k_up", self.k_up, least=0)
        check_bounds("GammaWeighted.k_down", self.k_down, least=0)
        check_bounds("GammaWeighted.lam_up", self.lam_up, above=0)
        check_bounds("GammaWeighted.lam_down", self.lam_down, above=0)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        A_BT = batch["advantage"]
        x_BT = log_ratio(out, batch).detach().clamp(-20, 20)
        log_w_BT = x_BT.sum(1, keepdim=True).clamp(LEAST_LOG_WEIGHT, 20).expand_as(x_BT)
        up_BT = A_BT >= 0
        k_BT = torch.where(up_BT, self.k_up, self.k_down)
        lam_BT = torch.where(up_BT, self.lam_up, self.lam_down)
        phi_BT = (lam_BT + k_BT * log_w_BT - lam_BT * log_w_BT.exp()).exp()
        return reduce_terms(-phi_BT * A_BT * out["logp"], batch, self.reduce), {
            "answer_ratio": token_mean(log_w_BT.exp(), batch),
            "gamma_weight": token_mean(phi_BT, batch),
        }
