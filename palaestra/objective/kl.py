"""Estimators of KL divergences from tokens a ~ pi(. | s), per token; and what each one's gradient
is, as a loss or in the reward.

With d = log pi(a) - log ref(a), q = ref / pi = exp(-d), R = grad KL(pi | ref) and F = grad KL(ref |
pi) (estimators: Schulman, "Approximating KL divergence", 2020):

    kind     value                            mean over a ~ pi        gradient as a loss          gradient in the reward
    k1       d                                KL(pi | ref)            0: it trains nothing        R
    k2       d^2 / 2                          KL(pi | ref) + O(d^3)   R                           grad E[k2] - R
    k3       q - 1 + d, >= 0                  KL(pi | ref)            F                           R - F
    forward  q log q - q + 1, >= 0            KL(ref | pi)            S = grad E_ref[log^2 q]/2   F - S
    full     sum_v pi(v) log pi(v) / ref(v)   KL(pi | ref), exactly   R                           0 for the token itself

As a loss, the gradient goes through the value and holds the tokens that were drawn still; in the
reward, it is that of the score function, E[value grad log pi], and holds the value still. Neither
is the gradient of the mean, which is their sum: an unbiased value does not make an unbiased
gradient. So the reverse KL of a token takes k1 in the reward, or k2 or full as a loss; the forward
KL takes k3 as a loss, which is not what k3 estimates. k2 and k3 in the reward are biased, k1 as a
loss is noise.

Over a sequence the tokens also choose the states that come later. A loss per token does not see
that; a reward does. full in the reward is this part alone: with full as a loss beside it, it gives
the gradient of k1 in the reward with less noise. full reads both models' distributions over the
whole vocabulary ("vocab_logp", T x V numbers a row): for small vocabularies. Off-policy tokens bias
all but full. q is as large as it is: in forward log q stays within +-10.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from palaestra.errors import UserError

KLKind = Literal["k1", "k2", "k3", "forward", "full"]
VOCABULARY = "vocab_logp"  # the quantity of whole distributions, [B, T, V]


def kl_quantity(kind: KLKind) -> str:
    """What an estimator reads of both models: the sampled tokens' log-probs, or those of the whole
    vocabulary.
    """
    return VOCABULARY if kind == "full" else "logp"


def kl_terms(logp: Tensor, other: Tensor, kind: KLKind) -> Tensor:
    """The value column of the module's table: per token from log-probs of tokens, for full from
    those of [..., V].
    """
    d = logp - other
    if kind == "k1":
        return d
    if kind == "k2":
        return d**2 / 2
    if kind == "k3":
        return torch.exp(-d) + d - 1
    if kind == "forward":
        log_q = -d.clamp(-10, 10)
        return log_q.exp() * (log_q - 1) + 1
    if kind == "full":
        return (logp.exp() * d).sum(-1)
    raise UserError(f"unknown KL estimator {kind!r}; there are k1, k2, k3, forward, full")
