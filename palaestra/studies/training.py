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
    run = run_of(ctx.model("policy").name)
    config = read_config(run) if run else {}
    learned = next((str(config[n]) for n in PROBLEM if config.get(n)), "")
    if not learned:
        return ""
    measured = _prompts(ctx.bench.tasks, "test")
    if not config.get("data") or not measured or ctx.open_problem is None:
        return f"the run of the model was trained on {learned}"
    named = {n: str(config.get(n, "")) for n in ("data", "test_data", "columns")}
    try:
        bench, _ = ctx.open_problem(named)
        trained = _prompts(bench.tasks, "train")
    except UserError as error:
        return f"the run of the model was trained on {learned}, which cannot be read here: {error}"
    known = {*trained}
    return (
        f"{sum(p in known for p in measured)} of {len(measured)} rows are among the {len(trained)} that the run "
        f"of the model was trained on ({learned})"
    )


def _prompts(tasks: Tasks, split: str) -> list[str]:
    """Those of a split; none where it has no end."""
    size = split_size(tasks, split) or 0
    return ["\n".join(m.shown for m in tasks.task(split, i).prompt) for i in range(size)]
