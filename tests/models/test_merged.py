"""Adapters merged one layer after another: the files of a merged copy, bit by bit, without the copy."""

import gc
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from palaestra.models import merged
from palaestra.models.load import SCORE, load, save
from palaestra.models.lora import LoRA
from palaestra.models.merged import merge_adapters, merged_weights, save_module, without_adapters
from palaestra.models.quantised import quantise
from palaestra.models.weight_files import ShardWriter
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from tests.models.test_models import build
from tests.models.test_routing import mixture
from tests.models.test_weight_files import files_in
from tests.shards import bytes_alive

pytest.importorskip("peft")
BITS = pytest.mark.skipif(not find_spec("bitsandbytes"), reason="bitsandbytes is not installed")
CASES = ["llama", "gpt2", "phi3", "qwen3_moe", *(pytest.param(f"{k} in 4 bits", marks=BITS) for k in ("llama", "gpt2"))]


def adapted(module, targets=(), bits=False):
    """The module with adapters away from where they begin."""
    module = LoRA(rank=2, targets=targets)(quantise(module, "cpu") if bits else module)
    numbers = torch.Generator().manual_seed(0)
    for p in module.parameters():
        if p.requires_grad:
            p.data = 0.1 * torch.randn(p.shape, generator=numbers)
    return module


def model_of(case, dtype):
    kind, _, bits = case.partition(" in ")
    model = mixture(kind, dtype) if kind == "qwen3_moe" else build(kind, dtype)
    # of one kind of layer only, so that others in 4 bits stay without adapters
    return replace(model, module=adapted(model.module, ("c_attn" if kind == "gpt2" else "o_proj",), bool(bits)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_files_are_those_of_a_merged_copy(case, dtype, tmp_path):
    model = model_of(case, dtype)
    before = {n: t.clone() for n, t in model.module.state_dict().items()}
    for base in (False, True):
        merge_adapters(model, base).save_pretrained(tmp_path / f"copy-{base}")
        (tmp_path / f"layers-{base}").mkdir()
        save_module(model, tmp_path / f"layers-{base}", base=base)
        assert files_in(tmp_path / f"layers-{base}") == files_in(tmp_path / f"copy-{base}")
    assert (tmp_path / "layers-False/model.safetensors").read_bytes() != (
        tmp_path / "layers-True/model.safetensors"
    ).read_bytes()
    after = model.module.state_dict()
    assert after.keys() == before.keys() and all(torch.equal(after[n], t) for n, t in before.items())


def test_what_is_without_adapters_shares_the_models_weights():
    model = build("llama", torch.float32)
    plain = dict(model.module.named_parameters())
    model = replace(model, module=adapted(model.module, ("q_proj",)))
    below = dict(without_adapters(model).named_parameters())
    assert below.keys() == plain.keys() and all(below[n].data_ptr() == p.data_ptr() for n, p in plain.items())
    names = [n for n, _ in merged_weights(model)]
    assert names == [n for n in plain if "q_proj" in n] and not list(merged_weights(model, base=True))
    assert not list(merged_weights(replace(model, bare=True)))


def test_the_layer_of_a_classifier_is_among_them(tmp_path):
    model = load("tiny")
    model.add_head(SCORE).out.weight.data.normal_(generator=torch.Generator().manual_seed(1))
    model = replace(model, module=adapted(model.module))
    save(model, tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded.score.weight, model.heads[SCORE].out.weight)
    own = {**merge_adapters(model).state_dict(), "score.weight": model.heads[SCORE].out.weight}
    files = load_file(tmp_path / "model.safetensors")
    assert files and all(torch.equal(own[n], t) for n, t in files.items())


def peak_bytes(model, folder, monkeypatch):
    """The most that was alive beside the model, of four looks, while it was written in files of at most 200,000 bytes."""
    peak, flush = [], ShardWriter._flush
    monkeypatch.setattr(ShardWriter.__init__, "__defaults__", (200_000,))
    gc.collect()
    before = bytes_alive()

    def watch(self):
        if len(self.shards) % 5 == 1:
            peak.append(bytes_alive() - before)
        flush(self)

    monkeypatch.setattr(ShardWriter, "_flush", watch)
    folder.mkdir()
    save_module(model, folder)
    monkeypatch.setattr(ShardWriter, "_flush", flush)
    assert len(peak) > 3
    return max(peak)


@pytest.mark.parametrize("bits", [False, pytest.param(True, marks=BITS)])
def test_no_more_than_a_file_and_a_layer_is_merged_at_a_time(bits, tmp_path, monkeypatch):
    """A merged copy, cut into files afterwards, takes the whole: what the measure sees where there is one."""
    model = load("tiny")
    wide = sum(p.nbytes for layer in model.layers for p in layer.parameters())
    model = replace(model, module=adapted(model.module, bits=bits))
    assert peak_bytes(model, tmp_path / "layers", monkeypatch) < 3 * 200_000 < wide / 3
    assert len(list((tmp_path / "layers").glob("*.safetensors"))) > 3

    def in_a_copy(model, base=False):
        return iter([*merge_adapters(model, base).named_parameters()])

    monkeypatch.setattr(merged, "merged_weights", in_a_copy)
    assert peak_bytes(model, tmp_path / "copy", monkeypatch) > wide
