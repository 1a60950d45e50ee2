"""Weights written and read one at a time: the files are those that transformers writes at once."""

import json

import pytest
import torch
from palaestra.models import weight_files
from palaestra.models.load import load
from palaestra.models.weight_files import INDEX, ShardWriter, converts_alone, save_weights
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.models.test_models import build
from tests.models.test_routing import KINDS, mixture


def files_in(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.mark.parametrize("kind", [*KINDS, "llama", "qwen3"])
def test_files_are_those_that_transformers_writes(kind, tmp_path):
    """Tied heads, buffers and the experts that lie apart in files among them; the numbers are the given ones."""
    model = build(kind, torch.float32) if kind not in KINDS else mixture(kind, torch.float32)
    assert converts_alone(model.module)
    model.module.save_pretrained(tmp_path / "whole")
    given = {n: p.detach().clone() for n, p in model.module.named_parameters()}
    with torch.no_grad():
        for p in model.module.parameters():
            p.zero_()
    save_weights(model.module, iter(given.items()), tmp_path / "parts")
    assert files_in(tmp_path / "parts") == files_in(tmp_path / "whole")


def test_several_files_have_an_index_that_transformers_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(ShardWriter.__init__, "__defaults__", (200_000,))
    model = load("tiny")
    save_weights(model.module, model.module.named_parameters(), tmp_path)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 3 and all(f.stat().st_size < 400_000 for f in files)
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(p.nbytes for p in model.module.parameters())
    assert {n for f in files for n in load_file(f)} == index["weight_map"].keys()
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(p, model.module.get_parameter(n)) for n, p in again.named_parameters())


def test_weights_that_are_joined_in_files_are_not_written_one_at_a_time(monkeypatch):
    """A stand-in of a conversion that makes one tensor of two: by itself each would make another one."""
    module = load("tiny").module
    joined = lambda _, state: {"all": torch.cat([t.flatten() for t in state.values()])}
    assert converts_alone(module)
    monkeypatch.setattr(weight_files, "revert_weight_conversion", joined)
    assert not converts_alone(module)
