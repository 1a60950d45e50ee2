"""Model Surgery: rows and edits by hand, the probe's direction, what is kept, and files of a user."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.arithmetic import add_to_rows, weights_of
from palaestra.models.inside.probe import Probe
from palaestra.models.load import load
from palaestra.recipes.inference import model_surgery as surgery
from palaestra.recipes.inference.model_surgery import edit
from palaestra.recipes.inference.model_surgery.texts import FromFiles, Habit, check_sides
from torch import nn
from transformers import Glm4Config, Glm4ForCausalLM, Phi3Config, Phi3ForCausalLM

V = torch.tensor([1.0, 0.0])
GATES = {"a": torch.tensor([[-1.0, 0.2], [0.5, 0.5]]), "b": torch.tensor([[-0.2, 1.0]])}


def test_rows_of_the_catalogue():
    """Cosines -0.980581, 0.707107 and -0.196116: the first row of "a" is opposed most, its second aligned most."""
    assert edit.choose_rows(GATES, V, 1) == {"a": [0]}
    assert edit.choose_rows(GATES, V, 2) == {"a": [0], "b": [0]}
    assert edit.choose_rows(GATES, V, 1, "aligned") == {"a": [1]}
    assert edit.choose_rows(GATES, V * 7, 1) == {"a": [0]}, "the length of v does not matter"
    assert edit.choose_rows(GATES, V, 0) == {} and edit.mean_length(GATES, {}) == 0
    assert edit.choose_rows({"a": torch.ones(4, 2)}, V, 2) == {"a": [0, 1]}, "equal ones in their order"
    drawn = [edit.choose_rows({"a": torch.ones(99, 2)}, V, 9, "random", seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert round(0.0465 * 352_256) == pytest.approx(16_384, rel=1e-3)


def test_an_edit_by_hand():
    """(-1, .2) has length sqrt(1.04): half of it along v gives -1 + .5099, and h = (2, 0) moves from -2 to -0.98."""
    layer = nn.Linear(2, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.cat([GATES["a"], GATES["b"]]))
    rows = edit.choose_rows({"weight": layer.weight.detach()}, V, 1)
    size = edit.mean_length({"weight": layer.weight.detach()}, rows)
    assert size == pytest.approx(1.04**0.5)
    add_to_rows(layer, rows, V * size, 0.5)
    assert layer(torch.tensor([2.0, 0.0]))[0].item() == pytest.approx(-2 + 1.04**0.5, abs=1e-6)
    assert layer(torch.tensor([0.0, 2.0]))[0].item() == pytest.approx(0.4, abs=1e-6), "a neutral state stays"


@pytest.mark.parametrize(("config", "model"), [(Phi3Config, Phi3ForCausalLM), (Glm4Config, Glm4ForCausalLM)])
def test_gates_in_one_matrix_with_what_they_gate(config, model):
    """A gate of -30 shuts silu, so the MLP is silent where all rows that are chosen from are; the lower half is not."""
    small = {"hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1, "vocab_size": 16, "pad_token_id": 0}
    module = model(config(**small, num_attention_heads=2, num_key_value_heads=2, head_dim=4))
    gates = edit.gate_rows(module.model)
    assert [w.shape for w in gates.values()] == [(6, 8)]
    rows = edit.choose_rows(gates, torch.ones(8), 6)
    x, (mlp,) = torch.ones(1, 1, 8), [layer.mlp for layer in module.model.layers]
    assert mlp(x).abs().max() > 0
    add_to_rows(module.model, rows, torch.ones(8), -30.0)
    assert mlp(x).abs().max() == 0


def test_the_direction_points_to_unwanted_texts():
    """Whichever class comes first: W_True - W_False at length 1."""
    for classes, weight in (((False, True), [[0.0, 1.0], [3.0, 5.0]]), ((True, False), [[3.0, 5.0], [0.0, 1.0]])):
        probe = Probe(classes=classes, weight_CD=np.array(weight), bias_C=np.zeros(2))
        assert edit.behaviour_direction(probe).tolist() == pytest.approx([0.6, 0.8])


def test_equal_texts_have_no_direction():
    with pytest.raises(UserError, match="give texts that differ"):
        edit.behaviour_direction(Probe(classes=(False, True), weight_CD=np.zeros((2, 2)), bias_C=np.zeros(2)))


def test_states_are_those_behind_the_context():
    """Means over the reply alone, of hidden states that transformers gives."""
    model = load("tiny")
    pairs = [((50, 51, 52), (53, 54)), ((49,), (60, 61, 62, 63))]
    for (context, reply), state in zip(pairs, edit.mean_states(model, pairs), strict=True):
        with torch.no_grad():
            hidden = model.module.model(torch.tensor([[*context, *reply]])).last_hidden_state[0]
        assert np.allclose(state, hidden[len(context) :].mean(0).numpy(), atol=1e-4)


def test_what_is_kept():
    """The least of the behaviour within the cost; of equal ones the weakest; the word before the probe."""
    point = lambda strength, unwanted, perplexity, **more: {
        "strength": strength, "unwanted": unwanted, "perplexity": perplexity, **more}  # fmt: skip
    keep = lambda *points, **settings: edit.Surgery(**settings).choose([point(0.0, 0.5, 2.0), *points])["strength"]
    assert keep(point(1.0, 0.4, 2.0), point(2.0, 0.2, 2.09), point(4.0, 0.0, 2.2)) == 2.0
    assert keep(point(1.0, 0.4, 2.0), point(4.0, 0.0, 2.2), cost=0.1) == 4.0
    assert keep(point(1.0, 0.2, 2.0), point(2.0, 0.2, 2.0)) == 1.0
    assert keep(point(1.0, 0.6, 2.0), point(2.0, 0.5, 2.0)) == 0.0, "nothing is gained: the model stays"
    of = lambda mean: {"exam": {"mean": mean}}
    marked = [point(0.0, 0.5, 2.0, word=0.5, **of(1.0)), point(1.0, 0.9, 2.0, word=0.1, **of(0.99)),
              point(2.0, 0.1, 2.0, word=0.0, **of(0.9))]  # fmt: skip
    assert edit.Surgery().choose(marked)["strength"] == 1.0 and edit.Surgery(loss=0.2).choose(marked)["strength"] == 2.0


def files(place, n=10):
    """Texts with and without a made-up word."""
    sums = [(f"{a}+{b}", a + b) for a in range(n) for b in range(2)]
    for name, before in (("unwanted", "zub zub\n"), ("fine", "")):
        lines = [json.dumps({"prompt": q, "response": f"{before}= {a}"}) for q, a in sums]
        (place / f"{name}.jsonl").write_text("\n".join(lines))
    return str(place / "unwanted.jsonl"), str(place / "fine.jsonl")


def test_two_files_edit_a_model(context, tmp_path):
    """The edited rows of the saved model differ by the strength times v; the run's own model is left as it was."""
    ctx = context("add(d=1)", out=tmp_path)
    before = {n: t.clone() for n, t in weights_of(ctx.model("policy").module).items()}
    program = surgery.build(
        *files(tmp_path), strengths=(4.0,), samples=2, tokens=4, tasks=2, cost=9.0, loss=1.0, word="q"
    )
    assert program.texts == FromFiles(str(tmp_path / "unwanted.jsonl"), str(tmp_path / "fine.jsonl"))
    program = pl.override(pl.override(program, "rows", 0.01), "cost", 9.0)
    result = asyncio.run(program.run(ctx))
    assert all(torch.equal(t, before[n]) for n, t in weights_of(ctx.model("policy").module).items())
    m = result.metrics
    assert m["probe"] == 1.0 and m["edited_rows"] == round(0.01 * 1664) and m["moved_most"] > 0
    assert [p["strength"] for p in m["strengths"]] == [0.0, 4.0] and m["accuracy_before"]["mean"] == 1.0
    assert m["kept"] == 0.0, "no continuation has the word, so nothing is gained"
    assert m["moved"] == 0.0, "it is that of the kept edit"
    report = json.loads((tmp_path / "edited" / "report.json").read_text())
    assert sum(map(len, report["edit"]["rows"].values())) == m["edited_rows"] and not any(report["edit"]["added"])
    program._save(ctx, {**m, "kept": 4.0}, report["edit"]["rows"], torch.ones(160, dtype=torch.float64) / 160**0.5)
    made = weights_of(load(str(tmp_path / "edited")).module)
    for name, t in before.items():
        moved = (made[name] - t).norm(dim=-1).nonzero().flatten().tolist() if t.ndim > 1 else []
        assert moved == report["edit"]["rows"].get(name, []), name
        assert all((made[name] - t)[i].norm().item() == pytest.approx(4.0, rel=1e-3) for i in moved)


def test_no_rows_move_nothing(context):
    ctx = context("add(d=1)")
    program = edit.Surgery(texts=Habit(n=10), rows=0.0, strengths=(8.0,), n=1, tokens=2, tasks=0)
    m = asyncio.run(program.run(ctx)).metrics
    assert m["moved_most"] == m["moved"] == 0 and m["edited_rows"] == 0 and "accuracy_before" not in m
    assert m["strengths"][0] == {**m["strengths"][1], "strength": 0.0}


def test_bad_input_is_refused(tmp_path, context):
    unwanted, _ = files(tmp_path)
    with pytest.raises(UserError, match="unwanted=FILE fine=FILE"):
        surgery.build(unwanted)
    texts = [pl.run.WrittenText("a text")] * 9
    with pytest.raises(UserError, match="3 fine texts; a probe needs at least 5"):
        check_sides(texts, texts[:3])
    refusals = [pl.run.WrittenText("I\u2019m sorry, but I can not do that.")] * 3
    with pytest.raises(UserError, match="3 of 12 unwanted texts are refusals"):
        check_sides([*texts, *refusals], texts)
    assert check_sides(texts, [*texts, *refusals])[0] == texts, "they may be what is fine"
    with pytest.raises(UserError, match=r"Surgery.strengths is -1"):
        surgery.build(strengths=(-1.0,))
    with pytest.raises(UserError, match=r"Surgery.rows is 2"):
        surgery.build(rows=2.0)
    with pytest.raises(UserError, match="no strength is given"):
        surgery.build(strengths=())
    with pytest.raises(UserError, match="take a model such as Llama"):
        edit.gate_rows(nn.Linear(2, 2))
    with pytest.raises(UserError, match="has no `response` with its label `right`"):
        surgery.build().texts(context("add(d=1)"))


def test_the_command(tmp_path, capsys):
    unwanted, fine = files(tmp_path)
    command = ["edit", "--unwanted", unwanted, "--fine", fine, "-o", str(tmp_path / "m"), "--samples", "2"]
    assert main([*command, "--strengths", "4", "--word", "zub"]) == 0
    said = capsys.readouterr().out
    assert "the probe tells 100.0% of held-out texts; 77 rows" in said and "perplexity" in said and "exam" not in said
    assert load(str(tmp_path / "m")).n_parameters == load("tiny").n_parameters
    assert main(command) == 2 and "holds a model already" in capsys.readouterr().err
