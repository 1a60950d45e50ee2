"""A failed update as files: what is needed to see it fail again (`palaestra doctor --case DIR`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from palaestra.context import Learns
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.load import Model, load, save
from palaestra.store.checkpoint import disk_errors
from palaestra.store.codec import decode, encode
from palaestra.types import Batch
from palaestra.update import backward


def dump_case(
    directory: Path, model: Model, learner: Learns, batch: Batch, metrics: Mapping[str, float]
) -> None:
    """Writes the model before the update, the batch and the learner: the folder has its name when
    it is whole.
    """
    aside = directory.with_name(f".{directory.name}")
    with disk_errors(f"writing {directory}"):
        for old in (aside, directory):
            shutil.rmtree(old, ignore_errors=True)
        save(model, aside / "model")
        columns = {k: v.contiguous().cpu() for k, v in batch.columns.items()}
        save_file(columns | {"unit_B": batch.unit_B.cpu()}, str(aside / "batch.safetensors"))
        try:
            plain, _ = encode(learner)
        except TypeError:  # a recipe of the user's own: its class cannot be made from a file
            plain = None
        names = ("n_tokens", "n_rows", "n_units", "totals")
        counts = {n: getattr(batch, n) for n in names}
        case = {
            "learner": plain,
            "counts": counts,
            "metrics": {k: repr(v) for k, v in metrics.items()},
        }
        (aside / "case.json").write_text(json.dumps(case, indent=1))
        aside.rename(directory)


def replay_case(directory: Path) -> dict[str, Any]:
    """Runs the update of a dumped case again, without moving weights: the loss, and which gradients
    are not finite.
    """
    try:
        case = json.loads((directory / "case.json").read_text())
    except OSError as error:
        raise UserError(
            f"{directory}: not a dumped case ({error.strerror}); give a folder under RUN/cases/"
        ) from None
    if case["learner"] is None:
        raise UserError(
            f"{directory}: the recipe is not part of palaestra; run `backward` of palaestra.update "
            "on batch.safetensors"
        )
    tensors = load_file(str(directory / "batch.safetensors"))
    unit_B = tensors.pop("unit_B")
    batch, learner = (
        Batch(columns=tensors, unit_B=unit_B, **case["counts"]),
        decode(case["learner"], {}),
    )
    model = load(str(directory / "model"))
    metrics = backward(
        lambda part: forward(model, part, learner.objective.needs),
        learner.objective,
        batch,
        1 << 30,
    )
    broken = [
        n
        for n, p in model.module.named_parameters()
        if p.grad is not None and not p.grad.isfinite().all()
    ]
    columns = [k for k, v in tensors.items() if v.is_floating_point() and not v.isfinite().all()]
    return {
        "loss": float(metrics["loss"]),
        "columns_not_finite": columns,
        "gradients_not_finite": len(broken),
        "first_gradient_not_finite": broken[0] if broken else None,
    }
