"""`palaestra bench scaling`: how the cost of a step grows, as fitted exponents: seconds ~ x^a."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import LlamaConfig

from benchmarks.engine import histories
from benchmarks.random_models import save_random_model
from benchmarks.step import time_steps
from benchmarks.work import Work, prepare_work
from palaestra.models.load import load
from palaestra.run.parts import Parts, Rounds

TURNS = (2, 4, 8, 16)
BASE = Work(prompts=4, group=16, max_tokens=64, full=True)


def measure(repeats: int, device: str, parts: Parts) -> dict[str, Any]:
    """One series for each quantity: its values, seconds (medians), sampled tokens, exponents."""
    base = replace(BASE, device=device)
    with tempfile.TemporaryDirectory() as folder:
        models = [make_model(Path(folder), width) for width in (64, 128, 256, 512)]
        # quantity: what it is called in the work or its report, and the works
        asked = {
            "sampled tokens": ("tokens", [replace(base, prompts=p) for p in (1, 4, 16, 64)]),
            "group size": ("group", [replace(base, group=g) for g in (4, 8, 16, 32, 64)]),
            "answer length": (
                "max_tokens",
                [replace(base, max_tokens=n) for n in (16, 32, 64, 128, 256)],
            ),
            "prompt length": (
                "prompt_tokens",
                [replace(base, prompt_tokens=n) for n in (16, 64, 128, 256)],
            ),
            "model size": ("parameters", [replace(base, model=m) for m in models]),
        }
        points = sum(len(works) for _, works in asked.values())
        parts.expect((points + len(TURNS)) * repeats)
        result = {
            quantity: series(works, quantity, name, repeats, parts)
            for quantity, (name, works) in asked.items()
        }
    return result | {"turns": turns(repeats, device, parts)}


def series(
    works: Sequence[Work], quantity: str, name: str, repeats: int, parts: Parts
) -> dict[str, Any]:
    points = [
        point(w, name, parts.rounds(f"{quantity}, point {i}", repeats))
        for i, w in enumerate(works, 1)
    ]
    x, seconds = (np.array([p[k] for p in points]) for k in ("x", "seconds"))
    return {
        "points": points,
        "exponent": exponent(x, seconds),
        "exponent_of_last_two": exponent(x[-2:], seconds[-2:]),
    }


def point(work: Work, name: str, rounds: Rounds) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        recipe, ctx = prepare_work(work, Path(folder))
        steps = asyncio.run(time_steps(recipe, ctx, rounds))
    tokens = float(np.median([s["tokens"] for s in steps]))
    given = {"tokens": tokens, "parameters": float(ctx.model("policy").n_parameters)}
    x = given[name] if name in given else float(getattr(work, name))
    return {"x": x, "seconds": float(np.median([s["seconds"] for s in steps])), "tokens": tokens}


def exponent(x: np.ndarray, seconds: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(seconds), 1)[0])


def make_model(folder: Path, width: int) -> str:
    """A model of random weights with the embedded model's tokenizer; `width` from 64 to 512 is 0.3
    to 17 M parameters.
    """
    config = LlamaConfig(
        vocab_size=load("tiny").vocabulary,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=4,
        num_attention_heads=width // 32,
        num_key_value_heads=max(1, width // 64),
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    where = folder / f"width-{width}"
    save_random_model(config, where)
    return str(where)


def turns(repeats: int, device: str, parts: Parts) -> dict[str, Any]:
    """Sampling of episodes by their number of turns: with kept histories linear but for attention,
    else quadratic.
    """
    model = load("tiny", device=device)
    model.eos = frozenset()
    turn_list: list[Any] = []
    for n in TURNS:
        rounds = parts.rounds(f"{n} turns", repeats, warm=False)
        for _ in rounds:
            rounds.put(histories(model, 16, n))
        turn_list.append(np.median(rounds.found, 0))
    x = np.array(TURNS, float)
    kept, again = np.array(turn_list).T
    return {
        "points": [
            {"x": n, "seconds": float(k), "seconds_again": float(a)}
            for n, k, a in zip(TURNS, kept, again, strict=True)
        ],
        "exponent": exponent(x, kept),
        "exponent_again": exponent(x, again),
    }


def show(result: dict[str, Any]) -> str:
    lines = []
    for name, s in result.items():
        values = "  ".join(f"{p['x']:g}: {p['seconds']:.2f} s" for p in s["points"])
        lines.append(f"{name:<15} exponent {s['exponent']:.2f}   {values}")
    return "\n".join(lines)
