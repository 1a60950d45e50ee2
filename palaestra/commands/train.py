"""`palaestra train`: the main job."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import signal
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from palaestra.pipeline import Pipeline
from palaestra.runtime import config, setup
from palaestra.runtime.checkpoint import write_atomic
from palaestra.runtime.context import Context
from palaestra.runtime.plan import Plan
from palaestra.runtime.train import Stopped
from palaestra.types import Result, UserError

SMOKE = {"schedule.prompts": 2, "collect.links.0.n": 2, "pool.size": 2, "n": 2, "tasks": 4}


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    settings = read_settings(arguments)
    out = folder(arguments, settings)
    recipe = setup.recipe_of(settings)
    if arguments.smoke:
        recipe = smoke(recipe)
        settings = settings.merged({"steps": 2, "evaluate": 4})
    ctx = setup.context(settings, out=out, talk=True)
    ctx.resumed = bool(arguments.resume)
    ctx.plan = plan(settings, recipe, out)
    prepare_folder(out, settings, recipe)
    ctx.say(f"{settings.recipe} on {settings.problem} with {settings.model}, seed {settings.seed}; run folder {out}")
    try:
        result = asyncio.run(checked(recipe, ctx))
    except Stopped as stopped:
        ctx.say(f"{stopped}; go on with: {resume_command(out)}")
        sys.exit(128 + signal.SIGTERM)
    finally:
        ctx.close()
    return finish(ctx, result, settings, arguments.json)


async def checked(recipe: Any, ctx: Any) -> Result:
    await ctx.check_bench()
    return await recipe.run(ctx)


def read_settings(arguments: argparse.Namespace) -> setup.Settings:
    """Settings from the resumed folder, files, flags and words, the later over the earlier."""
    settings = setup.Settings()
    if getattr(arguments, "resume", None):
        settings = settings.merged(stored(Path(arguments.resume)))
    for word in arguments.words:
        if word.startswith("@"):
            settings = settings.merged(setup.from_file(Path(word[1:])))
    given = {f.name: v for f in fields(settings) if (v := getattr(arguments, f.name, None)) is not None}
    words = [w for w in arguments.words if not w.startswith("@")]
    recipes = [w for w in words if "=" not in w]
    if len(recipes) > 1:
        raise UserError(f"one recipe at a time, not {' and '.join(recipes)}; `palaestra compare` runs several")
    if recipes:
        given["recipe"] = recipes[0]
    overrides = config.overrides([w for w in words if "=" in w])
    return settings.merged(given | ({"set": overrides} if overrides else {}))


def stored(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"--resume {folder}: no such folder")
    if not (folder / "config.toml").is_file():
        raise UserError(f"--resume {folder}: not a run folder, it has no config.toml")
    return setup.from_file(folder / "config.toml")


def folder(arguments: argparse.Namespace, settings: setup.Settings) -> Path:
    if arguments.resume:
        return Path(arguments.resume)
    if arguments.out:
        out = Path(arguments.out)
        if (out / "config.toml").exists():
            raise UserError(f"--out {out} already holds a run; go on with --resume {out}, or choose another folder")
        return out
    name = "-".join(_word(x) for x in (settings.recipe, settings.problem, settings.model)) + f"-s{settings.seed}"
    out, n = Path("runs") / name, 1
    while out.exists():
        n += 1
        out = Path("runs") / f"{name}-{n}"
    return out


def _word(x: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in Path(x).stem).strip("-").lower()


def prepare_folder(out: Path, settings: setup.Settings, recipe: Any) -> None:
    """Creates the run folder with its complete configuration."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the run folder {out}: {error.strerror}; choose another with --out") from None
    whole = {k: v for k, v in asdict(settings).items() if v not in (None, "")}
    leaves, takes = config.flatten(recipe), setup.arguments(settings.recipe)
    # a leaf stands under its full path only: what a resumed run sets by a shorter one must come after it
    others = {k: v for k, v in settings.set.items() if k in takes or config.find(recipe, k) not in leaves}
    whole["set"] = {**others, **leaves}
    write_atomic(out / "config.toml", config.to_toml(whole))


def plan(settings: setup.Settings, recipe: Any, out: Path) -> Plan:
    names = {"recipe": settings.recipe, "task": settings.problem, "model": settings.model}
    commands = {
        "command": f"palaestra train @{shlex.quote(str(out / 'config.toml'))}",
        "resume_command": resume_command(out),
    }
    return Plan(
        steps=settings.steps,
        evaluate=settings.evaluate,
        evaluate_every=settings.evaluate_every,
        checkpoint_every=settings.checkpoint_every,
        labels=names | commands,
    )


def resume_command(out: Path) -> str:
    return f"palaestra train --resume {shlex.quote(str(out))}"


def smoke(runnable: Any) -> Any:
    """A recipe at its smallest: two prompts, two samples; of a pipeline, every part."""
    if isinstance(runnable, Pipeline):
        return replace(runnable, parts={n: replace(p, runnable=smoke(p.runnable)) for n, p in runnable.parts.items()})
    known = config.flatten(runnable)
    for path, given in SMOKE.items():
        runnable = config.override(runnable, path, given) if path in known else runnable
    return runnable


def finish(ctx: Context, result: Result, settings: setup.Settings, quiet: bool) -> dict[str, Any]:
    """Summary, curve and report; what a person reads at the end."""
    from palaestra.runtime.report import write_report

    out = ctx.folder
    summary = {
        **ctx.plan.labels,
        "seed": settings.seed,
        **result.metrics,
        "artifacts": dict(result.artifacts),
        "out": str(out),
    }
    write_atomic(out / "summary.json", json.dumps(summary, indent=1))
    write_report(out)
    if not quiet:
        print(farewell(summary, settings, out))
    return summary


def farewell(summary: dict[str, Any], settings: setup.Settings, out: Path) -> str:
    lines = [""]
    for name, label in (("accuracy_before", "before"), ("accuracy_after", "after")):
        if summary.get(name):
            lines.append(f"held-out accuracy {label:<7} {percent(summary[name])}  n = {summary[name]['n']}")
    if summary.get("caveat"):
        lines.append(f"held out {summary['caveat']}")
    model = summary["artifacts"].get("policy")
    if model:
        lines += ["", f"model    {model}", f"         transformers.AutoModelForCausalLM.from_pretrained({model!r})"]
    lines += [
        f"report   {out / 'report.html'}",
        f"curve    {out / 'curve.png'}",
        f"repeat   {summary['command']}",
        f"resume   {summary['resume_command']} --steps N",
        f"inspect  {setup.eval_command(asdict(settings), model or settings.model)}",
    ]
    return "\n".join(lines)


def percent(found: dict[str, Any]) -> str:
    """An interval for people; one value alone has no bounds."""
    bounds = "" if found["low"] is None else f"  (95%: {100 * found['low']:.1f} to {100 * found['high']:.1f})"
    return f"{100 * found['mean']:5.1f}%{bounds}"
