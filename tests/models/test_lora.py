"""Which layers get adapters, and what is said of them."""

from dataclasses import replace

import pytest
import torch
from palaestra.api.training import remarks
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.load import load, save
from palaestra.models.lora import LINEAR, LoRA
from palaestra.models.precision import is_small
from palaestra.run import setup
from palaestra.settings import overrides
from palaestra.settings.fields import Settings

from tests.models.test_models import batch_of, build

pytest.importorskip("peft")

FUSED = {  # projections in one matrix, and layers whose weights are [in, out]
    "phi3": ("down_proj", "gate_up_proj", "o_proj", "qkv_proj"),
    "gpt_neox": ("dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"),
    "gpt2": ("c_attn", "c_fc", "c_proj"),
    "glm4": ("down_proj", "gate_up_proj", "k_proj", "o_proj", "q_proj", "v_proj"),
    "llama": tuple(sorted(LINEAR)),
}


@pytest.mark.parametrize("kind", FUSED)
def test_every_projection_of_a_decoder_layer_gets_adapters(kind):
    model = build(kind, torch.float32)
    linear = {n for layer in model.layers for n, m in layer.named_modules() if getattr(m, "weight", None) is not None}
    assert sorted(LoRA().layers(model.causal)) == list(FUSED[kind])
    adapted = replace(model, module=LoRA(rank=2)(model.module))
    changed = {n.split(".lora_")[0].rpartition(".")[2] for n in adapted.named_trainable()}
    assert changed == set(FUSED[kind]) and all(
        "norm" in n or "ln" in n for n in {x.rpartition(".")[2] for x in linear} - changed
    )


@pytest.mark.parametrize("kind", ["phi", "phi3", "gpt2", "gpt_neox", "qwen2_moe", "llama"])
def test_all_linear_is_what_peft_adapts_under_that_name(kind):
    peft = pytest.importorskip("peft")
    names = lambda module: {
        n.split(".lora_A")[0].split("model.", 1)[1] for n, _ in module.named_modules() if ".lora_A." in n
    }
    theirs = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", fan_in_fan_out=kind == "gpt2")
    expected = names(peft.get_peft_model(build(kind, torch.float32).module, theirs))
    ours = names(LoRA(rank=2, targets=("all-linear",))(build(kind, torch.float32).module))
    assert ours == expected and len(ours) >= 4


def test_all_linear_reaches_layers_that_the_usual_names_do_not():
    module = build("phi", torch.float32).causal  # `dense`, `fc1` and `fc2` beside `q_proj`
    assert set(LoRA(targets=("all-linear",)).layers(module)) - set(LoRA().layers(module)) == {"dense", "fc1", "fc2"}
    with pytest.raises(UserError, match="LoRA targets all-linear are not in this model"):
        LoRA(targets=("all-linear", "q_proj")).layers(module)  # alone, or names


@pytest.mark.parametrize("kind", ["phi3", "gpt2"])
def test_adapters_of_fused_projections_are_saved_merged(kind, tmp_path):
    model = build(kind, torch.float32)
    adapted = replace(model, module=LoRA(rank=2)(model.module))
    with torch.no_grad():
        for p in adapted.trainable():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    batch = batch_of([9, 5])
    batch = replace(batch, columns={**batch.columns, "temperature": torch.ones(2, 9)})
    moved = forward(adapted, batch, ("logp",))["logp"]
    save(adapted, tmp_path)
    torch.testing.assert_close(forward(load(str(tmp_path)), batch, ("logp",))["logp"], moved, rtol=1e-4, atol=1e-4)


def test_adapters_that_peft_saved_are_a_model(tmp_path):
    peft = pytest.importorskip("peft")
    save(load("tiny"), tmp_path / "base")
    module = load(str(tmp_path / "base")).module
    theirs = peft.get_peft_model(module, peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    theirs.save_pretrained(str(tmp_path / "theirs"))
    start = load(str(tmp_path / "base")).module.state_dict()
    found = load(str(tmp_path / "theirs")).module.state_dict()
    changed = {k for k, p in found.items() if not torch.equal(p, start[k])}
    assert found.keys() == start.keys() and changed == {k for k in start if "q_proj" in k}
    assert is_small(str(tmp_path / "theirs"))


def test_the_scale_is_that_of_the_settings():
    assert (setup.lora_of(Settings(lora=4)), setup.lora_of(Settings())) == (LoRA(rank=4, alpha=32), None)
    given = setup.lora_of(Settings(lora=4, lora_alpha=8, lora_targets="q_proj, v_proj,q_proj"))
    assert given == LoRA(rank=4, alpha=8, targets=("q_proj", "v_proj"))
    model = load("tiny", lora=given)
    layer = model.layers[0].self_attn.q_proj
    assert layer.scaling == {"default": 2.0} and len(model.trainable()) == 2 * 2 * len(model.layers)
    assert setup.describe_adapters(model) == "adapters of rank 4 and alpha 8 on q_proj, v_proj"
    assert setup.describe_adapters(load("tiny")) == ""


@pytest.mark.parametrize("idle", [{"lora_alpha": 8}, {"lora_targets": "q_proj"}])
def test_settings_of_adapters_want_adapters(idle):
    with pytest.raises(UserError, match=r"--lora-(alpha|targets) is of adapters; give their rank too"):
        setup.lora_of(Settings(**idle))


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (("qproj",), r"LoRA targets qproj are not in this model; did you mean q_proj.*--lora-targets"),
        (("q_proj", "nose"), r"LoRA targets nose are not in this model"),
        (("lm_head",), r"LoRA targets lm_head are not in this model"),
    ],
)
def test_targets_that_are_not_there_are_named(targets, says):
    with pytest.raises(UserError, match=says):
        load("tiny", lora=LoRA(targets=targets))


def test_numbers_that_nobody_asked_for_are_said(monkeypatch):
    monkeypatch.setattr("palaestra.models.precision.computes_bfloat16", lambda: True)
    recipe = overrides.recipe_of(Settings())
    lines = lambda named, **given: [
        x
        for x in remarks(None, recipe, Settings(model="own/large", device="cpu", **given), recipe, named)
        if "bfloat16" in x
    ]
    (told,) = lines("")
    assert told.startswith("weights in bfloat16 (a large model") and "--tis 2 corrects" in told
    assert "--dtype float32 avoids" in told and "--tis" not in lines("", tis=2)[0]
    assert lines("bfloat16") == [] == lines("", dtype="float32")
