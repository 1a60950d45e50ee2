"""Whether samples of an engine depend on who shares their forward passes, tried with its own model."""

from __future__ import annotations

import asyncio
import itertools

import torch

from palaestra.engines.own import OwnEngine
from palaestra.engines.probe import TEXTS
from palaestra.types import Sampling

TOKENS = 6  # of each answer
LONG = 150  # tokens of the longest prompt: more than two blocks of columns


async def check_company(engine: OwnEngine) -> str:
    """A few answers alone, then all at once: "the same to the bit", or what was seen instead."""
    tokenizer = engine.model.tokenizer
    prompts = [tuple(tokenizer.encode(text, add_special_tokens=False)) for text in TEXTS]
    prompts.append(tuple(itertools.islice(itertools.cycle(prompts[-1]), LONG)))
    sampling = Sampling(max_tokens=TOKENS)
    each = [(prompt, ("company", i)) for i, prompt in enumerate(prompts)]
    alone = [await engine.generate(prompt, sampling, key) for prompt, key in each]
    together = await asyncio.gather(*(engine.generate(p, sampling, key) for p, key in each))
    same = [(a.ids, a.logp) == (b.ids, b.logp) for a, b in zip(alone, together, strict=True)]
    if all(same):
        return "the same to the bit"
    exact = engine.model.device.type == "cpu" and engine.model.dtype == torch.float32
    why = "" if exact else "; promised on a processor in float32 alone"
    if engine.model.is_mixture:
        why = "; not promised for mixtures of experts"
    return f"{same.count(False)} of {len(same)} answers differ in the last bits{why}"
