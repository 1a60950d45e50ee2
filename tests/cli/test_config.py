"""A configuration of verl becomes a command that `train` takes, and what it does not hold is named."""

import shlex

import palaestra as pl
import pytest
from palaestra.cli.main import main, parser_of
from palaestra.cli.train import read_settings
from palaestra.settings import overrides
from palaestra.settings.verl import flatten, translate

GRPO = """
defaults: [ppo_trainer, _self_]
algorithm:
  adv_estimator: grpo
  use_kl_in_reward: False
data:
  train_files: data/train.parquet
  val_files: data/test.parquet
  train_batch_size: 64
  max_prompt_length: 256
  max_response_length: 128
  filter_overlong_prompts: True
actor_rollout_ref:
  model:
    path: Qwen/Qwen3-0.6B
    lora_rank: 32
    lora_alpha: 64
    enable_gradient_checkpointing: False
  actor:
    optim: {lr: 3e-6, lr_warmup_steps_ratio: 0.1, weight_decay: 0.1}
    ppo_mini_batch_size: 16
    ppo_micro_batch_size_per_gpu: 4
    use_kl_loss: True
    kl_loss_coef: 0.001
    clip_ratio_low: 0.2
    clip_ratio_high: 0.28
    entropy_coeff: 0.01
    fsdp_config: {param_offload: False}
  rollout:
    name: vllm
    n: 5
    tensor_model_parallel_size: 2
    temperature: 0.9
    val_kwargs: {n: 4}
trainer:
  logger: [console, wandb]
  total_training_steps: 100
  save_freq: 20
  test_freq: 5
  n_gpus_per_node: 8
custom_reward_function: {path: score.py, name: compute_score}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verl.yaml").write_text(GRPO)
    return tmp_path


def printed(capsys, *argv):
    assert main(["config", "--from", "verl", *argv]) == 0
    out = capsys.readouterr().out
    return [x for x in out.splitlines() if not x.startswith("#")], [x for x in out.splitlines() if x.startswith("#")]


def recipe_of(command):
    settings = read_settings(parser_of("train").parse_intermixed_args(shlex.split(command)[2:]))
    return settings, overrides.recipe_of(settings)


def test_each_key_is_where_it_belongs(place, capsys):
    (command,), remarks = printed(capsys, "verl.yaml")
    settings, recipe = recipe_of(command)
    named = {
        k: getattr(settings, k) for k in ("recipe", "data", "test_data", "model", "max_tokens", "max_prompt_tokens")
    }
    assert named == {
        "recipe": "grpo", "data": "data/train.parquet", "test_data": "data/test.parquet", "model": "Qwen/Qwen3-0.6B",
        "max_tokens": 128, "max_prompt_tokens": 256,
    }  # fmt: skip
    assert (settings.lora, settings.lora_alpha, settings.lora_targets) == (32, 64, "all-linear")
    assert (settings.steps, settings.checkpoint_every, settings.evaluate_every) == (100, 20, 5)
    assert (settings.engine, settings.track, settings.reward) == ("vllm(tp=2)", ("wandb",), "score.py:compute_score")
    assert not settings.recompute and settings.overlong == ""
    learner, sample = recipe.learners["policy"], recipe.collect.links[0]
    (clip, _one), (kl, weight) = (
        (p.objective, p.weight) if hasattr(p, "weight") else (p, 1.0) for p in learner.objective.parts
    )
    assert (clip.low, clip.high, clip.reduce, kl.kind, kl.reduce, weight) == (
        0.2,
        0.28,
        "tokens",
        "k3",
        "tokens",
        0.001,
    )
    optimiser = learner.optimiser
    assert (optimiser.lr, optimiser.weight_decay, optimiser.warmup, optimiser.clip_norm) == (3e-6, 0.1, 10, 1.0)
    assert optimiser.betas == (0.9, 0.999)  # verl's default, which the file does not say
    assert (recipe.schedule.prompts, sample.n, sample.temperature) == (64, 5, 0.9)
    assert (learner.update.minibatches, learner.update.epochs) == (4, 1)
    left = "\n".join(remarks)
    assert "entropy_coeff: write a recipe with" in left and "rollout.val_kwargs.n: nothing here is known" in left
    assert "trainer.n_gpus_per_node: one GPU, or --cluster" in left and "not translated: 3" in left
    assert "where and how fast" in left and "ppo_micro_batch_size_per_gpu" in left and "param_offload" in left


def test_the_file_of_settings_says_the_same_as_the_command(place, capsys):
    (command,), _ = printed(capsys, "verl.yaml")
    lines, remarks = printed(capsys, "verl.yaml", "--toml")
    (place / "run.toml").write_text("\n".join([*lines, *remarks]))
    (place / "score.py").write_text("def compute_score(**fields): return 1.0\n")
    pl.trust("run.toml")
    settings = read_settings(parser_of("train").parse_intermixed_args(["@run.toml"]))
    assert overrides.recipe_of(settings) == recipe_of(command)[1] and settings == recipe_of(command)[0]


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (["algorithm.adv_estimator=gae", "algorithm.lam=0.95"], "ppo"),
        (["algorithm.adv_estimator=rloo"], "rloo"),
        (["algorithm.adv_estimator=remax"], "remax"),
        (["algorithm.adv_estimator=reinforce_plus_plus_baseline"], "reinforce-plus-plus"),
        (["algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.policy_loss.loss_mode=gspo"], "gspo"),
        (["algorithm.adv_estimator=grpo", "+actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov"], "clip-cov"),
        (["algorithm.adv_estimator=grpo", "algorithm.norm_adv_by_std_in_grpo=False"], "dr-grpo"),
        (["algorithm.adv_estimator=opo"], "opo"),
        (["algorithm.adv_estimator=gpg"], "gpg"),
        (["algorithm.adv_estimator=optimal_token_baseline"], "otb"),
    ],
)
def test_words_alone_are_a_configuration(words, method, capsys):
    """As they are typed behind `python -m verl.trainer.main_ppo`; each command builds its recipe."""
    (command,), _ = printed(capsys, *words, "actor_rollout_ref.actor.optim.lr=1e-6")
    settings, recipe = recipe_of(command)
    assert settings.recipe == method
    assert recipe.learners["policy"].optimiser.lr == 1e-6 and recipe.schedule.prompts == 1024
    assert "lam=0.95" in command or method != "ppo"


def test_a_key_that_refers_to_another_has_its_value():
    whole = {
        "a": {"b": {"n": "${a.c.n}", "m": "${.n}", "k": "${oc.select:a.x,7}", "z": "${x.y}"}, "c": {"n": 3}},
    }
    assert flatten(whole) == {"a.b.n": 3, "a.b.m": 3, "a.b.k": 7, "a.b.z": "${x.y}", "a.c.n": 3}


def test_unknown_keys_and_methods_are_named(tmp_path, capsys):
    made = translate(
        {"algorithm": {"adv_estimator": "rloo"}, "my": {"own": 3}, "actor_rollout_ref": {"actor": {"clip_ratio": 0.1}}}
    )
    assert made.left["my.own"] == "nothing here is known for it"
    assert made.left["actor_rollout_ref.actor.clip_ratio"] == "rloo has its own bounds"
    assert main(["config", "--from", "verl", "algorithm.adv_estimator=magic"]) == 2
    assert "algorithm.adv_estimator=magic is no method here; there are gae, grpo" in capsys.readouterr().err
    (tmp_path / "bad.yaml").write_text("a: [")
    for name, says in (("bad.yaml", "is not YAML"), ("none.yaml", "cannot read")):
        assert main(["config", "--from", "verl", str(tmp_path / name)]) == 2
        assert says in capsys.readouterr().err


def test_prompts_too_long_are_treated_as_there(capsys):
    for words, flag in (
        (["data.truncation=left"], "--overlong cut"),
        ([], "--overlong refuse"),
        (["data.filter_overlong_prompts=True"], ""),
    ):
        (command,), _ = printed(capsys, "algorithm.adv_estimator=grpo", *words)
        assert "--max-prompt-tokens 512" in command and (flag in command if flag else "--overlong" not in command)
