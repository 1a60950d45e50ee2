"""What a user probably meant: the end of a message about a name that is not known."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping

OTHER_METHOD = "another method in place of this one (docs/beside.md has the names)"
# settings of other trainers (TRL, verl, OpenRLHF), and what is written here
ELSEWHERE: Mapping[str, str] = {
    "lr": "optimiser.lr=1e-4",
    "learning_rate": "optimiser.lr=1e-4",
    "actor_learning_rate": "optimiser.lr=1e-4",
    "warmup_steps": "optimiser.warmup=10",
    "lr_warmup_steps": "optimiser.warmup=10",
    "weight_decay": "optimiser.weight_decay=0.01",
    "max_grad_norm": "optimiser.clip_norm=1.0",
    "prompts": "schedule.prompts=16",
    "batch_size": "schedule.prompts=16",
    "train_batch_size": "schedule.prompts=16",
    "rollout_batch_size": "schedule.prompts=16",
    "per_device_train_batch_size": (
        "update.budget=2048, in tokens; prompts a step: schedule.prompts=16"
    ),
    "gradient_accumulation_steps": (
        "update.budget=2048, in tokens of a pass; prompts a step: schedule.prompts=16"
    ),
    "samples": "sample.n=8",
    "num_samples": "sample.n=8",
    "num_generations": "sample.n=8",
    "group_size": "sample.n=8",
    "n_samples_per_prompt": "sample.n=8",
    "rollout_n": "sample.n=8",
    "rollout.n": "sample.n=8",
    "rollout.name": "--engine vllm",
    "temperature": "sample.temperature=0.7",
    "top_p": "sample.top_p=0.9",
    "top_k": "sample.top_k=50",
    "beta": "kl=0.04 (grpo), beta=0.1 (dpo)",
    "kl_coef": "kl=0.04 (grpo)",
    "init_kl_coef": "kl=0.04 (grpo)",
    "kl_loss_coef": "kl=0.04 (grpo)",
    "epsilon": "objective.low=0.2 objective.high=0.2",
    "clip_ratio": "objective.low=0.2 objective.high=0.2",
    "cliprange": "objective.low=0.2 objective.high=0.2",
    "eps_clip": "objective.low=0.2 objective.high=0.2",
    "epsilon_high": "objective.high=0.28",
    "num_iterations": "update.epochs=2",
    "ppo_epochs": "update.epochs=2",
    "max_steps": "--steps 50",
    "epochs": "--steps 50 (there are no epochs; a pass is records / schedule.prompts steps)",
    "num_train_epochs": "--steps 50 (there are no epochs; a pass is records / schedule.prompts steps)",
    "total_epochs": "--steps 50 (there are no epochs; a pass is records / schedule.prompts steps)",
    "bf16": "--dtype bfloat16",
    "mixed_precision": "--dtype bfloat16",
    "gradient_checkpointing": "--recompute",
    "enable_activation_offload": "--activation-offloading",
    "enable_activation_offloading": "--activation-offloading",
    "data_seed": "--data-seed 1",
    "data.seed": "--data-seed 1",
    "use_peft": "--lora 16",
    "lora_r": "--lora 16",
    "lora_rank": "--lora 16",
    "lora_target_modules": "--lora-targets q_proj,v_proj",
    "target_modules": "--lora-targets q_proj,v_proj",
    "merge_adapters": "--merged",
    "max_prompt_length": "--max-prompt-tokens 512",
    "eval_steps": "--evaluate-every 50",
    "test_freq": "--evaluate-every 50",
    "save_steps": "--checkpoint-every 50",
    "save_freq": "--checkpoint-every 50",
    "save_total_limit": "--keep 2",
    "load_best_model_at_end": "--keep-best accuracy",
    "resume_from_checkpoint": "--resume DIR",
    "tensor_parallel_size": "--engine 'vllm(tp=2)'",
    "max_turns": "--tool-turns 8",
    "max_completion_length": "--max-tokens 256",
    "max_new_tokens": "--max-tokens 256",
    "max_response_length": "--max-tokens 256",
    "generate_max_len": "--max-tokens 256",
    "reward_funcs": "--reward FILE.py:NAME",
    "reward_model": "--reward DIR",
    "reward_function": "--reward FILE.py:NAME",
    "eval_dataset": "--test-data FILE",
    "val_files": "--test-data FILE",
    "train_files": "--data FILE",
    "train_file": "--data FILE",
    "dataset_name": "--data FILE",
    "train_dataset": "--data FILE",
    "dataset": "--data FILE",
    "output_dir": "--out DIR",
    "report_to": "--track wandb",
    "load_in_8bit": "--load-in-4bit, with --lora 16",
    "optimizer": "--optim adamw_8bit (AdamW is the default)",
    "use_vllm": "--engine vllm",
    "vllm_tensor_parallel_size": "--engine 'vllm(tp=2)'",
    "vllm_enable_sleep_mode": "--engine 'vllm(sleep=True)'",
    "model_name_or_path": "--model DIR",
    "model.path": "--model DIR",
    "pretrain": "--model DIR",
    "adv_estimator": f"{OTHER_METHOD}, such as rloo",
    "advantage_estimator": f"{OTHER_METHOD}, such as rloo",
    "loss_type": f"{OTHER_METHOD}, such as dapo; of dpo it is loss=hinge",
    "loss_mode": f"{OTHER_METHOD}, such as gspo",
    "loss_agg_mode": "objective.reduce=tokens (token-mean)",
    "scale_rewards": f"{OTHER_METHOD}: dr-grpo does not scale them",
    "reward_weights": "--reward 'FILE.py:ONE+FILE.py:OTHER*0.5'",
}
# methods of other trainers, in names that no recipe has here, and what is written instead
METHODS_ELSEWHERE: Mapping[str, str] = {
    "reinforce++": "reinforce-plus-plus",
    "reinforce_plus_plus": "reinforce-plus-plus",
    "reinforce_plus_plus_baseline": "reinforce-plus-plus baseline=true",
    "gspo_token": "gspo token=true",
    "luspo": "gspo objective.reduce=constant objective.length=1",
    "rpo": "dpo pairs=data sft=1.0",
    "cdpo": "dpo pairs=data smoothing=0.1",
    "robust": "dpo pairs=data smoothing=0.1 robust=true",
    "robust_dpo": "dpo pairs=data smoothing=0.1 robust=true",
    "sigmoid": "dpo pairs=data",
    "sigmoid_norm": "dpo pairs=data normalise=true",
    "aot_unpaired": "aot paired=false",
    "hinge": "dpo pairs=data loss=hinge",
    "exo_pair": "dpo pairs=data loss=exo_pair smoothing=0.001",
    "nca_pair": "dpo pairs=data loss=nca_pair",
    "sppo_hard": "dpo pairs=data loss=sppo_hard",
    "apo_zero": "dpo pairs=data loss=apo_zero",
    "apo_down": "dpo pairs=data loss=apo_down",
    "discopop": "dpo pairs=data loss=discopop beta=0.05",
    "alphapo": "simpo alpha=0.25",
    "geo_mean": "gmpo",
    "clip_cov": "clip-cov",
    "kl_cov": "kl-cov",
    "optimal_token_baseline": "otb",
    "tir_optimal_token_baseline": "otb alone=zero",
    "bco_pair": "mio pairs=data, whose loss is half of it",
    "apo_zero_unpaired": "kto objective.point=zero",
}


# one setting or flag with a number, or with a file, which a user's own can replace
SINGLE = re.compile(r"(--[a-z-]+ |[a-z_.]+=)([\d.e-]+|FILE|DIR)")


def from_elsewhere(word: str, table: Mapping[str, str] = ELSEWHERE, value: object = "") -> str:
    """ "; write ...", if the word is one of another trainer, in any spelling: as a flag, a setting,
    or the end of a path.

    Args:
        value: what the user gave the word. It stands in the answer where that is one setting that
            takes a value of this kind.
    """
    path, _, own = word.partition("=")
    names = path.lstrip("-").replace("-", "_").lower().split(".")
    known = next((n for k in (2, 1) if (n := ".".join(names[-k:])) in table), None)
    if known is None:
        return ""
    single, given = SINGLE.fullmatch(table[known]), str(value) or own
    has_value = given.lower() not in ("", "true", "false", "none")
    if single and has_value and (is_number(given) or not is_number(single[2])):
        return f"; write {single[1]}{given}"
    return f"; write {table[known]}"


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def suggestion(
    word: str, known: Iterable[str], spell: Callable[[str], object] = str, cutoff: float = 0.6
) -> str:
    """ "; did you mean x or y?", or nothing where no known name is near.

    Args:
        spell: how a near name is written.
        cutoff: how like it must be, in [0, 1], as difflib measures.
    """
    near = close_names(word, known, cutoff)
    return (
        f"; did you mean {' or '.join(dict.fromkeys(str(spell(n)) for n in near))}?" if near else ""
    )


def close_names(word: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """At most two known names that are near, the nearest first; see `suggestion`."""
    return difflib.get_close_matches(word, [str(k) for k in known], n=2, cutoff=cutoff)


def suggestion_or_all(word: str, known: Iterable[str]) -> str:
    """A suggestion, or else all the names that there are."""
    names = [str(k) for k in known]
    return suggestion(word, names) or f"; there are {', '.join(names)}"


def no_setting(owner: str, key: str, known: Iterable[str]) -> str:
    """What is said of a setting that its owner does not have, with the one that was probably meant, or
    else all that there are.

    Args:
        owner: what has settings, as a message names it: "engine 'own'".
        known: the settings that it has.
    """
    names = list(known)
    hint = suggestion_or_all(key, names) if names else "; it has none"
    return f"{owner} has no setting {key!r}{hint}"
