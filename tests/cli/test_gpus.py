"""`palaestra doctor CONFIG.json`: GPUs and memory of a run, without weights."""

import json

import pytest
from palaestra.cli import doctor
from palaestra.cli import gpus as gpu_needs
from palaestra.cli.main import main

from tests.vision import ARCHITECTURES

SEVEN = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
}  # fmt: skip
EIGHT = "learners = 4\nworkers = 2\ngpus = 2\n"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SEVEN))
    return str(path)


def asked(capsys, *argv):
    assert main(["doctor", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_seven_billion_weights_on_eight_gpus(config, tmp_path, capsys):
    (tmp_path / "eight.toml").write_text(EIGHT)
    told = asked(capsys, "grpo", config, "--cluster", str(tmp_path / "eight.toml"), "--cache-mb", "2000")
    assert told["parameters"] == 7_615_616_512 and told["gpus"] == 8
    counted = {x["role"]: (x["processes"], x["gpus_each"], x["gb_each_gpu"]) for x in told["processes"]}
    state = round(16 * 7.615616512 / 4, 1)  # weights, gradient and optimiser over four ranks
    assert counted["learner"] == (1, 1, state) and counted["further learner ranks"] == (3, 1, state)
    assert counted["rollout processes"] == (2, 2, round((2 * 7.615616512 + 2) / 2, 1))
    assert main(["doctor", "grpo", config, "--cluster", str(tmp_path / "eight.toml")]) == 0
    assert "\nGPUs: 8\n" in capsys.readouterr().out


def test_adapters_references_and_numbers_count(config, capsys):
    plain = asked(capsys, "grpo", config, "--cache-mb", "1000")
    adapted = asked(capsys, "grpo", config, "--cache-mb", "1000", "--lora", "16")
    beside = asked(capsys, "dpo", config, "--cache-mb", "1000")
    wide = asked(capsys, "grpo", config, "--cache-mb", "1000", "--lora", "16", "--dtype", "float32")
    gb = lambda told: told["processes"][0]["gb_each_gpu"]
    assert (plain["gpus"], gb(plain)) == (1, round(16 * 7.615616512 + 1, 1))
    assert adapted["trained"] < 5e7 and gb(adapted) == pytest.approx(
        2 * 7.6 + 16 * adapted["trained"] / 1e9 + 1, abs=0.1
    )
    assert beside["references"] == 1 and gb(beside) == pytest.approx(gb(plain) + 2 * 7.6156, abs=0.1)
    assert gb(wide) == pytest.approx(gb(adapted) + 2 * 7.6156, abs=0.2)


@pytest.mark.parametrize("architecture", ["idefics3", "qwen3_vl"])
def test_a_model_that_sees_counts_with_its_tower(architecture, tmp_path, capsys):
    module, _ = ARCHITECTURES[architecture]()
    module.config.save_pretrained(tmp_path)
    told = asked(capsys, "grpo", str(tmp_path / "config.json"))
    assert told["parameters"] == told["trained"] == sum(p.numel() for p in module.parameters())
    named = {n: p for n, p in module.named_parameters() if "vision" in n or "visual" in n}
    adapted = asked(capsys, "grpo", str(tmp_path / "config.json"), "--lora", "2")
    assert named and adapted["parameters"] == told["parameters"] and 0 < adapted["trained"] < told["trained"]


@pytest.mark.parametrize(
    ("asked_for", "gpus"),
    [([1, 2, 2], 5), ([0.5, 0.5], 1), ([0.7, 0.7], 2), ([0.5, 0.5, 1, 0.5], 3), ([0, 0], 0), ([0.1] * 10, 1)],
)
def test_shares_of_a_gpu_stand_beside_each_other(asked_for, gpus):
    assert gpu_needs.gpus_for(asked_for) == gpus


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "has no model_type"),
        ("{", "give a model's config.json"),
        ('{"model_type": "nothing"}', "cannot be loaded"),
        (json.dumps(SEVEN | {"num_hidden_layers": 10**8}), "num_hidden_layers is 100000000"),
    ],
)
def test_what_is_no_config_is_said_in_one_line(tmp_path, capsys, text, says):
    (tmp_path / "config.json").write_text(text)
    assert main(["doctor", str(tmp_path / "config.json")]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert says in told[-1] and not any("Traceback" in line for line in told)


def test_a_long_estimate_says_beforehand_how_long_it_takes(capsys):
    doing = doctor.Doing("step 1 of 4")
    doing.announce_rest(doctor.PATIENCE / 2, 64)
    assert capsys.readouterr().err == "" and doing.tell() == "step 1 of 4"
    doing.announce_rest(300, 64)
    assert capsys.readouterr().err == (
        "estimate  3 more steps and 64 held-out problems take about 5:00; with --quick the first step is all\n"
    )


def test_a_quick_estimate_takes_one_step(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "PARTS", {"estimate": doctor.PARTS["estimate"]})
    monkeypatch.setattr(doctor, "PATIENCE", 0.0)
    small = ["schedule.prompts=2", "sample.n=2", "--evaluate", "2"]
    quick = asked(capsys, "grpo", *small, "--quick")["estimate"]
    assert main(["doctor", "grpo", *small, "--json"]) == 0
    told = capsys.readouterr()
    assert "3 more steps and 2 held-out problems take about" in told.err
    assert quick.keys() == json.loads(told.out)["estimate"].keys() and quick["seconds"] > 0
