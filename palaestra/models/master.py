"""Float32 master weights under weights of lower precision.

A bfloat16 weight has eight bits: a step of 1e-5 of its size rounds away. Gradients are gathered and
applied in float32, and only the result is rounded (arXiv:1710.03740, section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn


class MasterWeights:
    """An optimiser over float32 copies of `parameters`; used like one of torch."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        build: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
    ):
        self.parameters = list(parameters)
        self.masters = [nn.Parameter(p.detach().float().clone()) for p in self.parameters]
        self.inner = build(self.masters)
        for p, master in zip(self.parameters, self.masters, strict=True):
            p.register_post_accumulate_grad_hook(lambda p, master=master: _gather(p, master))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.inner.param_groups

    @property
    def state(self) -> dict[Any, Any]:
        return self.inner.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        self.inner.step()
        for p, master in zip(self.parameters, self.masters, strict=True):
            p.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "masters": [m.detach() for m in self.masters]}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        for master, saved in zip(self.masters, state["masters"], strict=True):
            master.copy_(saved)


@torch.no_grad()
def _gather(p: Tensor, master: nn.Parameter) -> None:
    """Adds a gradient to the master's as soon as it is there, so that micro-batches sum
    in float32.
    """
    if p.grad is None:
        return
    master.grad = p.grad.float() if master.grad is None else master.grad.add_(p.grad)
    p.grad = None


Optimizer: TypeAlias = torch.optim.Optimizer | MasterWeights
