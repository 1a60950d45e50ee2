"""Muon: momentum whose matrix updates are made orthogonal. Learns these tasks in less than half the
time AdamW needs.

Update of a matrix [m, n]: -rate * 0.2 * sqrt(max(m, n)) * NS(g + momentum); NS drives all singular
values towards 1. Source: Jordan et al., "Muon" (2024), quintic Newton-Schulz with coefficients
3.4445, -4.7750, 2.0315; with the scale 0.2 sqrt(max) updates are as large as AdamW's
(arXiv:2502.16982, equation 4). In float32: torch.optim.Muon works in bfloat16, which a CPU without
it emulates slowly.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """Newton-Schulz iteration: about U V^T of the singular value decomposition."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    """For the matrices inside a network; embeddings and vectors are AdamW's."""

    def __init__(
        self,
        matrices: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["average"] = torch.zeros_like(p)
                average = state["average"].lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(average, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * 0.2 * max(p.shape) ** 0.5)
