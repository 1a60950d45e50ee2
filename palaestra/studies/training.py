"""What the run that made a model was trained on, as far as its folder says, beside what a study measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palaestra.abilities import split_size
from palaestra.errors import UserError
from palaestra.store.checkpoint import checkpoint_of
from palaestra.store.folder import read_config
from palaestra.types import Tasks

PROBLEM = ("data", "env", "task")  # settings that name a problem, the one that counts most first


def run_of(model: str) -> Path | None:
    """The folder of the training run whose checkpoint a model is; None = it is none."""
    place = Path(model).expanduser().resolve()
    saved = checkpoint_of(place) if place.is_dir() else None
    return saved.parent.parent if saved and read_config(saved.parent.parent) else None


def training_remark(ctx: Any) -> str:
    """What the run of the model under study was trained on, in a sentence: of files how many of the
    measured rows are among its training rows, by their prompts. "" = no run is known, or it names no
    problem.
    """
    learned, known = _training_of(ctx)
    if isinstance(known, UserError):
        return f"the run of the model was trained on {learned}, which cannot be read here: {known}"
    measured = _prompts(ctx.bench.tasks, "test") if known else []
    if not measured:
        return f"the run of the model was trained on {learned}" if learned else ""
    trained = frozenset(known)
    return (
        f"{sum(p in trained for p in measured)} of {len(measured)} rows are among the {len(known)} that the run "
        f"of the model was trained on ({learned})"
    )


def trained_prompts(ctx: Any) -> frozenset[str]:
    """The prompts of the rows that the run of the model under study was trained on, as `Item` has them.
    Empty = not known: no run, no file of rows, or one that cannot be read.
    """
    _, known = _training_of(ctx)
    return frozenset() if isinstance(known, UserError) else frozenset(known)


def _training_of(ctx: Any) -> tuple[str, list[str] | UserError]:
    """The problem that the model's run names, "" = none, and the prompts of its training rows."""
    run = run_of(ctx.model("policy").name)
    config = read_config(run) if run else {}
    learned = next((str(config[n]) for n in PROBLEM if config.get(n)), "")
    if not config.get("data") or ctx.open_problem is None:
        return learned, []
    named = {n: str(config.get(n, "")) for n in ("data", "test_data", "columns")}
    try:
        bench, _ = ctx.open_problem(named)
        return learned, _prompts(bench.tasks, "train")
    except UserError as error:
        return learned, error


def _prompts(tasks: Tasks, split: str) -> list[str]:
    """Those of a split; none where it has no end."""
    size = split_size(tasks, split) or 0
    return ["\n".join(m.shown for m in tasks.task(split, i).prompt) for i in range(size)]
