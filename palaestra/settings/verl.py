"""A configuration of verl as a command of Palaestra: what each of its keys is here, and which keys
nothing was made of.

Keys, defaults and what they mean are those of `verl/trainer/config/ppo_trainer.yaml` of
volcengine/verl (as flattened in `_generated_ppo_trainer.yaml`, commit 035682ed, autumn 2025). A file
mostly holds changes of it, so what a file leaves out is verl's default and not ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestra import catalogue, values
from palaestra.context import Runnable
from palaestra.errors import UserError

ACTOR, ROLLOUT, MODEL = (
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.model.",
)
DEFAULTS: Mapping[str, Any] = {
    "algorithm.adv_estimator": "gae",
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.use_kl_in_reward": False,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    f"{ACTOR}policy_loss.loss_mode": "vanilla",
    f"{ACTOR}loss_agg_mode": "token-mean",
    f"{ACTOR}clip_ratio": 0.2,
    f"{ACTOR}use_kl_loss": False,
    f"{ACTOR}kl_loss_coef": 0.001,
    f"{ACTOR}kl_loss_type": "low_var_kl",
    f"{ACTOR}ppo_mini_batch_size": 256,
    f"{ACTOR}ppo_epochs": 1,
    f"{ACTOR}grad_clip": 1.0,
    f"{ACTOR}optim.lr": 1e-6,
    f"{ACTOR}optim.weight_decay": 0.01,
    f"{ACTOR}optim.betas": [0.9, 0.999],
    f"{ROLLOUT}n": 1,
    f"{ROLLOUT}temperature": 1.0,
    f"{ROLLOUT}top_p": 1.0,
    f"{MODEL}enable_gradient_checkpointing": True,
    "data.train_batch_size": 1024,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "data.prompt_key": "prompt",
    "data.filter_overlong_prompts": False,
    "data.truncation": "error",
}
ESTIMATORS = {  # the method, and what is said with it
    "gae": ("ppo", {}),
    "grpo": ("grpo", {}),
    "rloo": ("rloo", {}),
    "remax": ("remax", {}),
    "opo": ("opo", {}),
    "gpg": ("gpg", {"count": "rewards"}),
    "reinforce_plus_plus": ("reinforce-plus-plus", {"kl": 0.0}),
    "reinforce_plus_plus_baseline": ("reinforce-plus-plus", {"kl": 0.0, "baseline": "true"}),
    "optimal_token_baseline": ("otb", {}),
    "tir_optimal_token_baseline": ("otb", {"alone": "zero"}),
}
LOSSES = {  # of `loss_mode`, with the advantage of `grpo`
    "gspo": ("gspo", {"token": "true"}),
    "geo_mean": ("gmpo", {}),
    "clip_cov": ("clip-cov", {}),
    "kl_cov": ("kl-cov", {}),
    "cispo": ("cispo", {}),
    "sapo": ("sapo", {}),
    "gpg": ("gpg", {"count": "rewards"}),
}
KINDS = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}
MEANS = {"token-mean": "tokens", "seq-mean-token-mean": "sequences"}
LOGGERS = ("wandb", "tensorboard", "mlflow", "trackio")
# keys of where and how fast, which change no number that is meant
PLACES = re.compile(
    r"(?:.*\.)?(?:fsdp_config|profiler|engine_kwargs|checkpoint|megatron|veomni|trace)\..*"
    r"|(?:global_profiler|ray_kwargs|hydra)\..*"
    r"|.*(?:micro_batch_size(?:_per_gpu)?|_token_len_per_gpu|use_dynamic_bsz|num_workers|_workers"
    r"|use_remove_padding|use_torch_compile|use_fused_kernels|use_liger|use_shm|strategy"
    r"|gpu_memory_utilization|enforce_eager|free_cache_engine|max_num_batched_tokens|max_num_seqs"
    r"|load_format|layered_summon|nccl_timeout|disable_log_stats|sequence_parallel_size"
    r"|enable_chunked_prefill|hybrid_engine|balance_batch|project_name|ray_wait_register_center_timeout)"
)
REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,\s*([^{}]*))?\}")


@dataclass
class VerlTranslation:
    """A command, and what it does not hold."""

    method: str
    words: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # keys with their values, and why
    places: list[str] = field(default_factory=list)  # keys of where and how fast

    @property
    def argv(self) -> list[str]:
        return [self.method, *self.words]


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with points between, with what `${...}` refers to in its place, where that is known."""
    leaves = dict(_leaves(config))
    for key, given in leaves.items():
        leaves[key] = _resolve(leaves, key, given)
    return leaves


def _leaves(part: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, given in part.items():
        path = f"{at}{key}"
        if isinstance(given, Mapping):
            yield from _leaves(given, f"{path}.")
        else:
            yield path, given


def _resolve(leaves: Mapping[str, Any], key: str, given: Any, depth: int = 8) -> Any:
    match = REFERENCE.fullmatch(given) if isinstance(given, str) else None
    if match is None or not depth:
        return given
    name, default = match[1], match[2]
    if name.startswith("."):
        up = len(name) - len(name.lstrip("."))
        name = ".".join([*key.split(".")[:-up], name.lstrip(".")])
    if name in leaves:
        return _resolve(leaves, name, leaves[name], depth - 1)
    known = {**DEFAULTS, "data.max_prompt_length": 512}
    return known.get(name, _plain(default) if default is not None else given)


def _plain(text: str) -> Any:
    """What YAML reads in a word."""
    import yaml

    return yaml.safe_load(text)


def translate(config: Mapping[str, Any]) -> VerlTranslation:
    """The command for a configuration, with verl's defaults where it says nothing."""
    given = flatten(config)
    return _Translator(given).result()


class _Translator:
    def __init__(self, given: dict[str, Any]):
        self.given, self.all = given, {**DEFAULTS, **given}
        self.used: set[str] = set()
        self.flags: list[str] = []
        self.arguments: dict[str, Any] = {}  # of the method's build
        self.fields: list[tuple[str, str, Any]] = []  # verl's key, path, value
        self.left: dict[str, str] = {}

    def take(self, key: str) -> Any:
        self.used.add(key)
        return self.all.get(key)

    def leave(self, key: str, why: str) -> None:
        """Names a key that is said in the file, with why nothing was made of it."""
        self.used.add(key)
        if key in self.given:
            self.left[key] = why

    def set(self, key: str, path: str, value: Any) -> None:
        self.fields.append((key, path, value))

    def flag(self, name: str, value: Any = None) -> None:
        self.flags += [f"--{name}", *([] if value is None else [text_of(value)])]

    def result(self) -> VerlTranslation:
        method = self._method()
        for part in (
            self._data,
            self._rollout,
            self._model,
            self._loss,
            self._optimiser,
            self._trainer,
            self._reward,
        ):
            part()
        takes = catalogue.find(method).build
        recipe = takes(**{k: _typed(x) for k, x in self.arguments.items()})
        words = [f"{k}={text_of(x)}" for k, x in self.arguments.items()]
        for key, path, value in self.fields:
            for full in _paths(recipe, path):
                try:
                    recipe = values.override(recipe, full, _literal(value))
                except UserError as error:
                    self.left[key] = str(error).split(";")[0]
                    continue
                words.append(f"{full}={text_of(value)}")
            if not _paths(recipe, path):
                self.leave(key, f"{method} has no field for it")
        made = VerlTranslation(method, [*self.flags, *words], self.left)
        for key, value in self.given.items():
            if key in self.used or key in self.left or key.rpartition(".")[2].startswith("_"):
                continue
            if PLACES.fullmatch(key):
                made.places.append(key)
            elif value is not None and key.partition(".")[0] != "defaults":
                made.left[key] = "nothing here is known for it"
        return made

    def _method(self) -> str:
        estimator = str(self.take("algorithm.adv_estimator")).rpartition(".")[2].lower()
        mode = str(self.take(f"{ACTOR}policy_loss.loss_mode"))
        if estimator not in ESTIMATORS:
            raise UserError(
                f"algorithm.adv_estimator={estimator} is no method here; there are {', '.join(ESTIMATORS)}"
            )
        method, arguments = ESTIMATORS[estimator]
        scaled = self.take("algorithm.norm_adv_by_std_in_grpo")
        if mode in LOSSES and (estimator == "grpo" or LOSSES[mode][0] == method):
            method, arguments = LOSSES[mode]
        elif mode != "vanilla":
            self.left[f"{ACTOR}policy_loss.loss_mode"] = (
                f"{mode} with {estimator} is no method here"
            )
        if estimator == "grpo" and not scaled:
            if method == "grpo":
                method = "dr-grpo"
            else:
                self.leave(
                    "algorithm.norm_adv_by_std_in_grpo", f"{method} divides by the deviation"
                )
        self.method, self.arguments = method, dict(arguments)
        return method

    def _data(self) -> None:
        for key, name in (("data.train_files", "data"), ("data.val_files", "test-data")):
            files = self.take(key)
            files = files if isinstance(files, list) else [files] if files else []
            if len(files) == 1:
                self.flag(name, files[0])
            elif files:
                self.leave(key, f"--{name} takes one file, folder or pattern")
        if (column := self.take("data.prompt_key")) != "prompt":
            self.flag("columns", f"{column}=prompt")
        self.set("data.train_batch_size", "schedule.prompts", self.take("data.train_batch_size"))
        self.flag("max-tokens", self.take("data.max_response_length"))
        limit, drops = (
            self.take("data.max_prompt_length"),
            self.take("data.filter_overlong_prompts"),
        )
        how = self.take("data.truncation")
        self.flag("max-prompt-tokens", limit)
        if not drops and how == "left":
            self.flag("overlong", "cut")
        elif not drops:
            self.flag("overlong", "refuse")
            if how != "error":
                self.leave("data.truncation", "a prompt loses its beginning here, or stops the run")
        if self.take("data.shuffle") is False:
            self.leave("data.shuffle", "data are drawn in a new random order in each pass")

    def _rollout(self) -> None:
        for name, path in (
            ("n", "sample.n"),
            ("temperature", "sample.temperature"),
            ("top_p", "sample.top_p"),
        ):
            self.set(f"{ROLLOUT}{name}", path, self.take(f"{ROLLOUT}{name}"))
        if (top := self.take(f"{ROLLOUT}top_k")) is not None and int(top) > 0:
            self.set(f"{ROLLOUT}top_k", "sample.top_k", top)
        engine, tp = self.take(f"{ROLLOUT}name"), self.take(f"{ROLLOUT}tensor_model_parallel_size")
        if engine == "vllm":
            self.flag("engine", f"vllm(tp={tp})" if tp and int(tp) > 1 else "vllm")
        elif engine and engine != "???":
            self.leave(f"{ROLLOUT}name", "there are vllm and the own engine")
        turns = self.take(f"{ROLLOUT}multi_turn.max_assistant_turns")
        if self.take(f"{ROLLOUT}multi_turn.enable") and turns:
            self.flag("tool-turns", turns)
        if self.all.get(f"{ROLLOUT}multi_turn.tool_config_path"):
            self.leave(
                f"{ROLLOUT}multi_turn.tool_config_path",
                "name the functions: --tools FILE.py:NAME,...",
            )

    def _model(self) -> None:
        if path := self.take(f"{MODEL}path"):
            self.flag("model", path)
        if rank := self.take(f"{MODEL}lora_rank"):
            self.flag("lora", rank)
            self.flag("lora-alpha", self.take(f"{MODEL}lora_alpha") or 16)
            targets = self.take(f"{MODEL}target_modules") or "all-linear"
            self.flag("lora-targets", ",".join(targets) if isinstance(targets, list) else targets)
        self.used |= {f"{MODEL}lora_alpha", f"{MODEL}target_modules"}
        if self.take(f"{MODEL}enable_gradient_checkpointing"):
            self.flag("recompute")
        if self.take(f"{MODEL}enable_activation_offload"):
            self.flag("activation-offloading")

    def _loss(self) -> None:
        both = self.take(f"{ACTOR}clip_ratio")
        for name in ("low", "high"):
            key = f"{ACTOR}clip_ratio_{name}"
            value = self.take(key)
            bound_key = key if value is not None or key in self.given else f"{ACTOR}clip_ratio"
            if self.method in ("ppo", "grpo", "dr-grpo", "reinforce-plus-plus", "gspo"):
                self.set(bound_key, f"objective.{name}", both if value is None else value)
            elif bound_key in self.given:
                self.leave(bound_key, f"{self.method} has its own bounds")
        mode = self.take(f"{ACTOR}loss_agg_mode")
        if self.method == "dr-grpo" and mode == "seq-mean-token-sum-norm":
            pass  # its own
        elif mode in MEANS:
            self.set(f"{ACTOR}loss_agg_mode", "objective.*reduce", MEANS[mode])
            if self.method == "dr-grpo":
                self.set(f"{ACTOR}loss_agg_mode", "objective.length", "none")
        else:
            self.leave(f"{ACTOR}loss_agg_mode", "there are tokens (token-mean) and sequences")
        self._kl()
        if self.take(f"{ACTOR}entropy_coeff"):
            self.leave(f"{ACTOR}entropy_coeff", "write a recipe with `+ C * pl.Entropy()`")
        self.leave(f"{ACTOR}clip_ratio_c", "the second clip of negative advantages is not there")
        for key, path in (("algorithm.gamma", "gamma"), ("algorithm.lam", "lam")):
            if self.method == "ppo":
                self.set(key, path, self.take(key))
            elif self.take(key) != 1.0:
                self.leave(key, f"{self.method} has none")
        critic = [k for k in self.given if k.startswith("critic.") and not PLACES.fullmatch(k)]
        for key in critic:
            self.leave(
                key,
                "values are a head of the policy, with its optimiser"
                if self.method == "ppo"
                else "no critic",
            )

    def _kl(self) -> None:
        loss, reward = self.take(f"{ACTOR}use_kl_loss"), self.take("algorithm.use_kl_in_reward")
        kind = str(self.take(f"{ACTOR}kl_loss_type")).removesuffix("+")
        coefficient = self.take(f"{ACTOR}kl_loss_coef")
        in_reward = self.take("algorithm.kl_ctrl.kl_coef")
        self.used |= {"algorithm.kl_penalty", "algorithm.kl_ctrl.type"}
        if loss and self.method == "grpo" and kind in KINDS:
            self.arguments |= {"kl": coefficient} | (
                {} if KINDS[kind] == "k3" else {"kind": KINDS[kind]}
            )
        elif loss and self.arguments.get("baseline") and KINDS.get(kind) == "k2":
            self.arguments["kl"] = coefficient
        elif loss:
            self.leave(f"{ACTOR}use_kl_loss", f"{self.method} has no KL of this kind in its loss")
            self.left.setdefault(f"{ACTOR}use_kl_loss", "")
        if (
            reward
            and self.method in ("ppo", "remax", "reinforce-plus-plus")
            and "baseline" not in self.arguments
        ):
            self.arguments["kl"] = in_reward
        elif reward:
            self.leave("algorithm.use_kl_in_reward", f"{self.method} has no KL in its reward")
        if self.all.get("algorithm.kl_ctrl.type") == "adaptive":
            self.left["algorithm.kl_ctrl.type"] = "the coefficient stays as it is"

    def _optimiser(self) -> None:
        optim, steps = f"{ACTOR}optim.", self.all.get("trainer.total_training_steps")
        rate = self.take(f"{optim}lr")
        keys = [k for k in (f"{optim}lr_scheduler_type", f"{optim}warmup_style") if self.all.get(k)]
        style = str(self.all[keys[0]]) if keys else "constant"
        self.used |= {f"{optim}lr_scheduler_type", f"{optim}warmup_style", f"{optim}min_lr_ratio"}
        least = (self.all.get(f"{optim}min_lr_ratio") or 0.0) * rate
        if style == "cosine" and steps:
            self.set(f"{optim}lr", "optimiser.lr", f"cosine({rate:g},{least:g},{steps})")
        else:
            self.set(f"{optim}lr", "optimiser.lr", rate)
            if style != "constant":
                self.left[keys[0]] = (
                    "a schedule needs trainer.total_training_steps: optimiser.lr=cosine(FROM,TO,STEPS)"
                )
        self.set(
            f"{optim}weight_decay", "optimiser.weight_decay", self.take(f"{optim}weight_decay")
        )
        self.set(f"{optim}betas", "optimiser.betas", self.take(f"{optim}betas"))
        self.set(f"{ACTOR}grad_clip", "optimiser.clip_norm", self.take(f"{ACTOR}grad_clip"))
        warm, share = (
            self.take(f"{optim}lr_warmup_steps"),
            self.take(f"{optim}lr_warmup_steps_ratio"),
        )
        if warm is not None and warm > 0:
            self.set(f"{optim}lr_warmup_steps", "optimiser.warmup", warm)
        elif share and steps:
            self.set(f"{optim}lr_warmup_steps_ratio", "optimiser.warmup", int(share * steps))
        elif share:
            self.leave(
                f"{optim}lr_warmup_steps_ratio", "a share of how many steps? optimiser.warmup=STEPS"
            )
        batch, mini = self.take("data.train_batch_size"), self.take(f"{ACTOR}ppo_mini_batch_size")
        if mini and batch % mini == 0:
            self.set(f"{ACTOR}ppo_mini_batch_size", "update.minibatches", batch // mini)
        elif mini:
            self.set(f"{ACTOR}ppo_mini_batch_size", "update.minibatches", max(1, batch // mini))
            self.left[f"{ACTOR}ppo_mini_batch_size"] = (
                f"{batch} prompts are not cut into equal parts of {mini}"
            )
        self.set(f"{ACTOR}ppo_epochs", "update.epochs", self.take(f"{ACTOR}ppo_epochs"))

    def _trainer(self) -> None:
        steps = self.take("trainer.total_training_steps")
        if steps:
            self.flag("steps", steps)
            self.used.add("trainer.total_epochs")
        else:
            self.leave(
                "trainer.total_epochs", "a pass takes records / schedule.prompts steps: --steps N"
            )
        for key, name in (
            ("save_freq", "checkpoint-every"),
            ("test_freq", "evaluate-every"),
            ("max_actor_ckpt_to_keep", "keep"),
        ):
            if (n := self.take(f"trainer.{key}")) is not None and n > 0:
                self.flag(name, n)
        loggers = self.take("trainer.logger") or []
        for name in [loggers] if isinstance(loggers, str) else loggers:
            if name in LOGGERS:
                self.flag("track", name)
            elif name != "console":
                self.left["trainer.logger"] = f"{name}: there are {', '.join(LOGGERS)}"
        for key in ("trainer.nnodes", "trainer.n_gpus_per_node"):
            if self.take(key) not in (None, 1):
                self.leave(key, "one GPU, or --cluster FILE.toml")

    def _reward(self) -> None:
        own, name = (
            self.take("custom_reward_function.path"),
            self.take("custom_reward_function.name"),
        )
        if own:
            self.flag("reward", f"{own}:{name or 'compute_score'}")
        elif self.all.get("reward_model.enable") and (path := self.take("reward_model.model.path")):
            self.flag("reward", path)
        else:
            self.used -= {"reward_model.model.path"}
            self.left["(reward)"] = (
                "verl chooses it by data_source; here --reward math, or FILE.py:NAME"
            )
        self.used |= {"reward_model.enable", "reward_model.model.path"}


def _paths(recipe: Runnable, path: str) -> list[str]:
    """The fields that are meant, in a form that names each of them alone. A star stands for all of
    the objective with this name: a sum has one in each part.
    """
    if "*" in path:
        begin, _, end = path.partition("*")
        fits = [
            p for p, _ in values.walk(recipe) if f".{begin}" in f".{p}" and p.endswith(f".{end}")
        ]
        return [_shortest(recipe, p) for p in fits]
    try:
        return [_shortest(recipe, values.find(recipe, path), path)]
    except UserError:
        return []


def _shortest(recipe: Runnable, full: str, wished: str = "") -> str:
    """A short path that leads to this field and no other."""
    names = full.split(".")
    ends = [wished, *(".".join(names[-n:]) for n in range(2, len(names)))]
    find: Callable[[str], str] = lambda end: values.find(recipe, end)
    for end in filter(None, ends):
        try:
            if find(end) == full:
                return end
        except UserError:
            continue
    return full


def text_of(value: Any) -> str:
    """As it is typed on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(text_of, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _literal(value: Any) -> Any:
    return text_of(value) if isinstance(value, list | tuple | str) else value


def _typed(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
