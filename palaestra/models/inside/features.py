"""What hidden states say about rows, reduced where they are computed: no [T, D] array leaves the
forward pass.

N = trained tokens of all rows, D = the model's width. A feature is [N] (one number a trained token)
or [B, 1, D].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from palaestra.types import Batch, value_class

LOGITS = 1 << 24  # that may exist at a time beside their gradient: 64 MB each in float32


@value_class
class HiddenPlaces:
    """Trained tokens: their rows, the places before them, and the hidden states there, which chose
    them.
    """

    row_N: Tensor
    at_N: Tensor
    token_N: Tensor
    temperature_N: Tensor
    hidden_ND: Tensor


def effective_rank(z_RTD: Tensor) -> Tensor:
    """[R] exp of the entropy of p_j = s_j / sum s, the singular values of each centred [T, D]; 0
    for fewer than two tokens.

    Roy and Vetterli 2007. Singular values are roots of the eigenvalues of the smaller Gram matrix,
    in float64.
    """
    if z_RTD.shape[1] < 2:
        return z_RTD.new_zeros(len(z_RTD), dtype=torch.float64)
    z_RTD = z_RTD.double()
    z_RTD = z_RTD - z_RTD.mean(1, keepdim=True)
    gram = z_RTD @ z_RTD.mT if z_RTD.shape[1] <= z_RTD.shape[2] else z_RTD.mT @ z_RTD
    s_RJ = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    total_R = s_RJ.sum(1)
    p_RJ = s_RJ / total_R.clamp(min=1e-300)[:, None]
    return torch.where(total_R > 0, torch.exp(-torch.xlogy(p_RJ, p_RJ).sum(1)), 0.0)


def prefix_rank(model: Any, batch: Batch, at: HiddenPlaces, stride: int) -> Tensor:
    """[N] effective rank of the states that chose the row's tokens so far: at every `stride`-th
    token and at its last.

    0 at the others. The state that chose a token stands for it: the last token of a row is fed to
    nothing.
    """
    out_N = at.hidden_ND.new_zeros(len(at.row_N), dtype=torch.float64)
    lengths = torch.bincount(at.row_N, minlength=len(batch.unit_B)).tolist()
    start = [sum(lengths[:b]) for b in range(len(lengths))]
    ends = {n for n in lengths if n} | set(range(stride, max(lengths) + 1, stride))
    for n in sorted(ends):
        rows = [
            b for b, length in enumerate(lengths) if length == n or (length > n and n % stride == 0)
        ]
        if rows:
            z_RTD = torch.stack([at.hidden_ND[start[b] : start[b] + n] for b in rows]).detach()
            out_N[[start[b] + n - 1 for b in rows]] = effective_rank(z_RTD)
    return out_N


def head_gradient(model: Any, batch: Batch, at: HiddenPlaces) -> Tensor:
    """[B, 1, D] mean over the row's trained tokens of d log pi(y_t) / d h_t = W^T (onehot(y_t) -
    pi_t) / temperature.

    It passes through the vocabulary head alone, with its scaling and capping; the body of the model
    is not differentiated.
    """
    size = max(1, LOGITS // model.vocabulary)
    gradients = []
    for hidden_ND, token_N, temperature_N in zip(
        at.hidden_ND.split(size), at.token_N.split(size), at.temperature_N.split(size), strict=True
    ):
        with torch.enable_grad():
            leaf_ND = hidden_ND.detach().requires_grad_()
            logits_NV = model.logits(leaf_ND)
            logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
            logp_NV = torch.log_softmax(logits_NV / temperature_N[:, None].to(logits_NV.dtype), -1)
            (gradient_ND,) = torch.autograd.grad(logp_NV.gather(1, token_N[:, None]).sum(), leaf_ND)
        gradients.append(gradient_ND)
    return row_mean(torch.cat(gradients), at.row_N, len(batch.unit_B))[:, None]


def row_mean(x_ND: Tensor, row_N: Tensor, rows: int) -> Tensor:
    """[B, D] mean over the tokens of each row."""
    total_BD = x_ND.new_zeros(rows, x_ND.shape[1]).index_add(0, row_N, x_ND)
    return total_BD / torch.bincount(row_N, minlength=rows).clamp(min=1)[:, None]


def embedding(model: Any, batch: Batch, at: HiddenPlaces) -> Tensor:
    """[B, 1, D'] sum_t softmax(v)_t proj(h_t) over the row's span: heads "value" and "projection"
    make one vector of a row.

    The span is the batch column "span" [B, T], else every trained token. CARFT, arXiv:2508.15868.
    An empty span gives 0.
    """
    value_N, vector_ND = model.heads["value"](at.hidden_ND), model.heads["projection"](at.hidden_ND)
    span_N = (
        batch["span"][at.row_N, at.at_N + 1]
        if "span" in batch.columns
        else torch.ones_like(value_N)
    )
    rows = len(batch.unit_B)
    top_B = value_N.new_full((rows,), -torch.inf).scatter_reduce(
        0, at.row_N, value_N.detach(), "amax"
    )
    weight_N = span_N.to(value_N.dtype) * torch.exp(value_N - top_B[at.row_N])
    total_B = weight_N.new_zeros(rows).index_add(0, at.row_N, weight_N)
    share_N = weight_N / torch.where(total_B > 0, total_B, 1.0)[at.row_N]
    return vector_ND.new_zeros(rows, vector_ND.shape[1]).index_add(
        0, at.row_N, share_N[:, None] * vector_ND
    )[:, None]


def code_usage(model: Any, batch: Batch, at: HiddenPlaces) -> Tensor:
    """[N] nats; the mean is the entropy of the codes that a latent head's policy uses, over the
    tokens of a forward pass.
    """
    return model.latent.usage(at.hidden_ND)


def code_steering(model: Any, batch: Batch, at: HiddenPlaces) -> Tensor:
    """[N] how far a latent head's codes differ in the next token, as a total variation."""
    return torch.cat(
        [
            model.steering(part_ND)
            for part_ND in at.hidden_ND.split(max(1, LOGITS // model.logits_each))
        ]
    )


def q_logsumexp(model: Any, batch: Batch, at: HiddenPlaces, twin: int = 1) -> Tensor:
    """[N] log sum_v exp Q(h, v) of the head "q", of its twin "q2" for `twin` 2: less Q of the token
    that followed, its loss as a choice among all (the conservative term of ILQL, arXiv:2206.11871).
    """
    return model.heads["q" if twin == 1 else f"q{twin}"](at.hidden_ND).logsumexp(-1)


FEATURES: Mapping[str, Callable[..., Tensor]] = {
    f.__name__: f
    for f in (prefix_rank, head_gradient, embedding, code_usage, code_steering, q_logsumexp)
}
