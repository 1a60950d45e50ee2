"""Teacher-forced scoring: what a model thinks of given tokens after given contexts, and what its
heads say of whole texts. N = target tokens of all pairs, K = numbers a token.

No gradient, no sampling; contexts that several targets share are read once where the model runs
packed. At temperature 1 the log-probabilities are those of the training forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from palaestra.models.forward import LOGITS, packed_hidden, padded_hidden
from palaestra.models.model import Model
from palaestra.pictures import FIRST_PLACE, pictures_in
from palaestra.types import Batch

Pair = tuple[Sequence[int], Sequence[int]]  # ids of a context (at least one) and of a target
Reduce = Callable[[Tensor, Tensor], Tensor]  # logits [N, V] and tokens [N] to [N, K]
Read = Callable[[Tensor, Tensor], Tensor]  # hidden states [N, D] and tokens [N] to [N, K]
POSITIONS = 8192  # of a forward pass


def logp(logits_NV: Tensor, token_N: Tensor) -> Tensor:
    """[N, 1] log p of each token, in nats."""
    return torch.log_softmax(logits_NV, -1).gather(1, token_N[:, None])


def logit_and_value(logits_NV: Tensor, token_N: Tensor) -> Tensor:
    """[N, 2]: the token's logit, and logsumexp of all of them."""
    return torch.stack(
        [logits_NV.gather(1, token_N[:, None])[:, 0], torch.logsumexp(logits_NV, -1)], 1
    )


@torch.no_grad()
def score_pairs(model: Model, pairs: Sequence[Pair], reduce: Reduce = logp) -> list[np.ndarray]:
    """For each pair `reduce` at its target's tokens: [n] in float64, [n, K] where it gives several
    numbers.

    Raises ValueError for an empty context: nothing precedes its first token.
    """
    return _read(
        model, pairs, lambda hidden_ND, token_N: reduce(model.logits(hidden_ND).float(), token_N)
    )


@torch.no_grad()
def score_texts(model: Model, texts: Sequence[Sequence[int]], names: Sequence[str]) -> np.ndarray:
    """[texts, heads] in float64: what the heads say of the hidden state after the last token of
    each text (at least one).
    """
    missing = [n for n in names if n not in model.heads]
    if missing:
        raise KeyError(
            f"{model.name} has no head {missing[0]!r}; it has {', '.join(model.heads) or 'none'}"
        )
    if not texts:
        return np.zeros((0, len(names)))
    # one more token, at which the text is over; it is never seen
    pairs = [(ids, ids[-1:]) for ids in texts]
    rows = _read(
        model,
        pairs,
        lambda hidden_ND, _: torch.stack([model.heads[n](hidden_ND) for n in names], 1),
    )
    return np.array(rows).reshape(len(texts), len(names))


@torch.no_grad()
def output_gradients(model: Model, pairs: Sequence[Pair], rank: int = 16) -> list[np.ndarray]:
    """[n, 2 rank] of each target's tokens: the error e_y - p and the hidden state h / sqrt(D), in
    `rank` random directions each.

    The gradient of log p(y) to the output layer is the outer product of the two; the projections,
    the same in every call, keep its inner products on average (Johnson and Lindenstrauss), so a sum
    over tokens is a sketch of the gradient of a text.
    """
    draw = torch.Generator().manual_seed(rank)
    V_R = torch.randn(model.vocabulary, rank, generator=draw).to(model.device) / rank**0.5
    D_R = (
        torch.randn(model.width, rank, generator=draw).to(model.device)
        / (rank * model.width) ** 0.5
    )

    def read(hidden_ND: Tensor, token_N: Tensor) -> Tensor:
        p_NV = torch.softmax(model.logits(hidden_ND).float(), -1)
        return torch.cat([V_R[token_N] - p_NV @ V_R, hidden_ND.float() @ D_R], 1)

    return _read(model, pairs, read)


def _read(model: Model, pairs: Sequence[Pair], read: Read) -> list[np.ndarray]:
    if any(len(c) == 0 for c, _ in pairs):
        raise ValueError("a context to score after has no token")
    rows: list[np.ndarray] = [np.zeros(0)] * len(pairs)
    todo = sorted(
        (i for i in range(len(pairs)) if len(pairs[i][1])),
        key=lambda i: (-sum(map(len, pairs[i])), i),
    )
    while todo:
        n = max(1, POSITIONS // sum(map(len, pairs[todo[0]])))
        part, todo = todo[:n], todo[n:]
        for i, x in zip(part, _forward(model, [pairs[i] for i in part], read), strict=True):
            rows[i] = x
    return rows


def _forward(model: Model, pairs: list[Pair], read: Read) -> list[np.ndarray]:
    """One forward pass over the pairs."""
    batch = _batch(pairs).to(model.device)
    row_N, at_N = (batch.mask[:, 1:] > 0).nonzero(as_tuple=True)
    run = packed_hidden if model.packs else padded_hidden
    hidden_ND, _ = run(model, batch, row_N, at_N)
    token_N = batch["ids"][row_N, at_N + 1]
    size = max(1, LOGITS // model.vocabulary)
    chunks = [read(h, t) for h, t in zip(hidden_ND.split(size), token_N.split(size), strict=True)]
    values_NK = torch.cat(chunks).double().cpu().numpy()
    cuts = np.cumsum([len(t) for _, t in pairs])[:-1]
    return [x[:, 0] if x.shape[1] == 1 else x for x in np.split(values_NK, cuts)]


def _batch(pairs: list[Pair]) -> Batch:
    length = [len(c) + len(t) for c, t in pairs]
    ids, trained = (torch.zeros(len(pairs), max(length), dtype=torch.long) for _ in range(2))
    for b, (context, target) in enumerate(pairs):
        ids[b, : length[b]] = torch.tensor([*context, *target])
        trained[b, len(context) : length[b]] = 1
    if int(ids.max()) >= FIRST_PLACE:  # of pictures whose pixels are not here
        pictures_in(ids.flatten().tolist(), {})
    columns = {"ids": ids, "trained": trained, "length": torch.tensor(length)}
    n = int(trained.sum())
    return Batch(
        columns=columns,
        unit_B=torch.arange(len(pairs)),
        n_tokens=n,
        n_rows=len(pairs),
        n_units=len(pairs),
    )
