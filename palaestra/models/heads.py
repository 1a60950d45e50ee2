"""What stands on the hidden states of a model: its vocabulary, and extra outputs
(values, rewards).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.models.ears import EARS, Ears
from palaestra.models.eyes import EYES, Eyes
from palaestra.types import rng_of


class ScalarHead(nn.Module):
    """One number from a hidden state: w . h + b. It starts at zero, so that what is built on it
    starts unbiased.
    """

    def __init__(self, width: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.out = nn.Linear(width, 1, dtype=dtype)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """[N], in the head's own precision, whatever the model's is."""
        return self.out(hidden_ND.to(self.out.weight.dtype))[..., 0]


class PriorHead(ScalarHead):
    """A scalar head on top of a fixed random function of its own: heads agree where data is, and
    differ where none was.

    f(h) = w . h + b + p . h with p drawn from the head's name (randomised priors,
    arXiv:1806.03335).
    """

    prior: Tensor

    def __init__(self, name: str, width: int, dtype: torch.dtype = torch.float32):
        super().__init__(width, dtype)
        drawn = rng_of(("prior", name, width)).standard_normal(width) / width**0.5
        self.register_buffer("prior", torch.tensor(drawn, dtype=dtype))

    def forward(self, hidden_ND: Tensor) -> Tensor:
        return super().forward(hidden_ND) + hidden_ND.to(self.prior.dtype) @ self.prior


class ProjectionHead(nn.Module):
    """A hidden state in few dimensions, without bias. Its random start is a path's, the same on
    every machine.
    """

    def __init__(self, width: int, size: int = 64, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.out = nn.Linear(width, size, bias=False, dtype=dtype)
        start = (
            rng_of(("head", "projection", width, size)).standard_normal((size, width)) / width**0.5
        )
        with torch.no_grad():
            self.out.weight.copy_(torch.from_numpy(start))

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """[N, size], in the head's own precision."""
        return self.out(hidden_ND.to(self.out.weight.dtype))


class ActionValueHead(nn.Module):
    """Q(h, v), a number for every token v of the vocabulary; zero at the start, and a twin small
    random numbers, as two equal heads would learn the same.

    Where `strength` w is not 0 the model acts by it: pi(v) exp(w Q(v)), renormalised, which is
    pi exp(w A) as well, since a state's value is the same for all tokens (ILQL, arXiv:2206.11871).
    It is saved with the head. A slow copy follows a head by Polyak averaging and has no gradient.
    """

    power: Tensor

    def __init__(
        self,
        width: int,
        vocabulary: int,
        dtype: torch.dtype = torch.float32,
        *,
        twin: bool = False,
    ):
        super().__init__()
        self.register_buffer("power", torch.zeros((), dtype=dtype))
        self.out = nn.Linear(width, vocabulary, dtype=dtype)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        if twin:
            nn.init.normal_(
                self.out.weight, std=TWIN_STD, generator=torch.Generator().manual_seed(0)
            )

    @property
    def strength(self) -> float:
        """w, without a unit."""
        return float(self.power)

    @strength.setter
    def strength(self, w: float) -> None:
        self.power.fill_(w)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """[N, V], in the head's own precision."""
        return self.out(hidden_ND.to(self.out.weight.dtype))

    def act(self, value_NV: Tensor, logits_NV: Tensor) -> Tensor:
        """[N, V] logits of pi exp(w Q)."""
        # it learns from its own loss, not from what it makes the model say
        return logits_NV + self.strength * value_NV.detach().to(logits_NV)


TWIN_STD = 0.01  # of a twin's first weights
Q_HEADS = ("q", "q2")  # a head of values of tokens, and its twin
SLOW = "slow_"  # begins the name of a copy that follows


def head(name: str, width: int, vocabulary: int, dtype: torch.dtype) -> nn.Module:
    """An untrained head; "projection" gives vectors, "q" and "q2" a number for every token,
    "slow_q" and "slow_q2" too, without a gradient; every other name a number, "prior..." on a random
    prior. "eyes" and "ears" read no hidden states: they see the pictures and hear the sounds of a
    prompt.
    """
    if name == EYES:
        return Eyes(width, dtype)
    if name == EARS:
        return Ears(width, dtype)
    if name.removeprefix(SLOW) in Q_HEADS:
        twin = name.removeprefix(SLOW) != Q_HEADS[0]
        values = ActionValueHead(width, vocabulary, dtype, twin=twin)
        return values.requires_grad_(not name.startswith(SLOW))
    if name == "projection":
        return ProjectionHead(width, dtype=dtype)
    return PriorHead(name, width, dtype) if name.startswith("prior") else ScalarHead(width, dtype)


class VocabularyHead:
    """Logits of given hidden states, by the module's own `forward` with its body left out.

    Architectures scale, cap and bias their logits in different ways. A shallow copy of the module
    whose body returns what it is given runs that code, whatever it is. Where it is a plain product,
    the product is taken directly.
    """

    def __init__(self, causal: Any, width: int):
        self.body = _Given(getattr(causal, causal.base_model_prefix), causal.get_decoder())
        self.shell = copy.copy(causal)
        self.shell._modules = {
            k: v for k, v in causal._modules.items() if k != causal.base_model_prefix
        }
        self.shell.__dict__[causal.base_model_prefix] = self.body
        self.plain = causal.get_output_embeddings()
        probe_ND = 100 * torch.eye(4, width, dtype=causal.dtype, device=causal.device)
        with torch.no_grad():
            self.is_plain = self.plain is not None and torch.equal(
                self._own(probe_ND), self.plain(probe_ND)
            )

    def __call__(self, hidden_ND: Tensor) -> Tensor:
        return self.plain(hidden_ND) if self.is_plain else self._own(hidden_ND)

    def _own(self, hidden_ND: Tensor) -> Tensor:
        self.body.hidden = hidden_ND[None]
        try:
            return self.shell().logits[0]
        finally:
            self.body.hidden = None


class _Given:
    """Stands where the body of a model stood: says the hidden states it was given, and nothing
    else.
    """

    def __init__(self, body: nn.Module, decoder: nn.Module):
        self.body, self.decoder_inside = body, decoder
        self.hidden: Tensor | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> _Outputs:
        return _Outputs(self.hidden)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.body, name)
        # some call the decoder inside of the body
        return self if attribute is self.decoder_inside else attribute


class _Outputs:
    """A body's outputs of which only the hidden states are there."""

    def __init__(self, hidden: Tensor | None):
        self.last_hidden_state = hidden

    def __getattr__(self, name: str) -> None:
        return None

    def __getitem__(self, index: int) -> Tensor | None:
        return self.last_hidden_state if index == 0 else None
