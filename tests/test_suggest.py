"""What is written here in place of other trainers' settings is a flag of `train`, or a setting of its methods."""

import re

import pytest
from palaestra import values
from palaestra.cli.main import main
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.suggest import ELSEWHERE, METHODS_ELSEWHERE, from_elsewhere


def commands():
    return [
        c for text in dict.fromkeys(ELSEWHERE.values()) for c in re.findall(r"--[a-z-]+|[a-z]+\.[a-z_]+=[^ ,;]+", text)
    ]


def test_what_is_written_here_exists(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    written = commands()
    assert len(written) > 20
    assert not [c for c in written if c.startswith("--") and c not in flags]


def build(method):
    name, *words = method.partition(",")[0].split()
    return overrides.recipe_of(Settings(recipe=name, set=values.overrides(words)))


def test_settings_that_are_written_here_are_ones():
    written = [c for c in commands() if "=" in c]
    assert len(written) > 10
    for setting in written:
        assert build(f"grpo {setting}") is not None, setting


def test_methods_that_are_written_here_are_ones():
    for method in set(METHODS_ELSEWHERE.values()):
        assert build(method) is not None, method


@pytest.mark.parametrize(
    ("word", "value", "answer"),
    [
        ("num_generations=4", "", "; write sample.n=4"),
        ("--num-generations", "4", "; write sample.n=4"),
        ("actor_rollout_ref.rollout.n", "4", "; write sample.n=4"),
        ("actor_rollout_ref.actor.optim.lr", "1e-6", "; write optimiser.lr=1e-6"),
        ("data.train_files", "my.parquet", "; write --data my.parquet"),
        ("lora_r", 32, "; write --lora 32"),
        ("use_peft", "True", "; write --lora 16"),  # the value is not one of what is written here
        ("max_steps", "all", "; write --steps 50"),
        ("resume_from_checkpoint", "True", "; write --resume DIR"),
        ("beta", "0.1", "; write kl=0.04 (grpo), beta=0.1 (dpo)"),
        ("nothing_such", "4", ""),
    ],
)
def test_the_value_of_the_user_stands_in_what_is_suggested(word, value, answer):
    """A learning rate of 1e-6 is not answered with one of 1e-4."""
    assert from_elsewhere(word, value=value) == answer


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["grpo", "--num_generations", "4"], "write sample.n=4"),
        (["grpo", "actor_rollout_ref.actor.optim.lr=1e-6"], "write optimiser.lr=1e-6"),
        (["grpo", "algorithm.adv_estimator=rloo"], "another method in place of this one"),
        (["verl.yaml"], "settings files are TOML here"),
        (["@verl.yaml"], "settings files are TOML here"),
        (["own.toml"], "@own.toml"),
    ],
)
def test_commands_of_other_trainers_are_answered(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verl.yaml").write_text("actor_rollout_ref:\n  rollout: {n: 4}\n")
    assert main(["train", *words]) == 2
    assert says in capsys.readouterr().err
