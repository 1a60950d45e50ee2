"""Weights written and read one at a time: the files are those that transformers writes at once."""

import json
import weakref

import pytest
import torch
from palaestra.errors import UserError
from palaestra.models import model as room
from palaestra.models import weight_files
from palaestra.models.load import load, save, weights_sha256
from palaestra.models.weight_files import INDEX, ShardWriter, converts_alone, read_weights, save_weights
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


class Held:
    """Reads weights as `read` does, and counts bytes: the most of those handed out that were alive at once."""

    def __init__(self, read):
        self.read, self.peak = read, 0

    def __call__(self, *given):
        alive = []
        for name, value in self.read(*given):
            alive = [x for x in alive if x() is not None] + [weakref.ref(value)]
            self.peak = max(self.peak, sum(x().nbytes for x in alive))
            yield name, value
            del value


@pytest.mark.parametrize("files", ["one", "several"])
def test_a_checkpoint_is_read_one_weight_at_a_time(files, tmp_path, monkeypatch):
    model, other = load("tiny"), load("tiny", dtype="bfloat16")
    if files == "several":
        monkeypatch.setattr(ShardWriter.__init__, "__defaults__", (200_000,))
    save(model, tmp_path, model.named_trainable().items())
    held = Held(read_weights)
    monkeypatch.setattr(room, "read_weights", held)
    monkeypatch.setattr(weight_files, "read_module", lambda *a: pytest.fail("a second model"))
    for taker in (model, other):
        want = weights_sha256(load(str(tmp_path), dtype=str(taker.dtype)[6:]))
        with torch.no_grad():
            for p in taker.module.parameters():
                p.zero_()
        taker.load_weights(tmp_path)
        assert weights_sha256(taker) == want
    sizes = [p.nbytes for p in model.module.parameters()]
    assert max(sizes) <= held.peak <= 2 * max(sizes) < sum(sizes) / 4  # the one before, while the next is read


def test_what_lies_otherwise_in_files_is_read_by_transformers(tmp_path):
    """The experts of a mixture, whose tensors are joined on the way: a second model is made."""
    model = mixture("qwen3_moe", torch.float32)
    save(model, tmp_path)
    want, held = weights_sha256(model), Held(read_weights)
    for name, value in held(model.module, tmp_path):
        assert torch.equal(value, model.module.get_parameter(name))
    assert weights_sha256(model) == want and held.peak == sum(p.nbytes for p in model.module.parameters())


def test_files_of_another_model_are_refused_before_anything_is_read(tmp_path):
    model, wider = build("llama", torch.float32), build("llama", torch.float32, intermediate_size=40)
    wider.module.save_pretrained(tmp_path)
    before = weights_sha256(model)
    with pytest.raises(UserError, match="take the folder of a model of the same architecture"):
        model.load_weights(tmp_path)
    assert weights_sha256(model) == before
