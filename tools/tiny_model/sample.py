"""A plain batched sampler for measuring the tiny model: left-padded prompts, finished rows leave
the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache, LlamaForCausalLM

from palaestra.models.model import with_cache
from palaestra.types import Message
from tools.tiny_model import tokenizer as tokens
from tools.tiny_model.build import CONTEXT, encode

CHUNK = 256  # rows decoded together
SWEEP = 4  # steps between two removals of finished rows


def replies(
    model: LlamaForCausalLM,
    talks: Sequence[Sequence[Message]],
    temperature: float,
    seed: int,
    max_new: int = 96,
) -> list[str]:
    """One reply a conversation, in chunks of similar length; temperature 0 is greedy."""
    rows = [[*encode(tuple(t))[0], tokens.ASSISTANT] for t in talks]
    order, found = sorted(range(len(rows)), key=lambda i: len(rows[i])), [""] * len(rows)
    generator = torch.Generator().manual_seed(seed % 2**63)
    for at in range(0, len(order), CHUNK):
        chunk = order[at : at + CHUNK]
        for i, ids in zip(
            chunk,
            decoded(model, [rows[i] for i in chunk], temperature, generator, max_new),
            strict=True,
        ):
            found[i] = bytes(b for b in ids if b < 256).decode(errors="replace")
    return found


@torch.inference_mode()
def decoded(
    model: LlamaForCausalLM,
    rows: list[list[int]],
    temperature: float,
    generator: torch.Generator,
    max_new: int,
) -> list[list[int]]:
    """The new ids of each row, without the end token."""
    longest = max(map(len, rows))
    ids_BT = torch.tensor([[tokens.PAD] * (longest - len(r)) + r for r in rows])
    seen_BT, live_B, said = (
        (ids_BT != tokens.PAD).long(),
        torch.arange(len(rows)),
        [[] for _ in rows],
    )
    cache, ended_B = DynamicCache(config=model.config), torch.zeros(len(rows), dtype=torch.bool)
    for step in range(min(max_new, CONTEXT - longest)):
        at_BT = (seen_BT.cumsum(1) - 1).clamp(min=0)[:, -ids_BT.shape[1] :]
        logits_BV = model(
            input_ids=ids_BT,
            attention_mask=seen_BT,
            position_ids=at_BT,
            logits_to_keep=1,
            **with_cache(model, cache),
        ).logits[:, -1]
        next_B = next_token(logits_BV, temperature, generator)
        ended_B |= next_B == tokens.END
        for i, token, ended in zip(live_B.tolist(), next_B.tolist(), ended_B.tolist(), strict=True):
            if not ended:
                said[i].append(token)
        if ended_B.all():
            break
        ids_BT, seen_BT = (
            next_B[:, None],
            torch.cat([seen_BT, torch.ones_like(next_B)[:, None]], dim=1),
        )
        if step % SWEEP == SWEEP - 1 and ended_B.any():
            keep_B = (~ended_B).nonzero()[:, 0]
            cache.batch_select_indices(keep_B)
            ids_BT, seen_BT, live_B, ended_B = (
                ids_BT[keep_B],
                seen_BT[keep_B],
                live_B[keep_B],
                ended_B[keep_B],
            )
    return said


def next_token(
    logits_BV: torch.Tensor, temperature: float, generator: torch.Generator
) -> torch.Tensor:
    if temperature == 0.0:
        return logits_BV.argmax(-1)
    return torch.multinomial((logits_BV / temperature).softmax(-1), 1, generator=generator)[:, 0]
