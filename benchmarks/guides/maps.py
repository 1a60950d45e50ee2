"""The third study: subgoals that a language model named against plain exploration, by the size of the map.

Four rooms around a cross of walls, of 2, 3, 4, 6 and 8 cells a side, so maps of 7 to 19; from one corner to the
other. `ldsc` learns one task with as many environment steps on every map.

    none      plain exploration: double Q learning
    guide     the same with the subgoals that a larger model named
    shuffled  their coordinates exchanged between subgoals

    palaestra train ldsc --env benchmarks/guides/maps.py:side11 --llm transcript:benchmarks/guides/subgoals.jsonl

Declared before a cell was run: five seeds; on a map subgoals help where the 95% interval of guide - none, paired
by seed, is above 0, and are the reason where that of guide - shuffled is above 0 too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.ldsc.program import FORM, OptionLearning, ReuseOptions
from palaestra.recipes.llm4rl.ldsc.subgoals import (
    PlaceWords,
    SubgoalRegion,
    exchange_coordinates,
)
from palaestra.services.chat.structured import add_schema
from palaestra.services.chat.transcript import ReplyTranscript

WRITTEN = Path(__file__).parent / "subgoals.jsonl"
ROOMS = {"side7": 2, "side9": 3, "side11": 4, "side15": 6, "side19": 8}  # cells of a room's side
ARMS = ("none", "guide", "shuffled")
SEEDS, STEPS, GAMES = 5, 6_000, 64
# with fewer updates, faster ones or a target that follows faster, nothing was learned on the smallest map without
# subgoals: seed 901 of the arm "none"
LEARNER = pl.control.DoubleQ(
    gamma=0.97,
    games=8,
    lr=1e-3,
    batch=64,
    width=32,
    follow=0.05,
    explore_steps=0.7,
    per_step=1 / 8,
)


def drawing_of(room: int) -> str:
    """Four rooms; a door east and a door south of the first, and one into the last from each side."""
    side, wall = 2 * room + 3, room + 1
    signs = [["#"] * side for _ in range(side)]
    for y in (*range(1, wall), *range(wall + 1, side - 1)):
        for x in (*range(1, wall), *range(wall + 1, side - 1)):
            signs[y][x] = "."
    near, far = 1 + room // 2, wall + 1 + room // 2
    for x, y in ((wall, near), (near, wall), (far, wall), (wall, far)):
        signs[y][x] = "."
    return "\n".join("".join(row) for row in signs)


@cache
def map_of(name: str) -> pl.control.Maze:
    room = ROOMS[name]
    corner = 2 * room + 1
    return pl.control.Maze(
        drawing=drawing_of(room), start=(1, 1), goal=(corner, corner), horizon=8 * (2 * room + 3)
    )


side7, side9, side11, side15, side19 = (partial(map_of, name) for name in ROOMS)


def program_of(name: str) -> ReuseOptions:
    return ReuseOptions(
        tasks=(map_of(name),),
        subgoals="none",
        steps=STEPS,
        timeout=3 * ROOMS[name] + 8,
        games=GAMES,
        learner=LEARNER,
    )


def words_of(name: str) -> PlaceWords:
    sim = map_of(name)
    act = LEARNER.acting(LEARNER.start(sim, ("guides", name)), 1.0)
    return PlaceWords.of(sim, pl.control.play_games(sim, act, 16, ("guides", name, "sample")), "")


def question(name: str) -> pl.ChatRequest:
    """What `ldsc` asks on a map."""
    words, most = words_of(name), ReuseOptions.most
    axes = ", ".join(f'"{n}": ...' for n in words.names)
    text = FORM.format(about=map_of(name).about, places=words.spelled(), most=most, axes=axes)
    request = pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=2048)
    return add_schema(request, words.form(most))


@cache
def regions_of(name: str) -> list[SubgoalRegion]:
    """The recorded subgoals of a map. Raises Fault where there are none."""
    reply = asyncio.run(ReplyTranscript(str(WRITTEN)).open().chat(question(name)))
    words = words_of(name)
    record = words.form(ReuseOptions.most).model_validate_json(reply.text).model_dump()
    return words.regions(record, words.free(map_of(name)))[0]


def run_cell(simulator: str, arm: str, seed: int) -> Mapping[str, Any]:
    key, words, program = ("guides", simulator, seed), words_of(simulator), program_of(simulator)
    regions = [] if arm == "none" else list(regions_of(simulator))
    if arm == "shuffled":
        free = map_of(simulator).places
        at = lambda r: free[np.abs(free - np.array(r.centre)).sum(1).argmin()]
        regions = [
            replace(r, centre=tuple(map(float, at(r))))
            for r in exchange_coordinates(regions, words, key)
        ]
    ctx: Any = SimpleNamespace(budget={})
    learning = OptionLearning(
        program=program, ctx=ctx, words=[words], regions=[regions], reuse=False, key=key
    )
    numbers = asyncio.run(learning.arm(None)())
    curve = [line["reward"] for line in numbers["curve"]]
    kept = ("return", "error", "length", "by_options", "env_steps")
    return {**{k: numbers[k] for k in kept}, "while_learning": float(np.mean(curve))}


def cells() -> list[tuple[int, tuple[str, str, int]]]:
    """All cells with their places in the queue of all studies, those of the control after the others."""
    place = lambda arm, seed: 10 + seed if arm == "shuffled" else 3 * seed
    return [
        (place(arm, seed), (name, arm, seed))
        for seed in range(SEEDS)
        for name in ROOMS
        for arm in ARMS
    ]
