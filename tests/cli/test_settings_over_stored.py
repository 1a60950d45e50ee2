"""Settings over those of an earlier run: the later word wins, whatever the run's file holds."""

import json
from pathlib import Path

import pytest
from palaestra import values
from palaestra.cli import train
from palaestra.cli.flags import train as train_flags
from palaestra.cli.main import main
from palaestra.models import precision
from palaestra.models.load import load, save
from palaestra.run import setup
from palaestra.settings import overrides
from palaestra.settings.fields import FULL_LR, LORA_LR
from palaestra.settings.flags import FlagParser
from palaestra.settings.reading import write_settings


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Writes the file of a run as `palaestra train` does: runs("a", "grpo", "kl=0.04")."""
    monkeypatch.chdir(tmp_path)

    def make(name, *argv):
        settings = read(*argv)
        (tmp_path / name).mkdir()
        write_settings(tmp_path / name, settings, overrides.recipe_of(settings))
        return f"@{name}/config.toml"

    return make


def read(*argv):
    parser = FlagParser()
    train_flags(parser)
    return train.read_settings(parser.parse_intermixed_args(argv))


def leaf(path, *argv):
    return dict(values.walk(overrides.recipe_of(read(*argv))))[path]


def rate(*argv, learner="policy"):
    return leaf(f"learners.{learner}.optimiser.lr", *argv)


def test_a_file_alone_is_the_run_it_was_written_by(runs):
    argv = ("confucius3", "--tis", "2", "objective.high=0.3", "optimiser.lr=cosine(3e-4, 0, 50)", "--model", "smollm2")
    again = runs("b", runs("a", *argv))
    for file in ("@a/config.toml", again):
        assert values.digest(overrides.recipe_of(read(file))) == values.digest(overrides.recipe_of(read(*argv)))


def test_an_argument_of_build_over_a_stored_one(runs):
    path = "learners.policy.objective.parts.1.weight"
    file = runs("a", "grpo", "kl=0.04", "objective.high=0.25")
    assert leaf(path, file) == 0.04 and leaf(path, file, "kl=0.1") == 0.1
    assert leaf("learners.policy.objective.parts.0.high", file, "kl=0.1") == 0.25  # what was overridden stays
    assert leaf("learners.policy.objective.high", runs("b", "grpo"), "objective.high=0.3") == 0.3
    assert leaf("learners.policy.needs", "@b/config.toml", "kl=0.1") == (("ref", "logp"),)


def test_a_schedule_over_a_stored_schedule(runs):
    file = runs("a", "grpo", "optimiser.lr=cosine(3e-4,0,50)")
    assert rate(file).at(0) == 3e-4
    for path in ("optimiser.lr", "learners.policy.optimiser.lr", "policy.optimiser.lr"):
        assert rate(file, f"{path}=linear(1e-5,0,10)").at(5) == pytest.approx(5e-6)
        assert rate(file, f"{path}=1e-5") == 1e-5
        assert rate(runs(path, file, f"{path}=1e-5"), f"{path}=2e-5") == 2e-5
    assert rate(file, "optimiser.lr.start=1e-3").at(0) == 1e-3
    assert rate(file, "optimiser.lr=linear(1,0,10)", "optimiser.lr.start=2").at(0) == 2


def test_tis_over_a_run_without_it(runs):
    file = runs("a", "grpo", "objective.high=0.25")
    assert leaf("learners.policy.needs", file, "--tis", "2") == (("policy", "logp"),)
    assert leaf("learners.policy.objective.objective.high", file, "--tis", "2") == 0.25
    assert leaf("learners.policy.objective.cap", runs("b", file, "--tis", "2"), "--tis", "4") == 4.0


def test_a_recipe_over_the_file_of_another(runs):
    own = leaf("learners.policy.objective.high", "confucius3")
    assert leaf("learners.policy.objective.high", runs("a", "grpo"), "confucius3") == own != 0.2
    assert leaf("learners.policy.objective.high", runs("b", "grpo", "objective.high=0.25"), "confucius3") == 0.25
    Path("mine.toml").write_text("[set]\n'learners.policy.objective.high' = 0.2\n")
    assert leaf("learners.policy.objective.high", "@mine.toml", "confucius3") == 0.2


def test_the_rate_is_the_model_s_unless_it_is_given(runs):
    model = ("--model", "smollm2")
    assert rate("grpo") == 1e-4 and rate("grpo", *model) == FULL_LR
    assert rate("grpo", *model, "--lora", "8") == LORA_LR
    assert rate(runs("a", "grpo"), *model) == FULL_LR
    assert rate(runs("b", "grpo", "optimiser.lr=5e-4"), *model) == 5e-4
    one = ("rl-tango", *model, "verifier.optimiser.lr=1e-3")
    assert rate(*one, learner="verifier") == 1e-3 and rate(*one) == FULL_LR


def test_a_small_model_keeps_the_rate_of_the_recipe_whatever_it_is_called(runs, tmp_path, monkeypatch):
    """A checkpoint of the embedded model, its adapters alone, and a file that is too large; what resuming needs lies
    beside the weights and is none of them."""
    tiny = load("tiny")
    save(tiny, tmp_path / "mine")
    (tmp_path / "mine" / "state.safetensors").write_bytes(b"0" * (precision.SMALL * precision.BYTES))
    adapters = tmp_path / "adapters" / "adapter"
    adapters.mkdir(parents=True)
    (adapters / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "mine")}))
    for name in ("mine", "adapters"):
        assert rate("grpo", "--model", str(tmp_path / name)) == 1e-4
        assert rate("grpo", "--model", str(tmp_path / name), "--lora", "4") == 1e-4
    monkeypatch.setattr(precision, "SMALL", tiny.n_parameters // 2)
    for name in ("mine", "adapters", "nowhere"):
        assert rate("grpo", "--model", str(tmp_path / name)) == FULL_LR
    assert rate("grpo", "--model", "tiny") == 1e-4


def test_a_run_keeps_the_rate_that_it_was_begun_with(runs, tmp_path):
    """Also where the model asks for another one by now."""
    save(load("tiny"), tmp_path / "mine")
    file = runs("a", "grpo", "--model", str(tmp_path / "mine"), f"optimiser.lr={FULL_LR}")
    assert rate(file) == FULL_LR


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--model", "smollm2"],
            "learning rate 1e-05, for a model of 10 million weights or more; the recipe's own is ",
        ),
        (["--model", "smollm2", "optimiser.lr=2e-5"], ""),
        (["--model", "smollm2", "--lora", "8"], ""),
        ([], ""),
    ],
)
def test_a_rate_that_is_not_the_recipes_own_is_said(words, says):
    """With adapters the model asks for the rate that grpo has anyway."""
    settings = read("grpo", *words)
    told = setup.describe_rate(None, settings, overrides.recipe_of(settings))
    assert told == (f"{says}0.0001; another one: optimiser.lr=..." if says else "")


def test_the_rate_reaches_every_part_of_a_pipeline():
    for name in ("sft", "rl"):
        path = f"parts.{name}.runnable.learners.policy.optimiser.lr"
        assert leaf(path, "sft-grpo", "--model", "smollm2") == FULL_LR != leaf(path, "sft-grpo")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--dtype", "bfloat16"], "dtype is float32"),
        (["--lora", "8"], "lora is 0"),
        (["--model", "smollm2"], "model is tiny"),
        (["--seed", "1"], "seed is 0"),
        (["rloo"], "recipe is grpo"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--data", "nowhere.jsonl", "--steps", "3"], "nowhere.jsonl"),
    ],
)
def test_a_mistaken_resume_leaves_the_folder_as_it_was(runs, flags, says, capsys):
    runs("a", "grpo", "--evaluate", "2", "--steps", "1", "schedule.prompts=2", "collect.links.0.n=2")
    before = Path("a/config.toml").read_bytes()
    assert main(["train", "--resume", "a", *flags]) == 2
    assert says in capsys.readouterr().err
    assert Path("a/config.toml").read_bytes() == before
