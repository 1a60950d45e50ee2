"""When does search pay: the cells of the study of searches for known and unknown facts.

    python -m benchmarks.whensearch.study --out benchmarks/whensearch/results.json

A small model is taught half of some facts, and to search half of the time whether it knows the answer or not. Each arm
trains from such a start until its sampled tokens are used up; what differs is the reward. A start that does not know what
it was taught, knows what it was not, or searches nearly always or never is refused. Cells that the file has are not run again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from benchmarks.whensearch.facts import (
    HELD_OUT,
    KINDS,
    DraftRoom,
    Facts,
    PlainRoom,
    SearchedRoom,
    Taught,
    room,
)
from palaestra.recipes.agents import ikea, inforage, sem
from palaestra.run.built_in import WORLDS

HERE = Path(__file__).parent
DECLARED: dict[str, Any] = json.loads((HERE / "declared.json").read_text())
FILE = CellFile(("starts", "cells"))
SHARED: Mapping[str, Any] = {"checkpoint_every": 10**6, "quiet": True}
# the form of the start that an arm trains from, and the room that it trains in
FORMS: Mapping[str, str] = {"sem": "draft"}
ROOMS: Mapping[str, type[Any]] = {"sem": DraftRoom, "always search": SearchedRoom}
INDEXES = ("intact", "shuffled", "broken")
Cell = dict[str, Any]


def form_of(arm: str) -> str:
    return FORMS.get(arm, "plain")


def room_of(arm: str) -> type[Any]:
    return ROOMS.get(arm, PlainRoom)


def named(kind: type[Any], tasks: Facts | Taught, index: Any = "intact") -> str:
    """These questions in this room, as a task that runs of this process know by name."""
    seed = tasks.source.seed if isinstance(tasks, Taught) else tasks.seed
    name = f"{tasks.name}-{seed}-{kind.__name__}-{index}".lower()
    WORLDS[name] = (lambda: tasks, lambda: room(kind, index, seed))
    return name


@pl.stage
class ByKind:
    """Parts "right known", "right unknown", "calls known" and "calls unknown": the sampled answers of each kind."""

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        kind = KINDS[bool(group.task.meta["from_memory"])]
        return replace(group, episodes=tuple(self._told(e, kind) for e in group.episodes))

    def _told(self, e: pl.Episode, kind: str) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        values = {"right": float(bool(e.reward.solved)), "calls": float(e.facts["calls"])}
        parts = {f"{what} {k}": x for what, x in values.items() for k in KINDS}
        others = [p for p in parts if not p.endswith(f" {kind}")]
        reward = e.reward
        told = replace(reward, parts={**reward.parts, **parts}, silent=(*reward.silent, *others))
        return replace(e, reward=told)


def recipe_of(arm: str, steps: int = 1000) -> pl.Recipe:
    """The method of an arm, with the batch, the draw, the rate and the form of all. Steps are ended by tokens."""
    n = DECLARED["samples"]
    outcome = lambda: pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=n), pl.Score()))
    made: Any = {
        "ikea": lambda: ikea.build(think=False, samples=n),
        "sem": lambda: sem.build(think=False, samples=n),
        "inforage": lambda: inforage.build(think=False, samples=n),
        "outcome": outcome,
        "always search": outcome,
    }[arm]()
    return pl.vary(
        made,
        draw=pl.recipe("grpo").draw,
        collect=pl.links(*made.collect.links, ByKind()),
        schedule=pl.Schedule(prompts=DECLARED["prompts"], steps=steps),
        optimiser=pl.AdamW(lr=DECLARED["rate"]),
        instruction="",
    )


def start(folder: Path, form: str, seed: int) -> str:
    """The model that arms of a form train from: it learns facts by heart, and then to search half of the time."""
    kind = DraftRoom if form == "draft" else PlainRoom
    model = "tiny-agent"
    for part, taught in (
        ("by heart", Taught(True, Facts(seed))),
        ("form", Taught(False, Facts(seed))),
    ):
        steps, rate = DECLARED["start"][part]
        sft = pl.vary(
            pl.recipe("sft"),
            collect=pl.links(pl.Demonstrate()),
            schedule=pl.Schedule(prompts=32, steps=steps),
            optimiser=pl.AdamW(lr=rate, warmup=10),
        )
        run = pl.train(
            sft, task=named(kind, taught), model=model, seed=seed, evaluate=0, rollouts="none",
            out=folder / f"{form}-{part}".replace(" ", "-"), **SHARED,
        )  # fmt: skip
        model = str(run.summary["artifacts"]["policy"])
    return model


# ---- measuring


def exam(folder: Path, model: str, task: str, seed: int, k: int = 1) -> dict[str, Any]:
    """By kind of the question: right answers and searches an answer, greedy, or of `k` > 1 samples."""
    pl.evaluate(model, task=task, n=HELD_OUT, k=k, seed=seed, out=folder)
    table = pl.open(folder).attempts("held-out samples" if k > 1 else "held-out").to_pylist()
    return by_kind(table)


def by_kind(rows: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Shares of the answers to each kind: right, and with a search; and how many of those that were given at once, and
    of those after a search, are right. None = there was no such answer.
    """
    made = dict[str, dict[str, float | None]]()
    for kind in KINDS:
        own = [r for r in rows if r["domain"] == kind]
        calls = [json.loads(r["facts"])["calls"] for r in own]
        right = [bool(r["solved"]) for r in own]
        made[kind] = {
            "right": mean(right),
            "calls": mean(calls),
            "searched": mean([c > 0 for c in calls]),
            "right at once": mean([x for x, c in zip(right, calls, strict=True) if not c]),
            "right by search": mean([x for x, c in zip(right, calls, strict=True) if c]),
        }
    return made


def mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def probe(folder: Path, model: str, form: str, seed: int) -> dict[str, Any]:
    """What a start does without training: the greedy answers, and sampled ones."""
    task = named(DraftRoom if form == "draft" else PlainRoom, Facts(seed))
    return {
        how: exam(folder / how, model, task, seed, k) for how, k in (("greedy", 1), ("sampled", 4))
    }


def refusal(probed: Mapping[str, Any]) -> str:
    """Why a start decides nothing; "" = it does."""
    limits, sampled = DECLARED["start must"], probed["sampled"]
    low, high = limits["search"]
    for kind in KINDS:
        if not low <= sampled[kind]["searched"] <= high:
            return f"searches for {sampled[kind]['searched']:.0%} of {kind} facts"
    known, unknown = (sampled[kind]["right at once"] or 0.0 for kind in ("known", "unknown"))
    if known < limits["know"]:
        return f"knows {known:.0%} of what it was taught"
    if unknown > limits["not know"]:
        return f"knows {unknown:.0%} of what it was not taught"
    return ""


# ---- cells


def run_cell(folder: Path, model: str, arm: str, seed: int) -> Cell:
    """Trains an arm until its tokens are used up, and measures it."""
    began = time.process_time()
    curve: dict[str, list[float]] = {name: [] for name in CURVES}
    every = DECLARED["prompts"] * DECLARED["samples"]

    def spent(step: int, x: Mapping[str, float]) -> bool:
        calls = (x["part/calls known"] + x["part/calls unknown"]) / 2 * every
        curve["tokens"].append(int(x["sampled_tokens"]))
        curve["calls"].append(round((curve["calls"] or [0.0])[-1] + calls, 1))
        for name in CURVES[2:]:
            curve[name].append(round(float(x[f"part/{name}"]), 4))
        return curve["tokens"][-1] >= DECLARED["tokens"]

    own = folder / arm.replace(" ", "-")
    run = pl.train(
        recipe_of(arm), task=named(room_of(arm), Facts(seed)), model=model, seed=seed, evaluate=0,
        rollouts="none", on_step=spent, out=own / "run", **SHARED,
    )  # fmt: skip
    trained, exams = str(run.summary["artifacts"]["policy"]), dict[str, Any]()
    for index in INDEXES:
        task = named(room_of(arm), Facts(seed), index)
        exams[index] = exam(own / index, trained, task, seed)
    task = named(room_of(arm), Facts(seed))
    exams["sampled"] = exam(own / "sampled", trained, task, seed, k=4)
    return {"curve": curve, "exams": exams, "seconds": round(time.process_time() - began, 1)}


CURVES = ("tokens", "calls", "right known", "right unknown", "calls known", "calls unknown")


def run_seed(file: Path, seed: int) -> None:
    missing = [a for a in DECLARED["arms"] if not FILE.has(file, f"{a}/{seed}")]
    models = dict[str, str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arm in missing:
            form = form_of(arm)
            if form not in models:
                began = time.process_time()
                models[form] = start(folder, form, seed)
                probed = probe(folder / f"probe-{form}", models[form], form, seed)
                probed["seconds"] = round(time.process_time() - began, 1)
                probed["refused"] = refusal(probed)
                FILE.keep(file, starts=(f"{form}/{seed}", probed))
                print(f"{form}/{seed}", probed, flush=True)
            if why := FILE.read(file)["starts"][f"{form}/{seed}"]["refused"]:
                print(f"{arm}/{seed} is not run: its start {why}", flush=True)
                continue
            cell = run_cell(folder, models[form], arm, seed)
            FILE.keep(file, cells=(f"{arm}/{seed}", cell))
            print(f"{arm}/{seed}", cell, flush=True)


def main() -> None:
    parser = parser_of(__doc__, DECLARED["seeds"])
    parser.add_argument(
        "--smoke", action="store_true", help="tiny starts and cells, to see that it runs"
    )
    given = parser.parse_args()
    if given.smoke:
        DECLARED.update(DECLARED["smoke"])
    for seed in given.seeds:
        run_seed(given.out, seed)


if __name__ == "__main__":
    main()
