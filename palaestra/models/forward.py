"""The training forward pass: per-token quantities of a batch. N = trained tokens of all rows.

A [B, T, V] tensor exists only where "vocab_logp" asks for it: hidden states that predict a trained
token meet the vocabulary, in chunks that are computed again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from palaestra.models.choices import Replying, with_texts
from palaestra.models.eyes import Seen
from palaestra.models.inside.attention import SCORES, attention_scores
from palaestra.models.inside.features import FEATURES, HiddenPlaces
from palaestra.models.layout import Fork, Layout
from palaestra.models.model import Model
from palaestra.types import Batch

LOGITS = 1 << 26  # logits that may exist at a time: 256 MB in float32


def logp(logp_NV: Tensor, token_N: Tensor, exponent_N: Tensor) -> Tensor:
    return logp_NV.gather(1, token_N[:, None])[:, 0]


def entropy(logp_NV: Tensor, token_N: Tensor, exponent_N: Tensor) -> Tensor:
    return -(logp_NV.exp() * logp_NV).sum(-1)


def vocab_mean_logp(logp_NV: Tensor, token_N: Tensor, exponent_N: Tensor) -> Tensor:
    return logp_NV.mean(-1)


def vocab_logp(logp_NV: Tensor, token_N: Tensor, exponent_N: Tensor) -> Tensor:
    """[N, V]: the whole distribution."""
    return logp_NV


def power_logp(logp_NV: Tensor, token_N: Tensor, exponent_N: Tensor) -> Tensor:
    """log of p(token)^exponent / sum_v p(v)^exponent: exponent 1 is p itself, 0 is uniform."""
    return logp(torch.log_softmax(exponent_N[:, None] * logp_NV, -1), token_N, exponent_N)


# quantities of the tempered distribution, from its log-probs [N, V], the tokens and exponents [N]
VOCABULARY = {f.__name__: f for f in (logp, entropy, vocab_mean_logp, vocab_logp, power_logp)}


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
        vocab_mean_logp[b, t]  mean over the vocabulary of log pi(. | ids[b, :t])
        vocab_logp[b, t, v]    log pi(v | ids[b, :t]) of the whole vocabulary, for small ones
        power_logp[b, t]       log-prob under pi^exponent, renormalised; the batch column "exponent" [B] gives it
        NAME[b, t]             the head NAME on the hidden state before ids[b, t] is chosen, e.g. "value"
        NAME:X:Y               a reduction of hidden states (`features`) or attention (`attention`), with its parameters

    Of replies that were chosen among legal ones, log-probs and entropies are those of the
    distribution restricted to these (`choices`).

    A batch column "temperature" [B, T] goes before the argument. Models that can run packed (see
    `packed`) do; for the others rows are right-padded, so a causal model needs no mask: no token
    sees the padding. Raises KeyError for a need that this model does not have.
    """
    known = (*VOCABULARY, *FEATURES, *SCORES, *model.heads)
    for need in needs:
        if need.split(":")[0] not in known:
            raise KeyError(f"unknown need {need!r}; this model gives {', '.join(known)}")
    maps = [n for n in needs if n.split(":")[0] in SCORES]
    if len(maps) == len(needs):
        return attention_scores(model, batch, maps)
    ids_BT = batch["ids"]
    replying = Replying.of(batch, needs)
    # ids[:, at + 1] is predicted at `at`
    row_N, at_N = (batch.mask[:, 1:] > 0).nonzero(as_tuple=True)
    with model.recomputing():
        run = packed_hidden if model.packs else padded_hidden
        hidden_ND, hidden_MD = run(model, batch, row_N, at_N, replying.forks)
    token_N = ids_BT[row_N, at_N + 1]
    temperature_N, exponent_N = _sampling(batch, row_N, at_N, temperature)
    named = tuple(n for n in needs if n in VOCABULARY)
    given = (hidden_ND, token_N, temperature_N, exponent_N)
    columns = dict(zip(named, _reduce(model, given, named, logits), strict=True)) if named else {}
    columns |= {n: model.read(n, hidden_ND, token_N) for n in needs if n in model.heads}
    places = HiddenPlaces(
        row_N=row_N, at_N=at_N, token_N=token_N, temperature_N=temperature_N, hidden_ND=hidden_ND
    )
    wide: dict[str, Tensor] = {}
    for need in needs:
        name, *parameters = need.split(":")
        if name in FEATURES:
            made = FEATURES[name](model, batch, places, *map(int, parameters))
            (wide if made.dim() == 3 else columns)[need] = made
    tokens = {
        n: v.new_zeros(*ids_BT.shape, *v.shape[1:]).index_put((row_N, at_N + 1), v)
        for n, v in columns.items()
    }
    if replying.turns:
        tokens |= _restricted(model, replying, tokens, hidden_MD, logits)
    return {**tokens, **wide, **attention_scores(model, batch, maps)}


def _restricted(
    model: Model, replying: Replying, tokens: dict[str, Tensor], hidden_MD: Tensor, logits: int
) -> dict[str, Tensor]:
    """Log-probs and entropies [B, T], where they are asked for, with those of chosen replies."""
    if not {"logp", "entropy"} & tokens.keys():
        return {}
    token_M, reply_M = replying.tokens()
    warm_M = replying.temperature_S[reply_M]
    given = (hidden_MD, token_M, warm_M, torch.ones_like(warm_M))
    (logp_M,) = _reduce(model, given, ("logp",), logits)
    zero_S = torch.zeros_like(replying.temperature_S)
    place, logp_P, entropy_P = replying.restricted(
        zero_S.index_add(0, reply_M, logp_M.double()), "entropy" in tokens
    )
    values = {"logp": logp_P, "entropy": entropy_P}
    return {
        k: tokens[k].index_put(place, v.to(tokens[k])) for k, v in values.items() if k in tokens
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
    run = model.hidden(
        layout.ids[None],
        Seen.in_batch(batch),
        position_ids=layout.position[None],
        attention_mask=whole,
        layout=layout,
    )
    return run[0, layout.before[row_N, at_N + 1]], run[0, layout.before_forks]


def padded_hidden(
    model: Model, batch: Batch, row_N: Tensor, at_N: Tensor, forks: Sequence[Fork] = ()
) -> tuple[Tensor, Tensor]:
    """As `packed_hidden`, of rows that are padded on the right."""
    ids, row_M, at_M = with_texts(batch, forks) if forks else (batch["ids"], row_N[:0], at_N[:0])
    run = model.hidden(ids, Seen.in_batch(batch))
    return run[row_N, at_N], run[row_M, at_M]


def _reduce(
    model: Model, given: tuple[Tensor, Tensor, Tensor, Tensor], names: tuple[str, ...], logits: int
) -> list[Tensor]:
    """The named quantities [N]. One chunk keeps its log-probs for the backward pass, several
    compute them again.
    """
    tempered = bool((given[2] != 1).any())  # a division less over [N, V]

    def run(
        hidden_ND: Tensor, token_N: Tensor, temperature_N: Tensor, exponent_N: Tensor
    ) -> tuple[Tensor, ...]:
        logits_NV = model.logits(hidden_ND)
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        if tempered:
            logits_NV = logits_NV / temperature_N[:, None].to(logits_NV.dtype)
        logp_NV = torch.log_softmax(logits_NV, -1)
        return tuple(VOCABULARY[n](logp_NV, token_N, exponent_N.to(logp_NV.dtype)) for n in names)

    size = max(1, logits // model.logits_each)
    if len(given[1]) <= size:
        return list(run(*given))
    chunks = [
        checkpoint(run, *some, use_reentrant=False, preserve_rng_state=False)
        for some in zip(*(x.split(size) for x in given), strict=True)
    ]
    return [torch.cat(each) for each in zip(*chunks, strict=True)]
