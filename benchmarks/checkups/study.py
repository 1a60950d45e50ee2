"""The check-up of four methods from one start: sft, dpo, grpo and distil: the cells of the study.

    python -m benchmarks.checkups.study --out benchmarks/checkups/results.json

Every method trains the built-in model for as many steps, with as many prompts a step, at its recipe's own rate; then
`palaestra study all` compares what comes out with the start. A cell keeps the numbers of the check-up's page. Problems are of
a stream of each seed's own. The teacher of distil is the start after a longer imitation of worked answers. Cells
that the file has are not run again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from palaestra.api.studying import check_up, read_report
from palaestra.claims.starts import imitation
from palaestra.run import built_in
from palaestra.settings.fields import Settings

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
ARMS: tuple[str, ...] = tuple(DECLARED["arms"])
FILE = CellFile()
CONTROL = "untrained"  # the start beside itself: every change is 0


def problem(seed: int) -> str:
    """The task of a seed by its name, for runs of this process: problems of a stream of its own."""
    questions: Any = built_in.QUESTIONS
    name = f"checkups-{seed}"
    questions[name] = partial(pl.toys.Count, name=name)
    return name


def train(folder: Path, recipe: Any, seed: int) -> str:
    """The folder of the model that a recipe makes of the start."""
    run = pl.train(
        recipe, task=problem(seed), model=DECLARED["start"], seed=seed, evaluate=0, rollouts="none",
        checkpoint_every=10**6, max_tokens=DECLARED["longest"], quiet=True, out=folder,
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"])


def recipe_of(arm: str, teacher: str) -> Any:
    """A method as it is, with the prompts and steps of the study, and the samples where it samples."""
    schedule = pl.Schedule(prompts=DECLARED["prompts"], steps=DECLARED["steps"])
    n = DECLARED["samples"]
    own = {"teacher": teacher, "samples": n} if arm == "distil" else {}
    made = pl.vary(pl.recipe(arm, **own), schedule=schedule)
    return pl.override(made, "collect.links.0.n", n) if arm in ("dpo", "grpo") else made


def look(folder: Path, model: str, seed: int) -> dict[str, Any]:
    """The numbers of the check-up's page, by study and name."""
    settings = Settings(
        recipe="grpo", task=problem(seed), model=model, seed=seed, max_tokens=DECLARED["longest"],
        set={"base": DECLARED["start"], **DECLARED["study"]},
    )  # fmt: skip
    folders = check_up(settings, folder, talk=False)
    return {name: numbers_of(place) for name, place in folders.items()}


def numbers_of(place: Path) -> dict[str, Any]:
    """Plain numbers of a report: the means of intervals."""
    numbers = read_report(place)["numbers"]
    means = {k: x["mean"] if isinstance(x, Mapping) else x for k, x in numbers.items()}
    return {k: None if x is None else round(float(x), 5) for k, x in means.items()}


def run_cell(folder: Path, arm: str, seed: int, teacher: str) -> dict[str, Any]:
    began = time.process_time()
    model = (
        DECLARED["start"] if arm == CONTROL else train(folder / arm, recipe_of(arm, teacher), seed)
    )
    trained = time.process_time()
    numbers = look(folder / f"{arm}-check-up", model, seed)
    seconds = {"training": trained - began, "check-up": time.process_time() - trained}
    return {**numbers, "seconds": {k: round(x, 1) for k, x in seconds.items()}}


def run_block(file: Path, seed: int, arms: tuple[str, ...]) -> None:
    """A seed: the teacher, and the arms that are missing."""
    missing = [a for a in arms if not FILE.has(file, f"{a}/{seed}")]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as place:
        teacher = ""
        if "distil" in missing:
            taught = imitation(DECLARED["teacher steps"], warmup=5)
            teacher = train(Path(place) / "teacher", taught, seed)
        for arm in missing:
            made = run_cell(Path(place), arm, seed, teacher)
            FILE.keep(file, cells=(f"{arm}/{seed}", made))
            print(f"{arm}/{seed}", made["seconds"], made["math-beyond"], flush=True)


def main() -> None:
    given = parser_of(__doc__, DECLARED["seeds"], arms=[*ARMS, CONTROL]).parse_args()
    for seed in given.seeds:
        arms = [a for a in given.arms if a != CONTROL or seed in DECLARED["control seeds"]]
        run_block(given.out, seed, tuple(arms))


if __name__ == "__main__":
    main()
