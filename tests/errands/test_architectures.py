"""Pictures of my own and a vision-language model of any architecture: trained, stopped, resumed, saved, loaded elsewhere."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from tests.errands.shell import palaestra
from tests.errands.test_pictures import write_pictures
from tests.vision import ARCHITECTURES, save_tiny


@pytest.fixture(scope="module", autouse=True)
def pictures(folder):
    write_pictures()
    Path("letters.py").write_text(
        "def pay(responses, answers, **_):\n    return [len(set(r)) / 10 for r in responses]\n"
    )


def unlike(one, other, names):
    """Files of the first folder that the second does not have as they are; the first has some."""
    files = list(one.glob(names))
    assert files
    return [f.name for f in files if json.loads(f.read_text()) != json.loads((other / f.name).read_text())]


def weights(folder):
    return AutoModelForImageTextToText.from_pretrained(folder).state_dict()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_it_is_trained_resumed_saved_and_loaded_by_transformers(kind):
    model = save_tiny(kind, Path(kind).resolve())
    asked = f"train grpo --model {model} --data mine.jsonl --max-tokens 4 schedule.prompts=2 sample.n=2 --reward letters.py:pay"
    for words in (
        f"{asked} --steps 2 --out {kind}-whole",
        f"{asked} --steps 1 --out {kind}-parts",
        f"train --resume {kind}-parts --steps 2",
    ):
        said = palaestra(words)
        assert said.status == 0, said.err
    start, whole, parts = (
        weights(f) for f in (model, f"{kind}-whole/checkpoints/step-2", f"{kind}-parts/checkpoints/step-2")
    )
    assert whole.keys() == parts.keys() == start.keys()
    assert all(torch.equal(whole[n], parts[n]) for n in whole)
    assert any(not torch.equal(whole[n], start[n]) for n in whole)
    assert not unlike(Path(model), Path(f"{kind}-whole/checkpoints/step-2"), "*process*.json")
