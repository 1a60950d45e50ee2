"""What a model replies greedily, and training a copy on given replies: in memory, for studies whose texts
are not to be written anywhere. B = rows, T = tokens of a row, D = width, V = vocabulary, N = target tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from palaestra.models.inside.prefix import embeddings_of
from palaestra.models.model import Model
from palaestra.models.score import Pair

BATCH = 16  # rows of a step of training


@torch.no_grad()
def greedy_replies(
    model: Model,
    contexts: Sequence[Sequence[int]],
    most: int,
    change: Callable[[Tensor], Tensor] = lambda x_BTD: x_BTD,
) -> list[str]:
    """The greedy reply to each context, as text without special tokens.

    Args:
        model: that replies.
        contexts: ids of each prompt, at least one.
        most: tokens of a reply.
        change: what is done to the embeddings of the prompts [B, T, D], such as noise.
    """
    if not contexts:
        return []
    width = max(map(len, contexts))
    length_B = torch.tensor([len(r) for r in contexts], device=model.device)
    padded = [[*r, *[r[-1]] * (width - len(r))] for r in contexts]
    x_BTD = change(embeddings_of(model, torch.tensor(padded, device=model.device)))
    replies: list[list[int]] = [[] for _ in contexts]
    is_open = [True] * len(contexts)
    each = torch.arange(len(contexts), device=model.device)
    for _ in range(most):
        hidden_BTD = model.hidden_of(x_BTD)
        token_B = model.logits(hidden_BTD[each, length_B - 1]).argmax(-1)
        for i, t in enumerate(token_B.tolist()):
            is_open[i] = is_open[i] and t not in model.eos
            if is_open[i]:
                replies[i].append(t)
        if not any(is_open):
            break
        x_BTD = torch.cat([x_BTD, x_BTD[:, -1:]], 1)
        x_BTD[each, length_B] = embeddings_of(model, token_B)
        length_B = length_B + 1
    return [str(model.tokenizer.decode(x, skip_special_tokens=True)) for x in replies]


def pairs_loss(model: Model, pairs: Sequence[Pair]) -> Tensor:
    """The mean of -log p of targets behind their contexts, in nats a token, with its gradient."""
    width = max(len(c) + len(t) for c, t in pairs)
    rows = [[*c, *t, *[t[-1]] * (width - len(c) - len(t))] for c, t in pairs]
    ids_BT = torch.tensor(rows, device=model.device)
    is_target_BT = torch.tensor(
        [[len(c) <= k < len(c) + len(t) for k in range(1, width)] for c, t in pairs],
        device=model.device,
    )
    logits_NV = model.logits(model.hidden(ids_BT[:, :-1])[is_target_BT]).float()
    return torch.nn.functional.cross_entropy(logits_NV, ids_BT[:, 1:][is_target_BT])


def fit_pairs(
    model: Model, pairs: Sequence[Pair], steps: int, lr: float, draw: torch.Generator
) -> None:
    """Trains a copy in place: AdamW on `pairs_loss` of 16 pairs a step, drawn with replacement, with
    gradients clipped to the norm 1. Nothing of it is written.
    """
    if not model.trainable():  # a copy of a frozen model
        model.module.requires_grad_(True)
    weights = model.trainable()
    optimiser = torch.optim.AdamW(weights, lr=lr, weight_decay=0.0)
    for _ in range(steps):
        some = torch.randint(len(pairs), (min(BATCH, len(pairs)),), generator=draw).tolist()
        loss = pairs_loss(model, [pairs[i] for i in some])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
    optimiser.zero_grad()
