"""`palaestra doctor MODEL --gpu GB`: the formula beside tensors that are really made, and what is said."""

import json
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from palaestra.cli.main import main
from palaestra.models.forward import forward
from palaestra.models.lora import LoRA
from palaestra.models.master import MasterWeights
from palaestra.models.model import Model
from palaestra.models.quantised import Linear4bit, quantise
from palaestra.planning import fit
from palaestra.planning.fit import WAYS, named_model, parts_of
from palaestra.update import AdamW, AdamW8bit
from tools.measured_memory import table
from transformers import LlamaConfig, LlamaForCausalLM

from tests.models.test_models import batch_of

TOKENS = 96


def build():
    """Wide enough that blocks of 64 and 256 are full."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, dtype="bfloat16",
    )  # fmt: skip
    return Model("own", LlamaForCausalLM(config).to(torch.bfloat16).eval(), None, "own")


def size(*tensors):
    return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values()) / 1e9


def trained(way):
    model = build()
    if way.packed:
        quantise(model.module, "cpu")
    if way.adapters:
        pytest.importorskip("peft")
        model = replace(model, module=LoRA(rank=8)(model.module))
    return model


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.name)
def test_what_is_kept_is_what_a_step_makes(way):
    if (way.packed or way.moments < 8) and not find_spec("bitsandbytes"):
        pytest.skip("bitsandbytes is not installed")
    parts = parts_of(build(), way, rank=8, tokens=TOKENS, recompute=False)
    model = trained(way)
    packed = [m.state for m in model.module.modules() if isinstance(m, Linear4bit)]
    beside = [t for s in packed for t in (s.absmax, s.state2.absmax)]
    assert size(*model.module.parameters(), *beside) == pytest.approx(parts.weights, rel=1e-3)
    stage = AdamW8bit(smallest=0) if way.moments < 8 else AdamW()
    optimiser = stage.build(model.trainable())
    moved = [p for group in optimiser.param_groups for p in group["params"]]
    masters = optimiser.masters if isinstance(optimiser, MasterWeights) else []
    for p in moved:
        p.grad = torch.ones_like(p)
    assert size(*masters) == pytest.approx(parts.masters)
    assert size(*(p.grad for p in moved)) == pytest.approx(parts.gradients)
    optimiser.step()
    tables = ("qmap1", "qmap2", "step")  # a kilobyte each
    moments = [t for s in optimiser.state.values() for k, t in s.items() if k not in tables]
    assert size(*moments) == pytest.approx(parts.moments, rel=0.01)


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]], ids=lambda w: w.name)
@pytest.mark.parametrize("recompute", [False, True])
def test_activations_are_about_what_the_backward_pass_keeps(way, recompute):
    """Within a factor of two: kernels differ in what they keep."""
    parts = parts_of(build(), way, rank=8, tokens=TOKENS, recompute=recompute)
    model = replace(trained(way), recompute=recompute)
    own = {p.data_ptr() for p in model.module.parameters()}
    kept = {}

    def keep(t):
        if t.data_ptr() not in own:
            kept[t.data_ptr()] = (t, t.numel() * t.element_size())
        return t

    batch = batch_of([TOKENS])
    batch = replace(batch, columns={**batch.columns, "temperature": torch.ones(1, TOKENS)})
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        forward(model, batch, ("logp",))
    found = sum(n for _, n in kept.values()) / 1e9
    one_layer = (parts.activations * 1e9 if recompute else 0) / 1e9  # which appears while it is computed anew
    assert found < 2 * parts.activations and found + one_layer > 0.5 * parts.activations


def test_a_known_size_by_hand():
    """Qwen2.5-7B: 7,615,616,512 weights, 28 layers, 4 heads of keys of 128 numbers."""
    found = fit.fits(named_model("qwen2.5-7b"), 24, rank=16, prompt=256, answer=1024)
    rows = {(r["way"], r["recompute"]): r for r in found["rows"]}
    full = rows["full", False]["gb"]
    assert (full["weights"], full["masters"], full["moments"]) == (15.23, 30.46, 60.92)
    assert full["answer"] == round(1280 * 2 * 2 * 28 * 4 * 128 / 1e9, 2)
    assert [rows[w.name, True]["fits"] for w in WAYS] == [False, False, True, True]
    linear = 28 * (3584 * (3584 * 2 + 512 * 2) + 3 * 3584 * 18944)
    assert rows["QLoRA", True]["gb"]["weights"] == pytest.approx(
        (2 * (7_615_616_512 - linear) + 4.127 / 8 * linear + rows["QLoRA", True]["gb"]["gradients"] * 1e9) / 1e9,
        abs=0.02,
    )
    assert {r["from"] for r in found["rows"]} == {"formula"} and found["measured"] == []


def test_it_says_formula_or_measured(capsys):
    assert main(["doctor", "tiny", "--gpu", "8"]) == 0
    said = capsys.readouterr().out
    assert said.count("\nformula ") == 2 * len(WAYS) and "measured full: 0.65 GB in the update" in said
    assert main(["doctor", "grpo", "--model", "qwen2.5-0.5b", "--gpu", "8", "--lora", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["rank"], found["measured"]) == ("qwen2.5-0.5b", 4, [])
    assert main(["doctor", "tiny", "smollm2", "--gpu", "8"]) == 2 and main(["doctor", "no-model", "--gpu", "8"]) == 2


def test_the_table_is_what_was_measured():
    assert fit.MEASURED.read_text() == table()
