"""In which numbers a model computes where nobody has said it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from palaestra.models.embedded import FOLDERS
from palaestra.processor import computes_bfloat16

SMALL = 10_000_000  # weights; below, to start an operator takes about as long as its work
BYTES = 4  # of a weight in a file, at most
OPTIMISER = "state.safetensors"  # beside the weights in a checkpoint; what resuming needs


@dataclass(frozen=True)
class Precision:
    """A dtype's name, and why it is this one."""

    dtype: str
    why: str


def precision_for(model: str, device: str) -> Precision:
    """The faster one that is safe: bfloat16 for a large model on what has instructions for it.

    Weights are then kept in float32 beside it, and the trainer's log-probs are measured anew, as
    those of the engine round otherwise.

    Args:
        model: its name, folder or id; only embedded ones and folders can be small.
        device: "cpu", "cuda", or another one of torch.
    """
    if is_small(model):
        return Precision("float32", "a small model gains nothing from less")
    if device.startswith("cuda"):
        return Precision("bfloat16", "a large model on a GPU")
    if device.partition(":")[0] != "cpu":
        return Precision("float32", "less was not tried on this device")
    if computes_bfloat16():
        return Precision("bfloat16", "a large model, and this processor computes in bfloat16")
    return Precision("float32", "this processor has no instructions for bfloat16")


def is_small(model: str) -> bool:
    """Whether a model has fewer than `SMALL` weights, by the size of its files; of adapters that
    were saved alone, the model that they were trained on.

    Args:
        model: its name, folder or id; only embedded ones and folders can be small.
    """
    folder = Path(model).expanduser()
    names = (folder / "adapter" / "adapter_config.json", folder / "adapter_config.json")
    adapters = next((f for f in names if f.is_file()), names[0])
    if adapters.is_file() and not (folder / "config.json").exists():
        try:
            base = json.loads(adapters.read_text(encoding="utf-8")).get("base_model_name_or_path")
        except (OSError, ValueError, AttributeError):  # whoever loads it says what is wrong
            return False
        return bool(base) and str(base) != model and is_small(str(base))
    files = [f for f in folder.glob("*.safetensors") if f.name != OPTIMISER]
    return model in FOLDERS or 0 < sum(f.stat().st_size for f in files) < SMALL * BYTES
