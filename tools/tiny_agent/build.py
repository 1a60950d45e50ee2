"""Rebuilds the small agent from nothing, tokenizer and weights:
`python -m tools.tiny_agent.build --out DIR [--seconds 2100]`.

Shape suffixes: B conversations, T tokens.

A build that was interrupted goes on from its checkpoint, `DIR/build`, which is removed at the end.
Optimisers, loss and the plan of the rates are the first model's (`tools.tiny_model.build`). It needs
the extras `games` and `search`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from palaestra.chat.dialect import text_tokenizer
from palaestra.types import rng_of, seed_of
from tools.tiny_agent import tokenizer as tokens
from tools.tiny_agent.mixture import Conversation, Phase, conversation, phase_at
from tools.tiny_model.build import OTHERS, loss_of, optimisers_of, share, share_of
from tools.tiny_model.mixture import phase_at as first_phase_at
from tools.tiny_model.tokenizer import SPECIALS

CONVERSATIONS, PART = 40, 1024  # of a step; padded tokens of a micro-batch
SPELLED = 3000  # conversations that the tokenizer is made from
Batch = list[tuple[Tensor, Tensor]]


def config(vocabulary: int) -> LlamaConfig:
    """Heads of 32, which vLLM serves without a GPU too; two key-value heads keep a decode step's
    cache small.
    """
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=tokens.CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=True,
        bos_token_id=tokens.BEGIN,
        eos_token_id=tokens.END,
        pad_token_id=tokens.PAD,
    )


class Encoder:
    """Conversations as the chat template writes them; what a content says is never a special."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self.text: Any = text_tokenizer(tokenizer)

    def ids(self, text: str) -> list[int]:
        return self.text.encode(text, add_special_tokens=False).ids

    def __call__(self, talk: Conversation) -> tuple[list[int], list[float]]:
        """Token ids, and the loss weight of each."""
        ids, weights = [tokens.BEGIN], [0.0]
        for message in talk:
            body = [*self.ids(message.content), tokens.END]
            ids += [SPECIALS.index(f"<|{message.role}|>"), *body]
            own = 1.0 if message.trained else share_of(message)
            weights += [min(own, OTHERS), *[own] * len(body)]
        return ids[: tokens.CONTEXT], weights[: tokens.CONTEXT]


def texts(seed: int) -> Iterator[str]:
    """What the tokenizer is made from: all but copies, from which no spelling is learned."""
    for i in range(SPELLED):
        rng = rng_of(("tiny-agent", "spelling", seed, i))
        phase = replace(first_phase_at(i / SPELLED), words=0.0)
        yield from (m.content for m in conversation(rng, phase))


def padded(rows: list[tuple[list[int], list[float]]]) -> tuple[Tensor, Tensor]:
    """Ids and weights, [B, T], padded at the end."""
    longest = max(len(ids) for ids, _ in rows)
    ids_BT = torch.tensor([ids + [tokens.PAD] * (longest - len(ids)) for ids, _ in rows])
    weight_BT = torch.tensor([w + [0.0] * (longest - len(w)) for _, w in rows])
    return ids_BT, weight_BT


def micro_batches(encode: Encoder, seed: int, step: int, phase: Phase) -> Batch:
    """The conversations of a step, sorted by length and cut so that no part holds more than `PART`
    padded tokens.
    """
    rng = rng_of(("tiny-agent", "data", seed, step))
    rows = [encode(conversation(rng, phase)) for _ in range(CONVERSATIONS)]
    rows.sort(key=lambda row: -len(row[0]))
    parts = [[rows[0]]]
    for row in rows[1:]:
        if (len(parts[-1]) + 1) * len(parts[-1][0][0]) > PART:
            parts.append([])
        parts[-1].append(row)
    return [padded(part) for part in parts]


class Building:
    """A build under way: the model, its optimisers, and how far it is."""

    def __init__(self, out: Path, seed: int):
        self.out, self.seed, self.place = out, seed, out / "build"
        self.at: dict[str, float] = {"step": 0, "seconds": 0.0, "tokens": 0}
        if not (out / "tokenizer.json").exists():
            tokens.build(texts(seed)).save_pretrained(out)
        self.tokenizer = AutoTokenizer.from_pretrained(out)
        torch.manual_seed(seed_of(("tiny-agent", "weights", seed)))
        self.model = LlamaForCausalLM(config(len(self.tokenizer)))
        self.optimisers = optimisers_of(self.model)
        if (self.place / "at.json").exists():
            self._resume()

    def states(self) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
        """Every parameter that is optimised, and what its optimiser keeps of it."""
        for n, optimiser in enumerate(self.optimisers):
            each = [p for g in optimiser.param_groups for p in g["params"]]
            for i, p in enumerate(each):
                yield f"{n}.{i}", p, optimiser.state[p]

    def save(self) -> None:
        """A checkpoint; one that is cut short leaves the one before."""
        aside = self.place.with_name("build-half")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        held = {
            f"{name}.{key}": torch.as_tensor(x).clone()
            for name, _, state in self.states()
            for key, x in state.items()
        }
        held |= {f"{name}.weight": p.detach().clone() for name, p, _ in self.states()}
        save_file(held, aside / "state.safetensors")
        (aside / "at.json").write_text(json.dumps(self.at))
        shutil.rmtree(self.place, ignore_errors=True)
        os.replace(aside, self.place)

    @torch.no_grad()
    def _resume(self) -> None:
        self.at = json.loads((self.place / "at.json").read_text())
        held = load_file(self.place / "state.safetensors")
        for name, p, state in self.states():
            p.copy_(held.pop(f"{name}.weight"))
            begin = f"{name}."
            state |= {k.removeprefix(begin): held[k] for k in held if k.startswith(begin)}

    def step(self, encode: Encoder, done: float) -> float:
        """One update, when a share `done` of the time is spent; the mean loss, nats."""
        n = int(self.at["step"])
        for group in (g for o in self.optimisers for g in o.param_groups):
            group["lr"] = group["peak"] * share(n, done)
        batch = micro_batches(encode, self.seed, n, phase_at(done))
        weight, total = sum(w[:, 1:].sum() for _, w in batch), 0.0
        for ids_BT, weight_BT in batch:
            loss = loss_of(self.model, ids_BT, weight_BT) / weight
            loss.backward()
            total += float(loss.detach())
            self.at["tokens"] += int((ids_BT != tokens.PAD).sum())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()
        self.at["step"] += 1
        return total


def train(out: Path, seconds: float, seed: int, log_every: int = 20, save_every: int = 100) -> None:
    """Trains for a time of this thread; the same seed reads the same conversations, how many
    depends on the machine. With other `seconds` a build goes on towards another end.
    """
    out.mkdir(parents=True, exist_ok=True)
    building = Building(out, seed)
    encode, at = Encoder(building.tokenizer), building.at
    recent, last = 0.0, time.thread_time()
    while at["seconds"] < seconds:
        recent += building.step(encode, at["seconds"] / seconds) / log_every
        clock = time.thread_time()
        at["seconds"], last = at["seconds"] + clock - last, clock
        if at["step"] % log_every == 0:
            speed = f"seconds {at['seconds']:.0f} tokens/s {at['tokens'] / at['seconds']:.0f}"
            print(f"step {at['step']} loss {recent:.4f} tokens {at['tokens']} {speed}", flush=True)
            recent = 0.0
        if at["step"] % save_every == 0:
            building.save()
    write(building.model, out, at)
    shutil.rmtree(building.place, ignore_errors=True)


def write(model: LlamaForCausalLM, out: Path, at: Mapping[str, float]) -> None:
    """Half precision on disk halves the file; the configuration says float32, so that is what a
    reader gets.
    """
    model.save_pretrained(out)
    weights = load_file(out / "model.safetensors")
    halves = {name: w.half() for name, w in weights.items()}
    save_file(halves, out / "model.safetensors", metadata={"format": "pt"})
    print(json.dumps({"conversations": int(at["step"]) * CONVERSATIONS, **at}))


def main() -> None:
    parser = argparse.ArgumentParser(description="Rebuild the small agent.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=2100.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.out, args.seconds, args.seed)


if __name__ == "__main__":
    main()
