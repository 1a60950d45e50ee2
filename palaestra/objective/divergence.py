"""Divergences between next-token distributions, for distillation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Reduction, reduce_terms, token_mean
from palaestra.objective.kl import VOCABULARY, KLKind, kl_terms
from palaestra.schedule import check_bounds
from palaestra.types import SPAN, SPAN_LOGP, Batch, Outputs, stage

ASKED, TOP = "asked_logp", "top_logp"  # the quantities of some tokens alone


def generalised_jsd(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """The generalised Jensen-Shannon divergence in nats, over the last dimension.

    With P the teacher, Q the student and M = beta P + (1 - beta) Q it is beta KL(P | M) + (1 - beta)
    KL(Q | M), between 0 and log 2 (arXiv:2306.13649, eq. 1). At beta 0 and 1, where that is 0, it is
    KL(P | Q), the forward KL, and KL(Q | P), the reverse one, its limits divided by beta and by 1 -
    beta; so the size of the loss jumps at both ends.

    Args:
        student: [..., V] log-probs, through which the gradient flows.
        teacher: [..., V] log-probs.
    """
    if beta == 0:
        return (teacher.exp() * (teacher - student)).sum(-1)
    if beta == 1:
        return (student.exp() * (student - teacher)).sum(-1)
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    of_teacher = (teacher.exp() * (teacher - mixture)).sum(-1)
    of_student = (student.exp() * (student - mixture)).sum(-1)
    return beta * of_teacher + (1 - beta) * of_student


@stage
class GeneralisedJSD(Algebra):
    """The divergence to a frozen model over the whole vocabulary, as a loss; exact for each token's
    state. The tokens are held still: that they choose later states has no gradient.

    The learner must need (model, "vocab_logp"), T x V numbers a row.

    Args:
        beta: 0 = forward KL, 1 = reverse KL, between = JSD.
        model: the teacher, by its name among the references.
    """

    beta: float = 1.0
    model: str = "teacher"
    reduce: Reduction = "tokens"

    def __post_init__(self) -> None:
        check_bounds("GeneralisedJSD.beta", self.beta, least=0, most=1)

    @property
    def needs(self) -> tuple[str, ...]:
        return (VOCABULARY,)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        own, theirs = out[VOCABULARY], batch[f"{self.model}_{VOCABULARY}"]
        if own.shape[-1] != theirs.shape[-1]:  # releases of one base pad the vocabulary differently
            common = min(own.shape[-1], theirs.shape[-1])
            own, theirs = (x[..., :common].log_softmax(-1) for x in (own, theirs))
        x_BT = generalised_jsd(own, theirs, self.beta)
        return reduce_terms(x_BT, batch, self.reduce), {
            f"divergence_{self.model}": token_mean(x_BT, batch)
        }


@stage
class TopJSD(Algebra):
    """`GeneralisedJSD` from the teacher's `top` likeliest tokens, with all others as one outcome.

    Joining outcomes takes from a divergence, so it is at most that of the whole vocabulary, and equal
    where `top` is all of it. The learner must need (model, "top_logp:TOP"), 2 TOP numbers a token, and
    its credit the column "asked", the second half of these.
    """

    top: int
    beta: float = 1.0
    model: str = "teacher"
    reduce: Reduction = "tokens"

    def __post_init__(self) -> None:
        check_bounds("TopJSD.beta", self.beta, least=0, most=1)

    @property
    def needs(self) -> tuple[str, ...]:
        return (ASKED,)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        theirs = batch[f"{self.model}_{TOP}:{self.top}"]
        known = theirs[..., : theirs.shape[-1] // 2]
        x_BT = generalised_jsd(with_rest(out[ASKED]), with_rest(known), self.beta)
        return reduce_terms(x_BT, batch, self.reduce), {
            f"divergence_{self.model}": token_mean(x_BT, batch)
        }


@stage
class SpanKL(Algebra):
    """A KL to a model with another tokenizer, of the smallest texts that both can spell
    (`models.alignment`): `KL` of spans in place of tokens, and the same where each span is one token.

    Of a span s of a row log pi(s) is the sum over its tokens, log T(s) that over the teacher's tokens
    of the same text; what is summed is k(log pi(s) - log T(s)), at the last token of each span. A token
    in no span has no term, and counts in the means as others do.

    The learner must need (model, "span"), the number of each token's span, from 1 on, and (model,
    "span_logp"), log T(s) at each of its tokens.

    Args:
        kind: see `objective.kl`: as a loss k2 has the gradient of the reverse KL of the spans' texts, k3
            that of the forward one.
        model: the teacher, by its name among the references.
        weight: a column of the credit that multiplies it token by token; the metric is unweighted.
    """

    kind: KLKind = "k2"
    model: str = "teacher"
    reduce: Reduction = "tokens"
    weight: str = ""

    def __post_init__(self) -> None:
        if self.kind == "full":
            raise UserError("SpanKL: spans of text have no whole distribution; take k2 or k3")

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        span_BT, theirs_BT = (
            batch[f"{self.model}_{SPAN}"].long(),
            batch[f"{self.model}_{SPAN_LOGP}"],
        )
        logp_BT = torch.where(span_BT > 0, out["logp"], 0.0)
        sum_BS = logp_BT.new_zeros(len(span_BT), int(span_BT.max()) + 1)
        own_BT = sum_BS.scatter_add(1, span_BT, logp_BT).gather(1, span_BT)
        last_BT = (span_BT > 0) & (span_BT != F.pad(span_BT[:, 1:], (0, 1)))
        kl_BT = torch.where(last_BT, kl_terms(own_BT, theirs_BT, self.kind), 0.0)
        loss_BT = kl_BT * batch[self.weight] if self.weight else kl_BT
        return reduce_terms(loss_BT, batch, self.reduce), {
            f"kl_{self.model}": token_mean(kl_BT, batch)
        }


def with_rest(logp: Tensor) -> Tensor:
    """[..., K + 1] log-probs, from those of K outcomes: the last is that of all others. Rounding leaves
    an eighth digit of it, so it is at least 1e-7.
    """
    rest = (1 - logp.exp().sum(-1, keepdim=True)).clamp_min(1e-7)
    return torch.cat([logp, rest.log()], -1)
