"""The training forward pass: per-token quantities of a batch. N = trained tokens of all rows.

A [B, T, V] tensor exists only where "vocab_logp" asks for it: hidden states that predict a trained
token meet the vocabulary, in chunks that are computed again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from palaestra.models.choices import LEGAL, Replying, with_texts
from palaestra.models.eyes import Seen
from palaestra.models.grid import layout_shifts
from palaestra.models.inside.attention import FROM_MAPS, attention_scores
from palaestra.models.inside.features import FEATURES, HiddenPlaces
from palaestra.models.layout import Fork, Layout
from palaestra.models.model import Model
from palaestra.models.routing import COLUMN, replaying
from palaestra.types import Batch

LOGITS = 1 << 26  # logits that may exist at a time: 256 MB in float32
STRIP = 1 << 20  # logits whose log-probs may exist at a time, where no need is all of them


class Predicted(NamedTuple):
    """Of the N trained tokens: themselves, their exponents, and the K tokens each that a batch asks
    for in its column "asked".
    """

    token_N: Tensor
    exponent_N: Tensor
    asked_NK: Tensor


def logp(logp_NV: Tensor, of: Predicted) -> Tensor:
    return logp_NV.gather(1, of.token_N[:, None])[:, 0]


def entropy(logp_NV: Tensor, of: Predicted) -> Tensor:
    return -(logp_NV.exp() * logp_NV).sum(-1)


def collision(logp_NV: Tensor, of: Predicted) -> Tensor:
    """sum_v pi(v)^2: how likely two draws are the same token."""
    return (2 * logp_NV).exp().sum(-1)


def vocab_mean_logp(logp_NV: Tensor, of: Predicted) -> Tensor:
    return logp_NV.mean(-1)


def vocab_logp(logp_NV: Tensor, of: Predicted) -> Tensor:
    """[N, V]: the whole distribution."""
    return logp_NV


def top_logp(logp_NV: Tensor, of: Predicted, k: int) -> Tensor:
    """[N, 2 k]: the log-probs of the k likeliest tokens, then their ids. Float32 holds every id below
    2^24.
    """
    top = logp_NV.topk(min(k, logp_NV.shape[1]), -1)
    return torch.cat([top.values, top.indices.to(logp_NV.dtype)], -1)


def asked_logp(logp_NV: Tensor, of: Predicted) -> Tensor:
    """[N, K]: the log-probs of the tokens that are asked for."""
    return logp_NV.gather(1, of.asked_NK)


def power_logp(logp_NV: Tensor, of: Predicted) -> Tensor:
    """log of p(token)^exponent / sum_v p(v)^exponent: exponent 1 is p itself, 0 is uniform."""
    return logp(torch.log_softmax(of.exponent_N[:, None] * logp_NV, -1), of)


# quantities of the tempered distribution, from its log-probs [N, V]
VOCABULARY: dict[str, Any] = {
    f.__name__: f
    for f in (
        logp,
        entropy,
        collision,
        vocab_mean_logp,
        vocab_logp,
        top_logp,
        asked_logp,
        power_logp,
    )
}


def _sampling(
    batch: Batch, row_N: Tensor, at_N: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """[N] temperatures, of the batch's column or all alike, and [N] exponents, 1 without a column."""
    if "temperature" in batch.columns:
        temperature_N = batch["temperature"][row_N, at_N + 1]
    else:
        device = batch["ids"].device
        temperature_N = torch.full(row_N.shape, temperature, dtype=torch.float64, device=device)
    if "exponent" in batch.columns:
        return temperature_N, batch["exponent"][row_N]
    return temperature_N, torch.ones_like(temperature_N)


def forward(
    model: Model,
    batch: Batch,
    needs: Sequence[str],
    temperature: float = 1.0,
    *,
    logits: int = LOGITS,
) -> dict[str, Tensor]:
    """Each need as [B, T], 0 where nothing is trained; features of rows as [B, 1, D]. In nats:

        logp[b, t]             log pi(ids[b, t] | ids[b, :t]),  pi = softmax(logits / temperature)
        entropy[b, t]          of pi(. | ids[b, :t])
        collision[b, t]        sum_v pi(v | ids[b, :t])^2
        vocab_mean_logp[b, t]  mean over the vocabulary of log pi(. | ids[b, :t])
        vocab_logp[b, t, v]    log pi(v | ids[b, :t]) of the whole vocabulary, for small ones
        top_logp:K[b, t, j]    log pi of the K likeliest tokens, then their K ids
        asked_logp[b, t, k]    log pi(asked[b, t, k] | ids[b, :t]); the batch column "asked" [B, T, K] gives them
        power_logp[b, t]       log-prob under pi^exponent, renormalised; the batch column "exponent" [B] gives it
        legal_logp[b, t]       log sum_c p(c) of a turn's choices (`types.Choices`) where it begins, else 0
        NAME[b, t]             the head NAME on the hidden state before ids[b, t] is chosen, e.g. "value"
        NAME:X:Y               a reduction of hidden states (`features`) or attention (`attention`), with its parameters
        picture_mass[b, t]     the share of attention that ids[b, t] pays to places of pictures

    Of replies that were chosen among legal ones, log-probs and entropies are those of the
    distribution restricted to these (`choices`).

    A batch column "temperature" [B, T] goes before the argument. Models that can run packed (see
    `packed`) do; for the others rows are right-padded, so a causal model needs no mask: no token
    sees the padding. Raises KeyError for a need that this model does not have.
    """
    _check_needs(model, needs)
    maps = [n for n in needs if n.split(":")[0] in FROM_MAPS]
    if len(maps) == len(needs):
        return attention_scores(model, batch, maps)
    ids_BT = batch["ids"]
    replying = Replying.of(batch, needs)
    # ids[:, at + 1] is predicted at `at`
    row_N, at_N = (batch.mask[:, 1:] > 0).nonzero(as_tuple=True)
    run = packed_hidden if model.packs else padded_hidden
    hidden_ND, hidden_MD = run(model, batch, row_N, at_N, replying.forks)
    token_N = ids_BT[row_N, at_N + 1]
    temperature_N, exponent_N = _sampling(batch, row_N, at_N, temperature)
    named = tuple(n for n in needs if n.split(":")[0] in VOCABULARY)
    of = Predicted(token_N, exponent_N, _asked(batch, named, row_N, at_N))
    reduced = _reduce(model, hidden_ND, temperature_N, of, named, logits) if named else []
    columns = dict(zip(named, reduced, strict=True))
    columns |= {n: model.read(n, hidden_ND, token_N) for n in needs if n in model.heads}
    places = HiddenPlaces(
        row_N=row_N, at_N=at_N, token_N=token_N, temperature_N=temperature_N, hidden_ND=hidden_ND
    )
    features = _features(model, batch, places, needs)
    wide = {n: v for n, v in features.items() if v.dim() == 3}
    columns |= {n: v for n, v in features.items() if n not in wide}
    tokens = _at_tokens(columns, ids_BT, row_N, at_N)
    if LEGAL in needs:
        tokens[LEGAL] = hidden_ND.new_zeros(ids_BT.shape, dtype=torch.float32)
    if replying.turns:
        tokens |= _restricted(model, replying, tokens, hidden_MD, logits)
    return {**tokens, **wide, **attention_scores(model, batch, maps)}


def _check_needs(model: Model, needs: Sequence[str]) -> None:
    known = (*VOCABULARY, LEGAL, *FEATURES, *FROM_MAPS, *model.heads)
    for need in needs:
        if need.split(":")[0] not in known:
            raise KeyError(f"unknown need {need!r}; this model gives {', '.join(known)}")


def _at_tokens(
    columns: Mapping[str, Tensor], ids_BT: Tensor, row_N: Tensor, at_N: Tensor
) -> dict[str, Tensor]:
    """Numbers of predicted tokens [N, ...] as [B, T, ...], 0 elsewhere."""
    return {
        n: v.new_zeros(*ids_BT.shape, *v.shape[1:]).index_put((row_N, at_N + 1), v)
        for n, v in columns.items()
    }


def _features(
    model: Model, batch: Batch, places: HiddenPlaces, needs: Sequence[str]
) -> dict[str, Tensor]:
    """Reductions of the hidden states: of rows [B, 1, D], of trained tokens [N]."""
    made = dict[str, Tensor]()
    for need in needs:
        name, *parameters = need.split(":")
        if name in FEATURES:
            made[need] = FEATURES[name](model, batch, places, *map(int, parameters))
    return made


def _asked(batch: Batch, names: Sequence[str], row_N: Tensor, at_N: Tensor) -> Tensor:
    """[N, K] tokens that the batch asks for, K = 0 where no need does."""
    if "asked_logp" not in names:
        return batch["ids"].new_zeros(len(row_N), 0)
    return batch["asked"][row_N, at_N + 1].long()


def _restricted(
    model: Model, replying: Replying, tokens: dict[str, Tensor], hidden_MD: Tensor, logits: int
) -> dict[str, Tensor]:
    """Log-probs, entropies and log-masses [B, T], where they are asked for, with those of chosen replies."""
    if not {"logp", "entropy", LEGAL} & tokens.keys():
        return {}
    token_M, reply_M = replying.tokens()
    warm_M = replying.temperature_S[reply_M]
    of = Predicted(token_M, torch.ones_like(warm_M), token_M.new_zeros(len(token_M), 0))
    (logp_M,) = _reduce(model, hidden_MD, warm_M, of, ("logp",), logits)
    zero_S = torch.zeros_like(replying.temperature_S)
    logp_S = zero_S.index_add(0, reply_M, logp_M.double())
    place, logp_P, entropy_P = replying.restricted(logp_S, "entropy" in tokens)
    begin, mass_R = replying.masses(logp_S)
    values = {"logp": (place, logp_P), "entropy": (place, entropy_P), LEGAL: (begin, mass_R)}
    return {
        k: tokens[k].index_put(at, v.to(tokens[k])) for k, (at, v) in values.items() if k in tokens
    }


def packed_hidden(
    model: Model, batch: Batch, row_N: Tensor, at_N: Tensor, forks: Sequence[Fork] = ()
) -> tuple[Tensor, Tensor]:
    """[N, D] hidden states at (row, at), and [M, D] before each token of the forks' texts, computed
    without padding and with shared prompts once.
    """
    layout = Layout.of(batch, forks)
    whole = torch.ones(
        1, 1, 1, 1, dtype=torch.bool, device=row_N.device
    )  # a finished mask: the layout has the real ones
    seen, position = Seen.in_batch(batch), layout.position[None]
    if grids := model.grids(seen):
        position = (layout.position + layout_shifts(layout, batch, forks, grids))[:, None]
    given = layout.tokens_of(batch[COLUMN]) if COLUMN in batch.columns else None
    with replaying(model, given), model.recomputing():
        run = model.hidden(
            layout.ids[None],
            seen,
            position_ids=position,
            attention_mask=whole,
            layout=layout,
        )
        return run[0, layout.before[row_N, at_N + 1]], run[0, layout.before_forks]


def padded_hidden(
    model: Model, batch: Batch, row_N: Tensor, at_N: Tensor, forks: Sequence[Fork] = ()
) -> tuple[Tensor, Tensor]:
    """As `packed_hidden`, of rows that are padded on the right."""
    ids, row_M, at_M = with_texts(batch, forks) if forks else (batch["ids"], row_N[:0], at_N[:0])
    given = None
    if COLUMN in batch.columns:
        B, T, *sizes = batch[COLUMN].shape
        whole = batch[COLUMN].new_full((*ids.shape, *sizes), -1)
        whole[:B, :T] = batch[COLUMN]
        given = whole.flatten(0, 1)
    with replaying(model, given), model.recomputing():
        run = model.hidden(ids, Seen.in_batch(batch))
        return run[row_N, at_N], run[row_M, at_M]


class InStrips(torch.autograd.Function):
    """Quantities of tokens from their logits [N, V], some rows at a time: log-probs [N, V] never exist
    as a whole, neither forward nor backward, where those of a strip are made from the logits again.

    A row has the same bits as without: rows have nothing to do with each other here.
    """

    @staticmethod
    def forward(
        ctx: Any,
        reduce: Callable[..., tuple[Tensor, ...]],
        rows: int,
        logits_NV: Tensor,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.reduce, ctx.rows = reduce, rows
        ctx.set_materialize_grads(False)  # of what nobody learns from there is none
        ctx.save_for_backward(logits_NV, *given)
        strips = zip(*(x.split(rows) for x in (logits_NV, *given)), strict=True)
        parts = [reduce(*some) for some in strips]
        return tuple(torch.cat(each) for each in zip(*parts, strict=True))

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]  # the decorator's type has no names of parameters
        ctx: Any, *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        logits_NV, *given = ctx.saved_tensors
        slopes_NV = torch.empty_like(logits_NV)
        strips = (x.split(ctx.rows) for x in (slopes_NV, logits_NV, *given))
        for i, (to, logits, *some) in enumerate(zip(*strips, strict=True)):
            at = slice(i * ctx.rows, (i + 1) * ctx.rows)
            with torch.enable_grad():
                leaf = logits.detach().requires_grad_()
                made = ctx.reduce(leaf, *some)
            used = [(m, g[at]) for m, g in zip(made, grads, strict=True) if g is not None]
            values, slopes = zip(*used, strict=True)
            to.copy_(torch.autograd.grad(values, leaf, slopes)[0])
        return (None, None, slopes_NV, *(None for _ in given))


def _reduce(
    model: Model,
    hidden_ND: Tensor,
    temperature_N: Tensor,
    of: Predicted,
    names: tuple[str, ...],
    logits: int,
) -> list[Tensor]:
    """The named quantities [N]. One chunk keeps its logits for the backward pass, several compute
    them again.
    """
    tempered = bool((temperature_N != 1).any())  # a division less over [N, V]
    calls = [(VOCABULARY[name], list(map(int, k))) for name, *k in (n.split(":") for n in names)]

    def reduce(
        logits_NV: Tensor,
        temperature_N: Tensor,
        token_N: Tensor,
        exponent_N: Tensor,
        asked_NK: Tensor,
    ) -> tuple[Tensor, ...]:
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        if tempered:
            logits_NV = logits_NV / temperature_N[:, None].to(logits_NV.dtype)
        logp_NV = torch.log_softmax(logits_NV, -1)
        of = Predicted(token_N, exponent_N.to(logp_NV.dtype), asked_NK)
        return tuple(quantity(logp_NV, of, *k) for quantity, k in calls)

    rows = max(1, STRIP // model.vocabulary)

    def run(hidden_ND: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        logits_NV = model.logits(hidden_ND)
        if len(logits_NV) <= rows or "vocab_logp" in names:
            return reduce(logits_NV, *given)
        return InStrips.apply(reduce, rows, logits_NV, *given)

    given, size = (hidden_ND, temperature_N, *of), max(1, logits // model.logits_each)
    if len(temperature_N) <= size:
        return list(run(*given))
    chunks = [
        checkpoint(run, *some, use_reentrant=False, preserve_rng_state=False)
        for some in zip(*(x.split(size) for x in given), strict=True)
    ]
    return [torch.cat(each) for each in zip(*chunks, strict=True)]
