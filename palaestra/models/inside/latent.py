"""Latent actions between hidden states and the vocabulary: K codes instead of V tokens. N
positions, K codes, D hidden.

    policy  pi(a | h_t)           which code
    world   p(x | h_t, a)         which token, given the code: the model's own vocabulary on a shifted hidden state
    inverse q(a | h_t, x_{t+1})   which code it must have been, seen the next token

(CoLA, arXiv:2503.21383.) The trunk below is frozen and its hidden states are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from palaestra.types import seed_of

Vocabulary = Callable[[Tensor], Tensor]  # [N, D] -> [N, V] logits
PREFIX = "latent-"  # the head "latent-16" has 16 codes


def straight_through(logits_NK: Tensor) -> Tensor:
    """One-hot of the likeliest code; its gradient is that of the softmax: onehot - sg(p) + p."""
    p_NK = logits_NK.softmax(-1)
    onehot_NK = nn.functional.one_hot(p_NK.argmax(-1), p_NK.shape[-1]).to(p_NK)
    return onehot_NK + p_NK - p_NK.detach()


class LatentHead(nn.Module):
    """Policy, world and inverse model over `codes` codes.

    The world starts without a shift and the policy uniform, so the model starts as it was without
    the head.
    """

    def __init__(self, codes: int, width: int, vocabulary: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.codes = codes
        self.code = nn.Parameter(torch.empty(codes, width, dtype=dtype))
        self.seen = nn.Parameter(
            torch.empty(vocabulary, codes, dtype=dtype)
        )  # the inverse model's view of the next token
        self.inverse = nn.Linear(width, codes, dtype=dtype)
        self.gate = nn.Linear(2 * width, width, dtype=dtype)
        self.up = nn.Linear(2 * width, width, dtype=dtype)
        self.shift = nn.Linear(width, width, dtype=dtype)
        self.think = nn.Linear(width, width, dtype=dtype)
        self.policy = nn.Linear(width, codes, dtype=dtype)
        generator = torch.Generator().manual_seed(seed_of((PREFIX, codes, width, vocabulary)))
        with torch.no_grad():
            for p in self.parameters():
                scale = 1.0 if p is self.seen or p is self.code else p.shape[-1] ** -0.5
                p.copy_(
                    scale * torch.randn(p.shape, generator=generator, dtype=dtype)
                    if p.dim() == 2
                    else torch.zeros_like(p)
                )
            for start in (self.shift, self.policy):
                start.weight.zero_()

    def choose(self, hidden_ND: Tensor) -> Tensor:
        """[N, K] log pi(a | h)."""
        return self.policy(nn.functional.silu(self.think(hidden_ND))).log_softmax(-1)

    def merge(self, hidden_ND: Tensor, code_ND: Tensor) -> Tensor:
        """[N, D] the hidden state under a code: h + SwiGLU(h, code)."""
        both = torch.cat([hidden_ND, code_ND], -1)
        return hidden_ND + self.shift(nn.functional.silu(self.gate(both)) * self.up(both))

    def logits(self, hidden_ND: Tensor, vocabulary: Vocabulary) -> Tensor:
        """[N, V] log sum_a pi(a | h) p(x | h, a): the policy over tokens that drawing a code and
        then a token makes.

        Only the policy over codes gets a gradient; that of log p(x) is the mean of grad log pi(a)
        over the codes that x may have come from, so the codes themselves need not be recorded.
        """
        h_ND = hidden_ND.detach().to(self.code.dtype)  # the trunk is frozen
        return torch.logsumexp(
            self.choose(h_ND)[..., None].float() + self.world(hidden_ND, vocabulary), 1
        )

    @torch.no_grad()  # the world stands still when the policy acts
    def world(self, hidden_ND: Tensor, vocabulary: Vocabulary) -> Tensor:
        """[N, K, V] log p(x | h, a) under every code."""
        h_ND, n, k = hidden_ND.to(self.code.dtype), len(hidden_ND), self.codes
        each_ND = self.merge(h_ND.repeat_interleave(k, 0), self.code.repeat(n, 1))
        return vocabulary(each_ND.to(hidden_ND.dtype)).float().log_softmax(-1).view(n, k, -1)

    @torch.no_grad()
    def usage(self, hidden_ND: Tensor) -> Tensor:
        """[N] nats: -sum_a pi(a | h) log mean_N pi(a), whose mean is the entropy of the codes in
        use; at most log K.
        """
        pi_NK = self.choose(hidden_ND.to(self.code.dtype)).exp()
        return -torch.xlogy(pi_NK, pi_NK.mean(0)).sum(-1)

    def steering(self, hidden_ND: Tensor, vocabulary: Vocabulary) -> Tensor:
        """[N] total variation between p(x | h, a) and the mean of all codes, mean over codes; 0
        where codes are all alike.
        """
        p_NKV = self.world(hidden_ND, vocabulary).exp()
        return (p_NKV - p_NKV.mean(1, keepdim=True)).abs().sum(-1).mean(1) / 2

    def construct(self, hidden_ND: Tensor, token_N: Tensor, vocabulary: Vocabulary) -> Tensor:
        """[N] nats: -log p(x | h, a) - log pi(a | h) with a the inverse model's likeliest code.

        The first term trains world and inverse model (straight through the code), the second clones
        the code into the policy.
        """
        h_ND = hidden_ND.detach().to(self.code.dtype)
        onehot_NK = straight_through(self.inverse(h_ND) + self.seen[token_N])
        world_NV = (
            vocabulary(self.merge(h_ND, onehot_NK @ self.code).to(hidden_ND.dtype))
            .float()
            .log_softmax(-1)
        )
        logits_N = world_NV.gather(1, token_N[:, None])[:, 0]
        # the label is given, not learned from the policy
        cloned = (onehot_NK.detach() * self.choose(h_ND)).sum(-1)
        return -logits_N - cloned
