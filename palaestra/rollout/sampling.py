"""Drawing tokens: one stream of uniform numbers a sequence, so that a draw belongs to its sequence and not to the batch."""

from __future__ import annotations

import torch
from torch import Tensor


def draw(
    logits_NV: Tensor, uniform_N: Tensor, temperature_N: Tensor, top_k_N: Tensor, top_p_N: Tensor, min_p_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Tokens [N] by inverse transform and their log-probs [N] under the tempered and truncated distribution, in nats.

    Temperature 0 is greedy; its log-prob is 0, for the distribution it is drawn from has one token.
    """
    greedy_N = temperature_N == 0
    logp_NV = torch.log_softmax(logits_NV / torch.where(greedy_N, 1.0, temperature_N)[:, None], -1)
    cut_N = (top_k_N > 0) | (top_p_N < 1) | (min_p_N > 0)
    if bool(cut_N.any()):
        logp_NV = truncate(logp_NV, top_k_N, top_p_N, min_p_N)
    cumulative_NV = logp_NV.exp().cumsum(-1)
    point_N = uniform_N.to(cumulative_NV) * cumulative_NV[:, -1]
    token_N = torch.searchsorted(cumulative_NV, point_N[:, None], right=True)[:, 0].clamp(max=logits_NV.shape[1] - 1)
    token_N = torch.where(greedy_N, logits_NV.argmax(-1), token_N)
    chosen_N = logp_NV.gather(1, token_N[:, None])[:, 0]
    return token_N, torch.where(greedy_N, 0.0, chosen_N)


def truncate(logp_NV: Tensor, top_k_N: Tensor, top_p_N: Tensor, min_p_N: Tensor) -> Tensor:
    """Log-probs renormalised over the tokens kept by top-k, nucleus (arXiv:1904.09751) and min-p (arXiv:2407.01082)."""
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
