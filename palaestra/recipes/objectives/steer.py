"""STEER: tokens whose update would change the entropy most are damped.

For a sampled token of probability x (old x_old) in a softmax with entropy H, the entropy change
that its update causes is estimated as -lr * Omega (arXiv:2510.10150; in the form of the released
code):

    Omega = (A / x_old) x (1 - x) (log x + H)

A > 0 on a token likelier than the average of its distribution (log x + H > 0) lowers the entropy,
on a rarer one raises it; A < 0 reverses it. (The exact change by the token's own logit alone is -x
(log x + H): the same sign, another factor.) With m = |Omega| over the batch's tokens the weight of
a token is

    linear  w = w_max - (m - min m) (w_max - w_min) / (max m - min m),  w in [0.8, 1.2]; all m equal: the middle
    exp     w = exp(-k m),  k = -log(w_min) / max(max m, 0.02),         w in [0.8, 1]

and multiplies PPO's loss with clip-higher and a dual clip of 10. Omega is detached; a value that is
not finite counts as 0. A lone sample or equal rewards have A = 0, so Omega = 0 and w cancels. The
number "reweighted" of a step is the mean of |w - 1|.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="Rethinking entropy interventions: STEER token reweighting",
    paper="arXiv:2510.10150",
    claim="Weights from a token's estimated entropy change keep the entropy from collapsing at no "
    "cost in accuracy.",
    source="released code (zz-haooo/STEER) and abstract",
    size=pl.Size(
        setting="Qwen2.5-Math-7B, DAPO-Math-17k, 512 prompts x 8, minibatches of 32, 3,072 tokens, "
        "lr 1e-6",
        model="qwen2.5-7b",
        prompts=512,
        samples=8,
        tokens=3072,
        lr=1e-6,
        arguments={"update.minibatches": 16},
    ),
    needs=pl.needs.Requirements(
        shows="reweighted",
        off={"objective.weight.lowest": 1.0, "objective.weight.highest": 1.0},
        own={"schedule.prompts": 4},
    ),
    use="It helps in long runs whose entropy falls; where one token of a batch changes far more than all "
    "others, the weights of all others are alike and nothing changes.",
    grade="A",
)


def entropy_change(logp: Tensor, old_logp: Tensor, entropy: Tensor, advantage: Tensor) -> Tensor:
    """Omega; the entropy changes by about -lr * Omega. Probabilities stay within [1e-8,
    1 - 1e-8].
    """
    x, old = (v.exp().clamp(1e-8, 1 - 1e-8) for v in (logp, old_logp))
    return advantage / old * x * (1 - x) * (x.log() + entropy)


@pl.stage
class EntropyChange:
    """Weights from |Omega|: `lowest` at its largest value in the batch; linear up to `highest`, or
    exponential up to 1.
    """

    mapping: Literal["linear", "exp"] = "linear"
    lowest: float = 0.8
    highest: float = 1.2

    @property
    def needs(self) -> tuple[str, ...]:
        return ("logp", "entropy")

    @property
    def couples(self) -> pl.objective.Couples:
        return "batch"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        omega_BT = entropy_change(
            out["logp"], batch["behaviour_logp"], out["entropy"], batch["advantage"]
        )
        on_BT = batch.mask > 0
        m_BT = omega_BT.abs().nan_to_num(0.0, 0.0, 0.0)
        m_N = m_BT[on_BT]
        low, high = (m_N.min(), m_N.max()) if len(m_N) else (m_BT.new_zeros(()), m_BT.new_zeros(()))
        if self.mapping == "exp":
            w_BT = torch.exp(np.log(self.lowest) * m_BT / high.clamp(min=0.02)).clamp(
                self.lowest, 1.0
            )
        elif high > low:
            w_BT = self.highest - (m_BT - low) * (self.highest - self.lowest) / (high - low)
        else:
            w_BT = torch.full_like(m_BT, (self.lowest + self.highest) / 2)
        return w_BT * on_BT, {
            "entropy": pl.token_mean(out["entropy"], batch),
            "omega": pl.token_mean(omega_BT, batch),
            "weight": pl.token_mean(w_BT, batch),
            "reweighted": pl.token_mean((w_BT - 1).abs(), batch),
        }


def build(mapping: Literal["linear", "exp"] = "linear") -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.objective.TokenWeighted(
            pl.DualClipped(low=0.2, high=0.28, c=10.0), EntropyChange(mapping)
        ),
    )
