"""Model folders of strangers: what is refused before anything is built from them, in one line each."""

import json
import shutil
import time
from pathlib import Path

import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.embedded import FOLDERS
from palaestra.models.limits import COUNTS, GROWTH, MB, SIZES, TOKENS
from palaestra.models.load import load, save


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDERS["tiny"], tmp_path / "m"))


def change(folder, file, **settings):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def refusal(folder, match):
    begin = time.perf_counter()
    with pytest.raises(UserError, match=match) as caught:
        load(str(folder))
    assert "\n" not in str(caught.value) and time.perf_counter() - begin < 5
    return str(caught.value)


NAMES = [(name, most) for most, names in COUNTS.items() for name in names]


@pytest.mark.parametrize(("name", "most"), NAMES)
def test_counts_of_a_config_have_bounds(folder, name, most):
    for value in (-1, most + 1, 10**400, 1.5, "64", True, {}, [1, "x"]):
        change(folder, "config.json", **{name: value})
        refusal(folder, rf"config\.json: {name} is .*must be a whole number")
    change(folder, "config.json", **{name: None}, text_config={name: most + 1})
    refusal(folder, rf"config\.json: text_config: {name} is ")


def test_zero_heads_are_refused_and_zero_experts_are_not(folder):
    change(folder, "config.json", num_experts=0)
    load(str(folder))
    change(folder, "config.json", num_attention_heads=0)
    refusal(folder, "num_attention_heads is 0")


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_ids_of_tokens_are_numbers(folder, name, file):
    for value in ("end", [1, "x"], 1.5, False):
        change(folder, file, **{name: value})
        refusal(folder, f"{name} is .*not the number of a token")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", ["[]", "3", '"x"', "null", "{", "[" * 100_000, ""])
def test_files_of_settings_are_objects(folder, file, text):
    (folder / file).write_text(text)
    refusal(folder, rf"{file} (holds a |is not JSON)")


@pytest.mark.parametrize("file", ["config.json", "chat_template.jinja"])
def test_files_that_are_read_whole_have_a_size(folder, file):
    with (folder / file).open("a") as out:
        out.write(" " * SIZES[file])
    refusal(folder, rf"{file} has .* bytes, and at most")


@pytest.mark.parametrize(
    "template", [" " * (MB + 1), 3, [{"name": "default", "template": " " * (MB + 1)}, {"name": "x", "template": "y"}]]
)
def test_a_template_in_the_tokenizers_settings_has_a_size(folder, template):
    change(folder, "tokenizer_config.json", chat_template=template)
    refusal(folder, "chat_template (has|is) ")


def replace(text, by):
    return {"type": "Replace", "pattern": {"String": text}, "content": by}


BOMBS = [
    replace("a", "a" * (GROWTH + 1)),
    {"type": "Prepend", "prepend": "a" * (GROWTH + 1)},
    {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * (GROWTH + 1)},
    {"type": "Sequence", "normalizers": [replace("a", "aa")] * 20},
    {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [replace("a", "aaaaa")] * 2}] * 2},
]


@pytest.mark.parametrize("normalizer", BOMBS)
def test_a_tokenizer_does_not_make_texts_much_longer(folder, normalizer):
    change(folder, "tokenizer.json", normalizer=normalizer)
    refusal(folder, r"tokenizer\.json: the normalizer makes texts [\d,]+ times as long")


def test_usual_normalizers_pass(folder):
    usual = [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"), replace("``", '"'), replace("...", "…")]
    change(folder, "tokenizer.json", normalizer={"type": "Sequence", "normalizers": usual})
    load(str(folder))


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_pointer_of_git_lfs_is_named(folder, file):
    (folder / file).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4600000\n")
    refusal(folder, f"{file} is a pointer of Git LFS .*git lfs pull")


@pytest.mark.parametrize("what", ["base", "weights", "settings"])
def test_adapters_that_peft_saved_alone_say_what_is_missing(folder, what):
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "own/base"}))
    (folder / "config.json").unlink()
    if what == "weights":
        (folder / "adapter_model.safetensors").unlink()
    if what == "settings":
        (folder / "adapter_config.json").write_text("{")
    refusal(folder, {
        "base": "holds adapters alone, of the model 'own/base', which is not here",
        "weights": "has no adapter_model.safetensors, and other files of adapters are not read",
        "settings": "adapter_config.json is no JSON",
    }[what])  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_weight_that_is_no_number_is_named(tmp_path, value, dtype):
    model = load("tiny")
    name = "model.layers.1.mlp.up_proj.weight"
    with torch.no_grad():
        dict(model.module.named_parameters())[name][3, 4] = value
    save(model, tmp_path)
    with pytest.raises(UserError, match=rf"1 of [\d,]+ numbers of the weight {name} are NaN or infinite"):
        load(str(tmp_path), dtype=dtype)


def test_a_head_that_is_no_number_is_named(tmp_path):
    model = load("tiny")
    model.add_head("value").out.bias.data.fill_(float("nan"))
    save(model, tmp_path)
    refusal(tmp_path, r"the weight value\.out\.bias")


def add_tokens(folder, special, template=""):
    model = load("tiny")
    model.tokenizer.add_tokens(["<x>"], special_tokens=special)
    model.tokenizer.chat_template += template
    save(model, folder)


@pytest.mark.parametrize(
    ("special", "template", "refused"), [(False, "", True), (True, "<x>", True), (True, "", False)]
)
def test_tokens_without_an_embedding_are_refused_where_a_text_may_have_them(tmp_path, special, template, refused):
    add_tokens(tmp_path, special, template)
    if refused:
        told = refusal(tmp_path, r"1 tokens that the model has no embedding for, e\.g\. '<x>'")
        assert "resize_token_embeddings" in told
    else:
        load(str(tmp_path))
