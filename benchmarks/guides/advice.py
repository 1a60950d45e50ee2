"""The second study: how good a guide has to be. A guide says of each cell of a maze which way to go, and
double Q learning takes that as a prior over actions, with which it explores and acts.

    none      no prior
    written   a larger model's recorded advice
    wrong 20  the same, in a fifth of the cells the opposite of what was said
    wrong 50  the same in half of them
    shuffled  the same, each cell with the advice of another one; many cells have the same way, so much of it is right
    smollm2   SmolLM2-135M-Instruct's advice: the likeliest of the four ways, as where an endpoint enforces a form

Declared before a cell was run: ten seeds, 20 and 50 drawn anew for each; an arm helps where the 95% interval of its
return less that of none, paired by seed, is above 0. "unaided" is what the learned values do without the advice.

S cells, K actions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ValidationError

import palaestra as pl
from benchmarks.guides.simulators import MAZE, maze_left
from palaestra.services.chat.structured import parse_object
from palaestra.services.chat.transcript import read_transcript

FOLDER = Path(__file__).parent
WRITTEN, SMALL = FOLDER / "advice.jsonl", FOLDER / "advice-smollm2.jsonl"
WAYS = ("left", "right", "up", "down")
STEP = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
ARMS = ("none", "written", "wrong 20", "wrong 50", "shuffled", "smollm2")
WRONG = {"wrong 20": 0.2, "wrong 50": 0.5}
SEEDS, STEPS, GAMES = 10, 4_000, 128
LEAST = -3.0  # log-probability of a way that was not advised, up to the sum of all
LEARNER = pl.control.DoubleQ(
    prior=0.1, games=8, updates=40, lr=4e-3, width=32, gamma=0.95, follow=0.25, explore_steps=0.7
)


class Advice(BaseModel):
    """Which way to go."""

    way: Literal["left", "right", "up", "down"]


def question(cell: int) -> pl.ChatRequest:
    """What differs stands at the end, so that a model reads the rest once."""
    x, y = MAZE.places[cell].astype(int)
    text = (
        f"{MAZE.about}left is x - 1, right is x + 1, up is y - 1 and down is y + 1. Which way should the agent go? "
        'Answer with JSON alone: {"way": "left"}, {"way": "right"}, {"way": "up"} or {"way": "down"}. '
        f"The agent is at ({x}, {y})."
    )
    return pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=16)


@cache
def advice_of(path: Path) -> tuple[int, ...]:
    """[S] the number of the way that is advised in each cell; -1 = the reply does not fit."""
    replies, ways = read_transcript(path), list[int]()
    for cell in range(len(MAZE.places)):
        try:
            ways.append(WAYS.index(parse_object(replies[question(cell).digest()].text, Advice).way))
        except (ValidationError, ValueError):
            ways.append(-1)
    return tuple(ways)


def changed(ways: tuple[int, ...], arm: str, key: pl.Key) -> np.ndarray:
    """[S] the advice as an arm has it."""
    told, rng = np.array(ways), pl.rng_of((*key, "changed", arm))
    if arm == "shuffled":
        return pl.control.shuffle_rows(told[:, None], rng)[:, 0]
    cells = rng.permutation(len(told))[: round(WRONG.get(arm, 0.0) * len(told))]
    told[cells] ^= 1  # left for right, up for down, and the other way round
    return told


def on_shortest(ways: np.ndarray) -> float:
    """The share of cells, the goal's left out, of which the advice is on a shortest way."""
    places, right = MAZE.places, list[bool]()
    number = {tuple(p): i for i, p in enumerate(places.tolist())}
    one_hot = np.concatenate([np.zeros((len(places), 2)), np.eye(len(places))], 1)
    left = maze_left(one_hot)
    for cell, way in enumerate(ways):
        to = number.get(tuple((places[cell] + STEP[way]).tolist())) if way >= 0 else None
        if left[cell]:
            right.append(to is not None and bool(left[to] < left[cell]))
    return float(np.mean(right))


def run_cell(simulator: str, arm: str, seed: int) -> Mapping[str, Any]:
    key, lines = ("guides", "advice", seed), list[Mapping[str, Any]]()
    prior, told = None, np.full(len(MAZE.places), -1)
    if arm != "none":
        told = changed(advice_of(SMALL if arm == "smollm2" else WRITTEN), arm, key)
        table_SK = np.where(told[:, None] == np.arange(len(WAYS)), 0.0, LEAST)
        table_SK[told < 0] = 0.0
        prior = lambda obs: table_SK[obs[..., 2:].argmax(-1)]
    values = asyncio.run(LEARNER.learn(MAZE, STEPS, key, prior=prior, log=lines.append))
    numbers = {
        name: pl.control.mean_return(
            MAZE, LEARNER.acting(values, 0.0, given), GAMES, (*key, "test")
        )
        for name, given in (("return", prior), ("unaided", None))
    }
    return {
        **numbers,
        "on_shortest": on_shortest(told),
        "while_learning": float(np.mean([line["reward"] for line in lines])),
        "env_steps": int(lines[-1]["env_steps"]),
    }


def cells() -> list[tuple[int, tuple[str, str, int]]]:
    return [(seed, ("maze", arm, seed)) for seed in range(SEEDS) for arm in ARMS]


def record_smollm2() -> None:
    """Asks SmolLM2 about every cell, and writes the likeliest reply of those that fit: of its own it did not
    close the JSON within 16 tokens.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from palaestra.models.smollm2 import folder

    tokenizer = AutoTokenizer.from_pretrained(folder())
    model: Any = AutoModelForCausalLM.from_pretrained(folder())
    requests = [question(cell) for cell in range(len(MAZE.places))]
    begun = '{"way": "'
    first = [tokenizer(way, add_special_tokens=False)["input_ids"][0] for way in WAYS]
    asked: list[list[int]] = []
    for request in requests:
        chat = [{"role": m.role, "content": m.content} for m in request.messages]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        asked.append(tokenizer(text + begun, add_special_tokens=False)["input_ids"])
    shared = next(i for i, column in enumerate(zip(*asked, strict=False)) if len(set(column)) > 1)
    lines: list[str] = []
    with torch.no_grad():
        read = model(torch.tensor([asked[0][:shared]]), use_cache=True).past_key_values
        for request, ids in zip(requests, asked, strict=True):
            out = model(
                torch.tensor([ids[shared:]]), past_key_values=deepcopy(read), use_cache=True
            )
            way = WAYS[int(out.logits[0, -1][first].argmax())]
            record = {"request": request.digest(), "question": request.messages[-1].content}
            lines.append(json.dumps(record | {"text": f'{begun}{way}"}}', "finish": "stop"}))
            print(request.messages[-1].content[-9:], way, flush=True)
    SMALL.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record_smollm2()
