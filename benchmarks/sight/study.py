"""What reinforcement learning adds to a small model with eyes: the cells of the study of sight.

    python -m benchmarks.sight.study --out benchmarks/sight/results.json
    python -m benchmarks.sight.study --out /tmp/pilot.json --seeds 3000 --arms full

A scene of 32 x 32 pixels has one shape, of one colour, in one quarter; a question asks for one of the three. Half of
all answers to each question are the same one, so the words of the question alone earn one half, and who looks may earn
everything. Each seed makes two starts by imitating right answers, a short and a longer one, from which each arm learns
by GRPO with 1 for exactly the right answer. A cell is measured on held-out scenes of its seed with their picture,
without it, and with that of another scene. Cells that the file has are not run again.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from palaestra.tasks.media import ControlledDraw, MediaControl

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
FILE = CellFile()
MODEL, SIDE, HELD_OUT, ANSWER = "tiny-agent", 32, 128, 8
COLOURS = {
    "red": (230, 50, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 230),
    "yellow": (240, 210, 40),
}
PLACES = {
    "top left": (0, 0),
    "top right": (0, 16),
    "bottom left": (16, 0),
    "bottom right": (16, 16),
}
SHAPES = ("square", "disc", "bar")
ANSWERS = {"colour": tuple(COLOURS), "place": tuple(PLACES), "shape": SHAPES}
COMMON = {"colour": "blue", "place": "top right", "shape": "disc"}  # half of all answers
KEPT, REMOVED, SWAPPED = MediaControl(), MediaControl("removed"), MediaControl("swapped")
MEASURED = {"with picture": "kept", "removed": "removed", "swapped": "swapped"}


def scene(rng: np.random.Generator) -> dict[str, str]:
    """Traits of a scene, each its common value half of the time."""
    return {
        name: COMMON[name] if rng.random() < 0.5 else other(values, COMMON[name], rng)
        for name, values in ANSWERS.items()
    }


def other(values: Sequence[str], left_out: str, rng: np.random.Generator) -> str:
    able = [x for x in values if x != left_out]
    return able[int(rng.integers(len(able)))]


def draw(traits: Mapping[str, str], rng: np.random.Generator) -> str:
    """A PNG of a scene as a data URL, on a dark ground with some noise, so that no two pictures are the same."""
    pixels = rng.integers(10, 40, (SIDE, SIDE, 3)).astype(np.uint8)
    top, left = (x + int(rng.integers(1, 6)) for x in PLACES[traits["place"]])
    y, x = np.mgrid[:10, :10]
    mask = {
        "square": np.ones((10, 10), bool),
        "disc": (x - 4.5) ** 2 + (y - 4.5) ** 2 <= 22,
        "bar": (y >= 3) & (y <= 6),
    }[traits["shape"]]
    pixels[top : top + 10, left : left + 10][mask] = COLOURS[traits["colour"]]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def questions(n: int, seed: int) -> list[dict[str, Any]]:
    """Rows: a picture, one of the three questions, the right answer."""
    rng = np.random.default_rng(seed)
    rows = list[dict[str, Any]]()
    for i in range(n):
        traits = scene(rng)
        asked = tuple(ANSWERS)[int(rng.integers(len(ANSWERS)))]
        rows.append({"id": f"{seed}-{i}", "image": draw(traits, rng), "prompt": f"{asked}?",
                     "answer": traits[asked], "demonstration": traits[asked], "domain": asked})  # fmt: skip
    return rows


def exactly(response: str, answer: str) -> float:
    """1 for exactly the right answer."""
    return float(response.strip() == answer)


def start(folder: Path, seed: int, steps: int) -> str:
    """The model that the arms of a seed start from: imitation of right answers by eyes and language part."""
    recipe = pl.vary(
        pl.recipe("sft"),
        heads=("eyes",),
        schedule=pl.Schedule(prompts=32, steps=steps),
        optimiser=pl.AdamW(lr=DECLARED["start rate"], warmup=20),
    )
    rows = questions(32 * steps, 10_000 + seed)
    run = pl.train(
        recipe, data=rows, test_data=rows[:2], reward=exactly, model=MODEL, seed=seed, evaluate=0,
        rollouts="none", checkpoint_every=10**6, max_tokens=ANSWER, quiet=True, out=folder / "start",
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"])


def arm_of(name: str) -> pl.Recipe:
    """GRPO, the same for each arm but for what is shown in training and what learns."""
    made: Any = pl.recipe("grpo")
    shown = {"picture removed": REMOVED, "picture swapped": SWAPPED}.get(name, KEPT)
    made = pl.vary(
        made,
        draw=ControlledDraw(made.draw, shown),
        schedule=pl.Schedule(prompts=DECLARED["prompts"], steps=DECLARED["steps"]),
        evaluate={"media": pl.run.MediaExam(n=HELD_OUT, conditions=tuple(MEASURED.values()))},
    )
    made = pl.override(made, "learners.policy.optimiser.lr", DECLARED["rate"])
    if name == "frozen tower":
        made = pl.override(made, "learners.policy.rates", {"tower": 0, "projector": 0})
    return made


ARMS = ("full", "frozen tower", "picture removed", "picture swapped")


def run_cell(folder: Path, model: str, arm: str, seed: int) -> dict[str, Any]:
    """Trains an arm, and measures before and after."""
    began, wall = time.process_time(), time.time()
    rows = questions(DECLARED["prompts"] * DECLARED["steps"], 20_000 + seed)
    run = pl.train(
        arm_of(arm), data=rows, test_data=questions(HELD_OUT, 30_000 + seed), reward=exactly, model=model,
        seed=seed, evaluate=HELD_OUT, evaluate_every=10**6, rollouts="none", checkpoint_every=10**6,
        max_tokens=ANSWER, quiet=True, out=folder / arm.replace(" ", "-"),
    )  # fmt: skip
    media = run.summary["evaluations"]["media"]
    ends = {
        when: {name: round(media[when][key]["mean"], 4) for name, key in MEASURED.items()}
        for when in ("before", "after")
    }
    took = {"all": time.process_time() - began, "wall": time.time() - wall}
    return {**ends, "seconds": {k: round(x, 1) for k, x in took.items()}}


def main() -> None:
    given = parser_of(__doc__, DECLARED["seeds"], arms=ARMS).parse_args()
    for seed, (name, steps) in product(given.seeds, DECLARED["starts"].items()):
        missing = [a for a in given.arms if not FILE.has(given.out, f"{name}/{a}/{seed}")]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as place:
            model = start(Path(place), seed, steps)
            for arm in missing:
                made = run_cell(Path(place), model, arm, seed)
                FILE.keep(given.out, cells=(f"{name}/{arm}/{seed}", made))
                print(f"{name}/{arm}/{seed}", made, flush=True)


if __name__ == "__main__":
    main()
