"""Tasks of EleutherAI's lm-evaluation-harness (github.com/EleutherAI/lm-evaluation-harness), measured by
its own code on the model of a run: `lm-eval:gsm8k`, `lm-eval:mine(folder='tasks',shots=5,chat=True)`.

The library makes the prompts and the metrics; here tokens are generated, and given ones are scored. What is
too long loses its beginning, as in the library's own models. Nothing that a model writes is run: a task that
would is refused by the library.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from palaestra.ends import HeldOut
from palaestra.errors import PalaestraError, UserError
from palaestra.models.score import score_pairs
from palaestra.stats import proportion
from palaestra.store.checkpoint import jsonable, make_folder, write_atomic
from palaestra.tasks.spec import parse_alone
from palaestra.types import Sampling, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.run.context import RunContext

PREFIX = "lm-eval:"
FOLDER = "lm-eval"  # of a run, with every item that was asked
GENERATED = 256  # tokens of an answer where a task does not say


def is_harness(name: str) -> bool:
    """Whether a name is one of the harness's tasks."""
    return name.startswith(PREFIX)


def harness_exam(name: str, n: int) -> HarnessExam:
    """The exam that `lm-eval:NAME(setting=value, ...)` names. Raises UserError for settings that it has not."""
    part = parse_alone(name.removeprefix(PREFIX), f"{PREFIX}NAME or {PREFIX}NAME(shots=5)")
    known = [f.name for f in fields(HarnessExam) if f.name not in ("task", "n")]
    if strange := [k for k in part.settings if k not in known]:
        raise UserError(f"{name}: no setting {strange[0]!r}; there is {', '.join(known)}")
    return HarnessExam(part.name, n, **part.settings)


@stage
class HarnessExam:
    """A task, or a group of tasks, of lm-evaluation-harness.

    Args:
        task: as `lm_eval --tasks` names it.
        n: items of each task, at most.
        folder: with tasks of your own (YAML), which `lm_eval --include_path` takes.
        shots: worked examples before each question; -1 = as the task says.
        chat: whether the prompt goes through the model's chat template.
    """

    task: str
    n: int = 256
    folder: str = ""
    shots: int = -1
    chat: bool = False

    def __post_init__(self) -> None:
        need_at_least(self, n=1, shots=-1)

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        """The metrics of each task and group as the library names them, such as "acc"; a filter is part of
        a name: "exact_match/strict-match". Their items go to lm-eval/TASK-step-N.jsonl of the
        run's folder.

        Raises:
            UserError: no such library, task or weights.
        """
        try:
            library = import_module("lm_eval.evaluator")
            manager = import_module("lm_eval.tasks").TaskManager(include_path=self.folder or None)
        except ImportError as error:
            raise UserError(
                f"{PREFIX}{self.task} needs lm_eval ({error}): pip install 'palaestra[harness]'"
            ) from None
        if self.task not in manager.all_tasks:
            raise UserError(
                f"lm_eval has no task {self.task!r}; `lm_eval ls tasks` prints them, and folder=DIR adds yours"
            )
        model = harness_model(ctx)
        try:
            results = await asyncio.to_thread(self._measure, library, manager, model, ctx.seed)
        except PalaestraError:
            raise
        except Exception as error:  # of the library, its data or the network
            what = " ".join(str(error).split())[:300]
            raise UserError(f"lm_eval, {self.task}: {type(error).__name__}: {what}") from error
        self._keep(ctx, results["samples"])
        return metrics_of(results)

    def _measure(self, library: Any, manager: Any, model: Any, seed: int) -> Mapping[str, Any]:
        """As `lm_eval.simple_evaluate`, without the global random streams and the look at the machine."""
        loaded = manager.load([self.task])
        for task in loaded["tasks"].values():
            own = task.get_config("num_fewshot")
            if own != 0:  # which a task may insist on
                task.set_config(
                    key="num_fewshot", value=(own or 0) if self.shots < 0 else self.shots
                )
            task.set_fewshot_seed(seed=seed)
        return library.evaluate(
            lm=model,
            task_dict=loaded,
            limit=self.n,
            bootstrap_iters=0,
            apply_chat_template=self.chat,
        )

    def _keep(self, ctx: RunContext, samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Writes every item with its prompt, the model's answers and what they were graded."""
        if ctx.out is None:
            return
        folder = make_folder(ctx.out / FOLDER)
        for name, items in samples.items():
            lines = [json.dumps(jsonable(dict(x)), ensure_ascii=False, default=str) for x in items]
            write_atomic(
                folder / f"{name}-step-{ctx.measured_at}.jsonl", "".join(f"{x}\n" for x in lines)
            )


def metrics_of(results: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a result of the library, those of the only task without its name. What is the share of
    items that are right has its interval.
    """
    tables = {**results["results"], **results.get("groups", {})}
    read = {
        name: {
            label_of(metric): measured(float(value), metric, results["samples"].get(name, ()))
            for metric, value in table.items()
            if isinstance(value, int | float) and "," in metric
        }
        for name, table in tables.items()
    }
    return next(iter(read.values())) if len(read) == 1 else read


def label_of(metric: str) -> str:
    """A metric with its filter, where it is not the usual one: "acc,none" is "acc"."""
    return metric.removesuffix(",none").replace(",", "/")


def measured(value: float, metric: str, items: Sequence[Mapping[str, Any]]) -> Any:
    """A metric as it is, or as an accuracy where it is the mean of zeros and ones."""
    name, _, kind = metric.partition(",")
    each = [x.get(name) for x in items if x.get("filter", kind) == kind]
    right = [float(x) for x in each if isinstance(x, int | float) and x in (0, 1)]
    if not right or len(right) < len(each) or abs(sum(right) / len(right) - value) > 1e-9:
        return value
    return HeldOut(of="accuracy", interval=proportion(int(sum(right)), len(right))).json()


# ---- a model as the library asks it


def harness_model(ctx: RunContext, name: str = "policy") -> Any:
    """A model of the run as one of the library's. Raises UserError where its weights are elsewhere."""
    if name not in ctx.models:
        raise UserError(
            f"{PREFIX}... scores given tokens, which needs the weights of the model, not an endpoint"
        )
    base = import_module("lm_eval.api.model").TemplateLM
    return type("RunModel", (HarnessModel, base), {})(ctx, name, asyncio.get_running_loop())


class HarnessModel:
    """What the library's TemplateLM leaves to its models. It is called from another thread than the loop
    of the run, whose engine generates.
    """

    def __init__(self, ctx: RunContext, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.ctx, self.name, self.loop, self.asked = ctx, name, loop, 0
        self.model = ctx.model(name)
        self.tokenizer = self.model.tokenizer

    @property
    def eot_token_id(self) -> int:
        known = self.tokenizer.eos_token_id
        return known if isinstance(known, int) else min(self.model.eos)

    @property
    def prefix_token_id(self) -> int:
        known = self.tokenizer.bos_token_id
        return known if isinstance(known, int) else self.eot_token_id

    @property
    def tokenizer_name(self) -> str:
        return self.model.name

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **options: Any
    ) -> list[int]:
        return list(self.tokenizer.encode(string, add_special_tokens=bool(add_special_tokens)))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        text = self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
        assert isinstance(text, str)
        return text

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **options: Any
    ) -> list[tuple[float, bool]]:
        """(log p of the continuation in nats, whether greedy decoding would write it), one a request."""
        room = self.model.context
        pairs = [
            ((context or [self.prefix_token_id])[-max(1, room - len(target)) :], target)
            for _, context, target in requests
        ]
        return [
            (float(x_K2[:, 0].sum()), bool(x_K2[:, 1].all())) if len(x_K2) else (0.0, True)
            for x_K2 in score_pairs(self.model, pairs, logp_and_greedy)
        ]

    def loglikelihood_rolling(self, requests: Sequence[Any], **options: Any) -> list[float]:
        """log p of whole texts, in windows that overlap by one token."""
        utils = import_module("lm_eval.utils")
        windows = [
            [
                (None, list(context), list(target))
                for context, target in map(
                    utils.make_disjoint_window,
                    utils.get_rolling_token_windows(
                        token_list=self.tok_encode(text),
                        prefix_token=self.prefix_token_id,
                        max_seq_len=self.model.context - 1,
                        context_len=1,
                    ),
                )
            ]
            for (text,) in (r.args for r in requests)
        ]
        scores = iter(self._loglikelihood_tokens([w for each in windows for w in each]))
        return [sum(next(scores)[0] for _ in each) for each in windows]

    def generate_until(self, requests: Sequence[Any], **options: Any) -> list[str]:
        """What the engine writes after each context, up to the first of the task's stop strings."""

        async def every() -> list[str]:
            return list(await asyncio.gather(*(self._generate(*r.args) for r in requests)))

        return asyncio.run_coroutine_threadsafe(every(), self.loop).result()

    async def _generate(self, context: str, given: Mapping[str, Any]) -> str:
        until = given.get("until") or ()
        stops = (until,) if isinstance(until, str) else tuple(until)
        tokens = min(int(given.get("max_gen_toks", GENERATED)), self.model.context - 1)
        warm = float(given.get("temperature", 1.0)) if given.get("do_sample") else 0.0
        sampling = Sampling(
            temperature=warm,
            top_k=int(given.get("top_k", 0)) if warm else 0,
            top_p=float(given.get("top_p", 1.0)) if warm else 1.0,
            max_tokens=tokens,
            stop=stops,
        )
        prompt = self.tok_encode(context)[-(self.model.context - tokens) :]
        self.asked += 1
        key = (self.ctx.seed, PREFIX, self.asked)
        written = await self.ctx.engine(self.name).generate(
            tuple(prompt) or (self.prefix_token_id,), sampling, key
        )
        text = written.text
        for stop in filter(None, stops):
            text = text.split(stop)[0]
        return text


def logp_and_greedy(logits_NV: Tensor, token_N: Tensor) -> Tensor:
    """[N, 2] log p of each token in nats, and whether it is the likeliest one (1 or 0)."""
    logp_NV = torch.log_softmax(logits_NV, -1)
    greedy_N = (logp_NV.argmax(-1) == token_N).to(logp_NV.dtype)
    return torch.stack([logp_NV.gather(1, token_N[:, None])[:, 0], greedy_N], 1)
