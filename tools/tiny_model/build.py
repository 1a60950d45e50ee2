"""Rebuilds the tiny model from nothing:
`python -m tools.tiny_model.build --out DIR [--seconds 2400]`.

Shape suffixes: B conversations, T tokens.

One optimiser step reads 72 conversations, sorted by length into micro-batches whose gradients add
up: an unbiased sample of the mixture with hardly any padding. The policy's tokens count 1 in the
loss, all others 0.1, so that the model can also continue a conversation from the other side.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from palaestra.types import Message, rng_of, seed_of
from tools.tiny_model import tokenizer as tokens
from tools.tiny_model.mixture import Conversation, Phase, conversation, phase_at
from tools.tiny_model.muon import Muon

CONVERSATIONS, PART, CONTEXT = 72, 768, 512  # of a step, tokens of a micro-batch, tokens at most
MATRICES, OTHERWISE = 7e-3, 3e-3  # peak learning rates of Muon and AdamW
# of weights, per unit of rate: bounds the residual stream, and with it float32's rounding
DECAY = 0.3
WARMUP, FLOOR = 50, 0.01  # steps; the share of the peak that remains at the end
OTHERS = 0.1  # loss weight of the tokens that the policy did not write


def config() -> LlamaConfig:
    """1.15 M parameters: in equal time they learn more than 1.6 M. Two key-value heads keep a
    decode step's cache small.
    """
    return LlamaConfig(
        vocab_size=256 + len(tokens.SPECIALS),
        hidden_size=160,
        intermediate_size=416,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        # short contexts: learns to look back sooner
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True,
        bos_token_id=tokens.BEGIN,
        eos_token_id=tokens.END,
        pad_token_id=tokens.PAD,
    )


def encode(conversation: Conversation) -> tuple[list[int], list[float]]:
    """Token ids of a conversation, as the chat template writes them, and the loss
    weight of each.
    """
    ids, weights = [tokens.BEGIN], [0.0]
    for message in conversation:
        body = [*message.content.encode(), tokens.END]
        ids += [256 + tokens.SPECIALS.index(f"<|{message.role}|>"), *body]
        weights += (
            [OTHERS, *[1.0] * len(body)]
            if message.trained
            else [share_of(message)] * (len(body) + 1)
        )
    return ids[:CONTEXT], weights[:CONTEXT]


def share_of(message: Message) -> float:
    """Replies that are only shown are mistakes: nobody should learn to make them."""
    return 0.0 if message.role == "assistant" else OTHERS


def padded(rows: Sequence[tuple[list[int], list[float]]]) -> tuple[Tensor, Tensor]:
    """Ids and weights, [B, T], padded at the end."""
    longest = max(len(ids) for ids, _ in rows)
    ids_BT = torch.tensor([ids + [tokens.PAD] * (longest - len(ids)) for ids, _ in rows])
    weight_BT = torch.tensor([w + [0.0] * (longest - len(w)) for _, w in rows])
    return ids_BT, weight_BT


def micro_batches(rng: np.random.Generator, phase: Phase) -> list[tuple[Tensor, Tensor]]:
    """The conversations of one step, sorted by length and cut so that no part holds more than
    `PART` padded tokens.
    """
    rows = sorted(
        (encode(conversation(rng, phase)) for _ in range(CONVERSATIONS)), key=lambda r: -len(r[0])
    )
    parts = [[rows[0]]]
    for row in rows[1:]:
        if (len(parts[-1]) + 1) * len(parts[-1][0][0]) > PART:
            parts.append([])
        parts[-1].append(row)
    return [padded(part) for part in parts]


def share(step: int, done: float) -> float:
    """How much of its peak a learning rate has: a linear warm-up, then straight down with the share
    of time `done`.
    """
    return min((step + 1) / WARMUP, 1.0) * max(FLOOR, 1.0 - done)


def loss_of(model: LlamaForCausalLM, ids_BT: Tensor, weight_BT: Tensor) -> Tensor:
    """Weighted sum of the next-token losses, nats. Padding stands at the end, so causality alone
    hides it.
    """
    logits_BTV = model(input_ids=ids_BT[:, :-1]).logits
    nll_BT = torch.nn.functional.cross_entropy(
        logits_BTV.transpose(1, 2), ids_BT[:, 1:], reduction="none"
    )
    return (nll_BT * weight_BT[:, 1:]).sum()


def optimisers_of(model: LlamaForCausalLM) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices of the layers, AdamW for the embedding and the norms."""
    inner = [p for p in model.model.layers.parameters() if p.dim() == 2]
    known = {id(p) for p in inner}
    outer = [p for p in model.parameters() if id(p) not in known]
    adam = torch.optim.AdamW(outer, lr=OTHERWISE, betas=(0.9, 0.98), weight_decay=DECAY, fused=True)
    optimisers = (Muon(inner, lr=MATRICES, weight_decay=DECAY), adam)
    for group in (g for o in optimisers for g in o.param_groups):
        group["peak"] = group["lr"]
    return optimisers


def train(
    out: Path, seconds: float, seed: int, log_every: int = 20, save_every: int = 400
) -> LlamaForCausalLM:
    """Trains for a time of this thread; the same seed reads the same conversations, how many
    depends on the machine.
    """
    torch.manual_seed(seed_of(("tiny", "weights", seed)))
    model, rng = LlamaForCausalLM(config()), rng_of(("tiny", "data", seed))
    optimisers = optimisers_of(model)
    begun, step, seen, recent = time.thread_time(), 0, 0, 0.0
    while (spent := time.thread_time() - begun) < seconds:
        for group in (g for o in optimisers for g in o.param_groups):
            group["lr"] = group["peak"] * share(step, spent / seconds)
        batch = micro_batches(rng, phase_at(spent / seconds))
        weight = sum(w[:, 1:].sum() for _, w in batch)
        for ids_BT, weight_BT in batch:
            loss = loss_of(model, ids_BT, weight_BT) / weight
            loss.backward()
            recent += float(loss.detach()) / log_every
            seen += int((ids_BT != tokens.PAD).sum())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        step += 1
        if step % log_every == 0:
            spent = time.thread_time() - begun
            speed = f"seconds {spent:.0f} tokens/s {seen / spent:.0f}"
            print(f"step {step} loss {recent:.4f} tokens {seen} {speed}", flush=True)
            recent = 0.0
        if step % save_every == 0:
            save(model, out)
    save(model, out)
    return model


def save(model: LlamaForCausalLM, out: Path) -> None:
    """Half precision on disk halves the file; the configuration says float32, so that is what a
    reader gets.
    """
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    weights = load_file(out / "model.safetensors")
    save_file(
        {name: w.half() for name, w in weights.items()},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    tokens.build().save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild the tiny model.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=2400.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.out, args.seconds, args.seed)


if __name__ == "__main__":
    main()
