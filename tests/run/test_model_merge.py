"""`palaestra merge`: each way equals a reference in numpy on two small models, and what cannot be merged is refused."""

import json

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models import weight_files
from palaestra.models.arithmetic import HEAD, PermuteUnits, untie_head, weights_of, write_weights
from palaestra.models.load import load, save
from palaestra.run import model_merge
from palaestra.types import rng_of
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from tests.rows import every
from tests.vision import save_tiny

TEXTS = ["3+4\n= 7", "12+34\n= 46", "the sum of two"]
TIED = {"tie_word_embeddings": True}


def small(folder, seed, base=None, tokens=(), rows=263, **config):
    """A model of one layer with the tokenizer of "tiny", near to `base`."""
    torch.manual_seed(seed)
    settings = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
                "num_key_value_heads": 1, "max_position_embeddings": 64, "eos_token_id": 258, **TIED}  # fmt: skip
    module = LlamaForCausalLM(LlamaConfig(vocab_size=rows, **{**settings, **config}))
    if base is not None:
        own = load_file(base / "model.safetensors")
        with torch.no_grad():
            for name, p in module.named_parameters():
                p.copy_(own[name] + 0.3 * torch.randn(own[name].shape))
    module.save_pretrained(folder)
    tokenizer = load("tiny").tokenizer
    if tokens:
        tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    """A base and two models near to it, and a file of texts."""
    place = tmp_path_factory.mktemp("trio")
    base = small(place / "base", 0)
    small(place / "a", 1, base), small(place / "b", 2, base)
    (place / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    return place


def numbers(folder):
    return {n: t.double().numpy() for n, t in load_file(folder / "model.safetensors").items()}


def low_rank(d, rank):
    if d.ndim < 2:
        return d
    u, s, v = np.linalg.svd(d, full_matrices=False)
    return sum(s[i] * np.outer(u[:, i], v[i]) for i in range(min(rank, len(s))))


def ties(ds, removed):
    """By loops: trim, elect, mean of those that agree."""
    kept = []
    for d in ds:
        order = np.sort(np.abs(d).ravel())
        k = int(removed * d.size)
        kept.append(np.where(np.abs(d) >= order[k - 1], d, 0))
    out = np.zeros_like(ds[0])
    for at in np.ndindex(out.shape):
        sign = 1 if sum(d[at] for d in kept) >= 0 else -1
        agree = [d[at] for d in kept if d[at] * sign > 0]
        out[at] = np.mean(agree) if agree else 0
    return out


def arc(a, b, t):
    w = np.arccos((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
    return (np.sin((1 - t) * w) * a + np.sin(t * w) * b) / np.sin(w)


def thinned(name, d, i, drop, seed):
    keep = rng_of(("dare", seed, i, name)).random(d.shape) >= drop
    return keep * d / (1 - drop)


REFERENCES = {
    "linear": ({"share": 0.25}, lambda n, o, a, b: 0.75 * a + 0.25 * b),
    "slerp": ({"share": 0.25}, lambda n, o, a, b: arc(a, b, 0.25)),
    "task": ({"scale": 0.5}, lambda n, o, a, b: o + 0.5 * (a - o + b - o)),
    "ties": ({"removed": 0.5}, lambda n, o, a, b: o + ties([a - o, b - o], 0.5)),
    "svd": ({"rank": 2, "scale": 1.0}, lambda n, o, a, b: o + low_rank(a - o, 2) + low_rank(b - o, 2)),
    "dare": ({"drop": 0.5, "scale": 1.0, "seed": 3},
             lambda n, o, a, b: o + thinned(n, a - o, 0, 0.5, 3) + thinned(n, b - o, 1, 0.5, 3)),
}  # fmt: skip


@pytest.mark.parametrize("how", REFERENCES)
def test_a_merge_is_its_reference(how, trio, tmp_path):
    options, reference = REFERENCES[how]
    base = "" if how in model_merge.BETWEEN else str(trio / "base")
    report = pl.run.merge(str(trio / "a"), str(trio / "b"), base, how=how, out=tmp_path / "m", **options)
    own, a, b, made = (numbers(f) for f in (trio / "base", trio / "a", trio / "b", tmp_path / "m"))
    expected = {n: reference(n, own[n], a[n], b[n]) for n in own}
    # norms of two models are nearly parallel, where a line stands for the arc
    assert all(np.allclose(made[n], x, atol=1e-4 if x.ndim == 1 else 1e-6) for n, x in expected.items())
    flat = lambda w: np.concatenate([w[n].ravel() for n in own])
    assert report["distance"]["first to second"] == pytest.approx(np.linalg.norm(flat(a) - flat(b)))
    assert report["distance"]["merge to first"] == pytest.approx(np.linalg.norm(flat(made) - flat(a)), rel=1e-5)
    if base:
        da, db = flat(a) - flat(own), flat(b) - flat(own)
        assert report["cosine"] == pytest.approx(da @ db / np.linalg.norm(da) / np.linalg.norm(db))
    assert report["tied_head"] and HEAD not in made, "a tied head stays tied"


def test_activations_of_the_base_hold_changes_back(trio, tmp_path):
    """Against the inputs of the first layer's queries, computed from the norm of the embeddings."""
    args = {"data": str(trio / "texts.jsonl"), "omega": 0.25, "scale": 1.0}
    pl.run.merge(*(str(trio / n) for n in ("a", "b", "base")), how="activation", out=tmp_path / "m", **args)
    own, a, b, made = (numbers(f) for f in (trio / "base", trio / "a", trio / "b", tmp_path / "m"))
    ids = [i for t in TEXTS for i in AutoTokenizer.from_pretrained(trio / "base").encode(t)]
    x = own["model.embed_tokens.weight"][ids]
    x = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * own["model.layers.0.input_layernorm.weight"]
    size = np.abs(x).mean(0)
    name = "model.layers.0.self_attn.q_proj.weight"
    change = (a[name] + b[name] - 2 * own[name]) * (1 - 0.75 * size / size.max())
    assert np.allclose(made[name], own[name] + change, atol=1e-5)
    name = "model.norm.weight"
    assert np.allclose(made[name], a[name] + b[name] - own[name], atol=1e-6), "no linear layer's: all of the change"


def test_dare_keeps_the_mean_and_its_seed(trio, tmp_path):
    made = {}
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        pl.run.merge(
            *(str(trio / n) for n in ("a", "b", "base")), how="dare", out=tmp_path / name, seed=seed, scale=1.0
        )
        made[name] = numbers(tmp_path / name)["model.embed_tokens.weight"]
    own, a, b = (numbers(trio / n)["model.embed_tokens.weight"] for n in ("base", "a", "b"))
    assert np.array_equal(made["one"], made["same"]) and not np.array_equal(made["one"], made["other"])
    error = made["one"] - (a + b - own)
    assert np.abs(error).max() > 0.1 and abs(error.mean()) < 0.02


def test_the_barrier_is_that_of_averages(trio, tmp_path):
    """Losses by transformers' own, of models that are averaged here."""
    args = {"data": str(trio / "texts.jsonl"), "how": "linear"}
    report = pl.run.merge(str(trio / "a"), str(trio / "b"), out=tmp_path / "m", **args)
    a, b = (load_file(trio / n / "model.safetensors") for n in ("a", "b"))
    module = LlamaForCausalLM.from_pretrained(trio / "a")
    rows = [torch.tensor([module_ids]) for module_ids in map(AutoTokenizer.from_pretrained(trio / "a").encode, TEXTS)]
    losses = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        module.load_state_dict({n: (1 - share) * a[n] + share * b[n] for n in a}, strict=False)
        with torch.no_grad():
            costs = [module(input_ids=r, labels=r).loss.item() * (r.shape[1] - 1) for r in rows]
        losses.append(sum(costs) / sum(r.shape[1] - 1 for r in rows))
    assert list(report["line"].values()) == pytest.approx(losses, abs=1e-4)
    line = np.interp((0, 0.25, 0.5, 0.75, 1), (0, 1), (losses[0], losses[-1]))
    assert report["barrier"] == pytest.approx(max(0, (np.array(losses) - line).max()), abs=1e-4)
    assert report["loss"]["merge"] == pytest.approx(losses[2], abs=1e-4)
    assert report["data"] == {"file": args["data"], "texts": 3, "cut": 0}
    assert model_merge.NO_BARRIER not in report["notes"]
    assert json.loads((tmp_path / "m" / "report.json").read_text()) == report


def test_transformers_loads_the_merge(trio, tmp_path, monkeypatch):
    """Also from several files. No model is loaded where no data are read, and no part of a file is left."""
    monkeypatch.setattr(model_merge, "load", lambda *a, **k: pytest.fail("a whole model in memory"))
    monkeypatch.setattr(weight_files.ShardWriter.__init__, "__defaults__", (3000,))
    report = pl.run.merge(str(trio / "a"), str(trio / "b"), out=tmp_path / "m")
    assert "barrier" not in report and report["notes"] == [model_merge.NO_BARRIER]
    files = sorted(p.name for p in (tmp_path / "m").iterdir())
    shards = [f for f in files if f.endswith(".safetensors")]
    assert len(shards) > 1 and f"model-00001-of-0000{len(shards)}.safetensors" in shards
    assert not any("partial" in f or f.endswith((".bin", ".pt", ".pkl")) for f in files)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    a, b = (load_file(trio / n / "model.safetensors") for n in ("a", "b"))
    assert all(torch.allclose(p, (a[n] + b[n]) / 2, atol=1e-6) for n, p in model.named_parameters())
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(trio / "a").chat_template


def test_models_that_differ_in_tokens_rows_and_a_tied_head(trio, tmp_path):
    """The merge has the first one's rows and a head of its own, and says what was done."""
    other = small(tmp_path / "other", 5, tokens=["<|thinks|>"], rows=270)
    model = LlamaForCausalLM.from_pretrained(other)
    untie_head(model)
    with torch.no_grad():
        model.lm_head.weight += 1.0
    model.save_pretrained(other)
    report = pl.run.merge(str(trio / "a"), str(other), out=tmp_path / "m", data=str(trio / "texts.jsonl"))
    assert report["loss"]["merge"] == pytest.approx(report["line"]["0.5"], abs=1e-4)
    assert report["special_tokens"] == ["<|thinks|>"] and not report["tied_head"]
    for said in ("<|thinks|>", "it is untied", "has 263 and 270 rows: 263 are merged"):
        assert any(said in note for note in report["notes"]), said
    a, b, made = (numbers(f) for f in (trio / "a", other, tmp_path / "m"))
    embedding = a["model.embed_tokens.weight"]
    assert np.allclose(made[HEAD], (embedding + b[HEAD][:263]) / 2, atol=1e-6)
    assert LlamaForCausalLM.from_pretrained(tmp_path / "m").config.tie_word_embeddings is False
    with pytest.raises(UserError, match=r"1 tokens beyond the 263 rows .* keep the tokenizer of"):
        pl.run.merge(str(trio / "a"), str(other), out=tmp_path / "n", tokenizer="second")
    assert not [*(tmp_path / "n").iterdir()]
    pl.run.merge(str(other), str(trio / "a"), out=tmp_path / "p")
    assert len(numbers(tmp_path / "p")["model.embed_tokens.weight"]) == 270
    assert "<|thinks|>" in AutoTokenizer.from_pretrained(tmp_path / "p").get_vocab()


def test_what_does_not_merge_is_refused(trio, tmp_path):
    a = str(trio / "a")
    wide = small(tmp_path / "wide", 0, intermediate_size=16)
    heads = small(tmp_path / "heads", 0, num_attention_heads=4, head_dim=2, num_key_value_heads=2)
    with pytest.raises(UserError, match=r"mlp\S+' is \(12, 8\) in one and \(16, 8\) .* fine-tunes of one base"):
        pl.run.merge(a, str(wide), out=tmp_path / "m")
    with pytest.raises(UserError, match=r"has num_attention_heads 4, and .* has 2: .* fine-tunes of one base"):
        pl.run.merge(a, str(heads), out=tmp_path / "m")
    other = small(tmp_path / "spoken", 0)
    load("tiny").tokenizer.train_new_from_iterator(["other words"] * 9, 300).save_pretrained(other)
    with pytest.raises(UserError, match=r"another vocabulary .* fine-tunes of one base"):
        pl.run.merge(a, str(other), out=tmp_path / "m")
    broken = small(tmp_path / "broken", 0)
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"model.norm.weight are NaN"):
        pl.run.merge(a, str(broken), out=tmp_path / "m")
    assert not [*(tmp_path / "m").iterdir()], "nothing is left of a merge that failed"
    del weights["model.norm.weight"]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"1 weights are not in its safetensors .* save it again"):
        pl.run.merge(a, str(broken), out=tmp_path / "m")


@every("architecture", ["idefics3", "gemma3"])
def test_models_that_see_are_refused_in_plain_words(architecture, tmp_path):
    sees = save_tiny(architecture, tmp_path / "sees")
    with pytest.raises(
        UserError, match=r"sees sees pictures or hears sounds, and models that read text alone are merged here"
    ):
        pl.run.merge(sees, sees, out=tmp_path / "m")


@every(
    ("arguments", "told"),
    [
        ({"how": "slerp", "base": "tiny"}, "reads no base; leave tiny out"),
        ({"how": "ties"}, "name the base third"),
        ({"how": "activation", "base": "tiny"}, "give --data FILE"),
        ({"how": "soup"}, "no way to merge is called 'soup'; there are linear"),
        ({"tokenizer": "base"}, "say first or second"),
        ({"rank": 3}, "linear does not read rank; it reads share"),
        ({"how": "dare", "base": "tiny", "removed": 0.5}, "say then=ties as well"),
        ({"how": "dare", "base": "tiny", "then": "soup"}, "then is 'soup'; it is task or ties"),
        ({"how": "svd", "base": "tiny", "rank": 0}, "LowRank.rank is 0"),
        ({"share": 1.5}, "share is 1.5"),
    ],
)
def test_arguments_without_use_are_refused(tmp_path_factory, arguments, told):
    with pytest.raises(UserError, match=told):
        pl.run.merge("tiny", "tiny", out=tmp_path_factory.mktemp("m"), **arguments)


def test_the_command(trio, tmp_path, capsys):
    files = [str(trio / n) for n in ("a", "b", "base")]
    out = str(tmp_path / "m")
    command = ["merge", *files, "--with", "dare", "--then", "ties", "-o", out, "--data", str(trio / "texts.jsonl")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "(drop 0.3, then ties, removed 0.8, scale 1.0, seed 0)" in said and "barrier" in said
    assert "base to merge" in said and f"model and report.json in {out}" in said
    assert main(command) == 2 and "holds a model already; name another folder" in capsys.readouterr().err
    assert main(["merge", *files[:2], "-o", str(tmp_path / "n"), "--share", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["distance"]["merge to first"] == 0 and report["options"] == {"share": 0.0}


def test_texts_of_any_form(tmp_path):
    (tmp_path / "t.txt").write_text("one text\n\nanother\n")
    rows = [
        {"text": "x"},
        {"prompt": "q", "answer": 7},
        {"messages": [{"role": "user", "content": "q"}], "response": "r"},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert [t.text for t in pl.run.read_texts(str(tmp_path / "t.txt"))] == ["one text", "another"]
    texts = pl.run.read_texts(str(tmp_path / "t.jsonl"))
    assert [(t.text, len(t.prompt)) for t in texts] == [("x", 0), ("7", 1), ("r", 1)]
    assert len(pl.run.read_texts(str(tmp_path / "t.jsonl"), 2)) == 2
    (tmp_path / "bad.jsonl").write_text('{"prompt": "q"}\n')
    with pytest.raises(UserError, match=r"bad.jsonl.*no text; it needs a column `text`"):
        pl.run.read_texts(str(tmp_path / "bad.jsonl"))
    model = load("tiny")
    pairs, cut = pl.run.spell_texts(model, [*texts[1:2], pl.run.WrittenText("x" * 600), pl.run.WrittenText("y")])
    assert len(pairs) == 2 and cut == 1 and len(pairs[1][1]) == model.context - 1, "one token says nothing"
    assert model.tokenizer.decode(pairs[0][1]).startswith("7") and pairs[0][1][-1] in model.eos


def test_models_in_two_basins_have_a_barrier(tmp_path):
    """The built-in model and the same with its units in another order: equal losses, and a hill between."""
    model = load("tiny")
    own = weights_of(model.module)
    moved = {n: t.clone() for n, t in PermuteUnits()(own, [own]).items()}
    write_weights(model.module, moved)
    save(model, tmp_path / "moved")
    (tmp_path / "t.txt").write_text("12+34\n2+4+0=6\n1+3+0=4\n= 46")
    report = pl.run.merge("tiny", str(tmp_path / "moved"), out=tmp_path / "m", data=str(tmp_path / "t.txt"))
    line = report["line"]
    assert line["0"] == pytest.approx(line["1"], abs=1e-4)
    assert report["barrier"] == pytest.approx(max(line.values()) - line["0"], abs=1e-4) and report["barrier"] > 0.1
    falling = model_merge.linear_barrier((0, 0.5, 1), (2.0, 1.8, 1.0))
    assert falling == pytest.approx(0.3), "above the line, though below the first"
