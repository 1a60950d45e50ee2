"""Drawing tokens: one stream of uniform numbers a sequence, so that a draw belongs to its sequence
and not to the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from palaestra.types import Sampling

# called with how near draws come to another token, in probability; nobody listens while training
observers: list[Callable[[float], None]] = []
BLOCK = 256  # tokens whose probabilities are summed before one of them is looked for


@dataclass(frozen=True)
class DrawSettings:
    """What the distributions of some sequences become before they are drawn from; the truths are
    known without a GPU.
    """

    temperature_N: Tensor
    top_k_N: Tensor
    top_p_N: Tensor
    min_p_N: Tensor
    tempered: bool
    truncated: bool
    greedy: bool

    @classmethod
    def of(cls, asked: Sequence[Sampling], device: torch.device) -> DrawSettings:
        rows = torch.tensor(
            [(s.temperature, s.top_k, s.top_p, s.min_p) for s in asked], dtype=torch.float32
        ).T
        return cls(
            *rows.to(device),
            tempered=any(s.temperature not in (0, 1) for s in asked),
            truncated=any(s.top_k > 0 or s.top_p < 1 or s.min_p > 0 for s in asked),
            greedy=any(s.temperature == 0 for s in asked),
        )

    def of_rows(self, rows: Sequence[int]) -> DrawSettings:
        """Of the sequences that some rows belong to."""
        i = torch.tensor(rows).to(self.temperature_N.device)
        return replace(
            self,
            temperature_N=self.temperature_N[i],
            top_k_N=self.top_k_N[i],
            top_p_N=self.top_p_N[i],
            min_p_N=self.min_p_N[i],
        )


def draw(
    logits_NV: Tensor, uniform_N: Tensor, s: DrawSettings, given_N: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Tokens [N] by inverse transform and their log-probs [N] under the tempered and truncated
    distribution, in nats. Where `given_N` is not -1 it is the token, and nothing is truncated.

    Temperature 0 is greedy; its log-prob is 0, for the distribution it is drawn from has one token.
    """
    greedy_N = s.temperature_N == 0
    x_NV = (
        logits_NV / torch.where(greedy_N, 1.0, s.temperature_N)[:, None]
        if s.tempered
        else logits_NV
    )
    whole_NV = logp_NV = torch.log_softmax(x_NV, -1)
    if s.truncated:  # the others keep their bits
        cut_NV = truncate(logp_NV, s.top_k_N, s.top_p_N, s.min_p_N)
        cuts_N = (s.top_k_N > 0) | (s.top_p_N < 1) | (s.min_p_N > 0)
        logp_NV = torch.where(cuts_N[:, None], cut_NV, logp_NV)
    token_N = _inverse(logp_NV.exp(), uniform_N)
    if observers:
        distance = nearest_edge(logp_NV.exp(), uniform_N, greedy_N)
        for observe in observers:
            observe(distance)
    chosen_N = logp_NV.gather(1, token_N[:, None])[:, 0]
    if s.greedy:
        token_N = torch.where(greedy_N, logits_NV.argmax(-1), token_N)
        chosen_N = torch.where(greedy_N, 0.0, chosen_N)
    if given_N is not None:
        given_logp_N = whole_NV.gather(1, given_N.clamp(min=0)[:, None])[:, 0]
        token_N = torch.where(given_N < 0, token_N, given_N)
        chosen_N = torch.where(given_N < 0, chosen_N, given_logp_N)
    return token_N, chosen_N


def _inverse(p_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Tokens [N] where the running sum of probabilities passes `uniform_N` of their total: first
    the block, then in it.
    """
    N, V = p_NV.shape
    blocks_NKB = pad(p_NV, (0, -V % BLOCK)).view(N, -1, BLOCK)
    upto_NK = blocks_NKB.sum(-1).double().cumsum(-1)
    point_N1 = uniform_N.to(upto_NK)[:, None] * upto_NK[:, -1:]
    block_N1 = torch.searchsorted(upto_NK, point_N1, right=True).clamp(max=upto_NK.shape[1] - 1)
    before_N1 = torch.where(block_N1 > 0, upto_NK.gather(1, (block_N1 - 1).clamp(min=0)), 0.0)
    inside_NB = blocks_NKB[torch.arange(N, device=p_NV.device), block_N1[:, 0]].double().cumsum(-1)
    within_N1 = torch.searchsorted(inside_NB, point_N1 - before_N1, right=True).clamp(max=BLOCK - 1)
    token_N = (block_N1 * BLOCK + within_N1)[:, 0].clamp(max=V - 1)
    # rounding went past the last token of the block
    lost_N = p_NV.gather(1, token_N[:, None])[:, 0] == 0
    if not p_NV.is_cuda and not bool(lost_N.any()):  # on a GPU to ask takes longer than to do it
        return token_N
    return torch.where(lost_N, p_NV.argmax(-1), token_N)


def nearest_edge(p_NV: Tensor, uniform_N: Tensor, greedy_N: Tensor) -> float:
    """How near the draws come to another token, in probability: of a greedy one, the lead of the
    likeliest token over the second.
    """
    upto_NV = p_NV.double().cumsum(-1)
    drawn_N = (upto_NV / upto_NV[:, -1:] - uniform_N.to(upto_NV)[:, None]).abs().amin(-1)
    first_N, second_N = p_NV.double().topk(2, -1).values.unbind(-1)
    return float(torch.where(greedy_N, first_N - second_N, drawn_N).min())


def truncate(logp_NV: Tensor, top_k_N: Tensor, top_p_N: Tensor, min_p_N: Tensor) -> Tensor:
    """Log-probs renormalised over the tokens kept by top-k, nucleus (arXiv:1904.09751) and min-p
    (arXiv:2407.01082).
    """
    sorted_NV, order_NV = logp_NV.sort(-1, descending=True)
    p_NV = sorted_NV.exp()
    rank_V = torch.arange(logp_NV.shape[1], device=logp_NV.device)
    keep_NV = (rank_V < torch.where(top_k_N > 0, top_k_N, logp_NV.shape[1])[:, None]) & (
        p_NV.cumsum(-1) - p_NV < top_p_N[:, None]
    )
    keep_NV &= p_NV >= min_p_N[:, None] * p_NV[:, :1]
    keep_NV[:, 0] = True
    kept_NV = torch.zeros_like(keep_NV).scatter(1, order_NV, keep_NV)
    return torch.log_softmax(logp_NV.masked_fill(~kept_NV, float("-inf")), -1)
