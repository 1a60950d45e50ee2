"""Whether an engine elsewhere samples from the weights that it was given: a few of its tokens, with
its log-probs beside those of the model here.

Digests say that a folder came as it was written, and not what an engine made of it: gibberish after
waking up, layers that were fused or packed from older weights. Its own log-probs say that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from palaestra.errors import Fatal
from palaestra.models.model import Model

TEXTS = ("1 + 2 =", "The sum of 3 and 4 is", "x = [", "Once upon a time")
TOKENS = 8  # that are sampled after each of them
# mean gaps in nats above which weights are wrong: in float32 without a GPU right ones are within 7e-6
# and ones of an update before from 1.4e-3 on (docs/engines.md); bfloat16 hides a single update
MOST_FLOAT32, MOST_ELSE = 1e-4, 0.5


class Sampled(NamedTuple):
    """A continuation and what an engine says of its tokens, in nats, at temperature 1."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logp: tuple[float, ...]


def probe_prompts(model: Model) -> list[tuple[int, ...]]:
    """What an engine is to continue."""
    return [tuple(model.tokenizer.encode(text, add_special_tokens=False)) for text in TEXTS]


@torch.no_grad()
def own_logp(model: Model, sampled: Sampled) -> np.ndarray:
    """Of the tokens of a continuation, by the model here."""
    ids = torch.tensor([[*sampled.prompt, *sampled.ids]], device=model.device)
    logits = model.logits(model.hidden(ids)[0])[len(sampled.prompt) - 1 : -1].float()
    logp_N = logits.log_softmax(-1).gather(1, ids[0, len(sampled.prompt) :, None])[:, 0]
    return logp_N.cpu().numpy()


def mean_gap(model: Model, every: Sequence[Sampled]) -> float:
    """Mean of the absolute differences of log-probs, over all tokens; infinite where one is no
    number.
    """
    gaps = [np.abs(own_logp(model, s) - np.array(s.logp)) for s in every]
    mean = float(np.mean(np.concatenate(gaps)))
    return mean if np.isfinite(mean) else float("inf")


def most_gap(model: Model) -> float:
    """What a mean gap may be."""
    exact = model.dtype == torch.float32 and model.device.type == "cpu"
    return MOST_FLOAT32 if exact else MOST_ELSE


def check_gap(model: Model, every: Sequence[Sampled]) -> None:
    """Raises Fatal where an engine's log-probs are not those of the model."""
    gap, most = mean_gap(model, every), most_gap(model)
    if gap > most:
        raise Fatal(
            "engine",
            f"it samples from other weights than it was given: the log-probs of {len(every)} probes "
            f"differ from the model's by {gap:.2g} nats in the mean, where {most:g} is the most",
        )


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder, by name."""
    digest_of: dict[str, str] = {}
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        with path.open("rb") as file:
            digest_of[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digest_of
