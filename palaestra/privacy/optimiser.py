"""AdamW for gradients with noise of a known size.

    m = b1 m + (1 - b1) g,    v = b2 v + (1 - b2) g^2,    u = max(v - (1 - b2^t) s^2, 0)
    theta <- (1 - lr wd) theta - lr (m / (1 - b1^t)) / sqrt(u / (1 - b2^t) + eps)

s^2 is the variance of the noise in each coordinate of g: noise inflates v by it, so that without the
correction all coordinates are divided by about the same (DP-AdamBC, arXiv:2312.14334; DP-AdamW,
arXiv:2505.08849).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from palaestra.models.master import Optimizer, with_masters
from palaestra.types import stage
from palaestra.update import AdamW

VARIANCE = "noise_variance"  # of a coordinate of the gradient, set before every step


class NoiseCorrectedAdamW(torch.optim.Optimizer):
    """The rule above as an optimiser of torch; `noise_variance` is s^2, 0 = plain AdamW but for the
    place of eps.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ):
        defaults: dict[str, Any] = {
            "lr": 0.0,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            VARIANCE: 0.0,
        }
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._move(p, p.grad, group)

    def _move(self, p: nn.Parameter, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state, (b1, b2) = self.state[p], group["betas"]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(p)
            state["exp_avg_sq"] = torch.zeros_like(p)
        state["step"] += 1
        t, m, v = int(state["step"]), state["exp_avg"], state["exp_avg_sq"]
        m.mul_(b1).add_(grad, alpha=1 - b1)
        v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        unbias = 1 - b2**t
        u = (v - unbias * group[VARIANCE]).clamp(min=0)
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.addcdiv_(m, (u / unbias + group["eps"]).sqrt(), value=-group["lr"] / (1 - b1**t))


@stage
class DPAdamW(AdamW):
    """AdamW whose second moment is corrected for the noise that `PrivateSteps` adds.

    `eps` stands under the root, and bounds a step where the gradient is lost in the noise: there u
    is 0 in about half of the coordinates. The noisy gradient is not clipped once more.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-4
    clip_norm: float = 0.0

    def build(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        def adamw(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
            return NoiseCorrectedAdamW(parameters, self.betas, self.eps, self.weight_decay)

        return with_masters(parameters, adamw, self.narrow_moments)
