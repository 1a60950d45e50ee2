"""`palaestra train`: the main job."""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import json
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from palaestra import values
from palaestra.errors import Paused, Stopped, UserError
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.run.plan import Plan
from palaestra.store.checkpoint import disk, write_atomic
from palaestra.trackers.feed import Trackers
from palaestra.trackers.registry import makers
from palaestra.types import Result

SMOKE = {"schedule.prompts": 2, "collect.links.0.n": 2, "pool.size": 2, "n": 2, "tasks": 4}
LOCK = ".lock"
KEPT = ("recipe", "model", "dtype", "lora", "seed")  # what the weights and the state of a checkpoint are made for


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    settings = read_settings(arguments)
    recipe = setup.recipe_of(settings)
    if arguments.smoke:
        recipe = smoke(recipe)
        settings = settings.merged({"steps": 2, "evaluate": 4})
    trackers = Trackers(makers(settings.track), seconds=settings.track_seconds)
    with run_folder(arguments, settings) as out, trackers:
        ctx = setup.context(settings, out=out, talk=True)
        ctx.trackers, trackers.say = trackers, ctx.say
        ctx.resumed = bool(arguments.resume)
        ctx.plan = plan(settings, recipe, out)
        ctx.say(
            f"{settings.recipe} on {settings.problem} with {settings.model}, seed {settings.seed}; run folder {out}"
        )
        try:
            result = asyncio.run(checked(recipe, ctx, settings))
        except Stopped as stopped:
            ctx.say(f"{stopped}; go on with: {resume_command(out)}")
            sys.exit(128 + stopped.signal)
        except Paused as paused:
            raise UserError(f"{paused}; mend it, then go on with: {resume_command(out)}") from None
        finally:
            ctx.close()
        return finish(ctx, result, settings, arguments.json)


async def checked(recipe: Any, ctx: RunContext, settings: setup.Settings) -> Result:
    await ctx.check_bench()
    write_settings(ctx.folder, settings, recipe)
    return await recipe.run(ctx)


def read_settings(arguments: argparse.Namespace) -> setup.Settings:
    """Settings from the resumed folder, files, flags and words, the later over the earlier."""
    words = [w for w in arguments.words if not w.startswith("@")]
    recipes = [w for w in words if "=" not in w]
    if len(recipes) > 1:
        raise UserError(f"one recipe at a time, not {' and '.join(recipes)}; `palaestra compare` runs several")
    named = {"recipe": recipes[0]} if recipes else {}
    before = settings = setup.Settings(**named)  # so that the fields a file sets are those of the recipe asked for
    resumed = getattr(arguments, "resume", None)
    if resumed:
        before = settings = settings.merged(stored(Path(resumed)))
    for word in arguments.words:
        if word.startswith("@"):
            settings = settings.merged(setup.from_file(Path(word[1:])))
    given = {f.name: v for f in fields(settings) if (v := getattr(arguments, f.name, None)) is not None}
    overrides = values.overrides([w for w in words if "=" in w])
    settings = settings.merged(named | given | ({"set": overrides} if overrides else {}))
    if resumed:
        check_kept(before, settings, Path(resumed))
    return settings


def check_kept(before: setup.Settings, settings: setup.Settings, folder: Path) -> None:
    """A run goes on with what its checkpoints were made with."""
    for name in KEPT:
        old, new = getattr(before, name), getattr(settings, name)
        if old != new:
            fresh = f"palaestra train @{shlex.quote(str(folder / 'config.toml'))}"
            raise UserError(f"--resume {folder}: its {name} is {old} and stays so; for {new} start a new run: {fresh}")


def stored(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"--resume {folder}: no such folder")
    if not (folder / "config.toml").is_file():
        raise UserError(f"--resume {folder}: not a run folder, it has no config.toml")
    return setup.from_file(folder / "config.toml")


# ---- the run's place


@contextmanager
def run_folder(arguments: argparse.Namespace, settings: setup.Settings) -> Generator[Path]:
    """The run's folder, for this run alone. One that was made for a run that never began goes away with it."""
    out, made = (Path(arguments.resume), False) if arguments.resume else new_folder(arguments.out, settings)
    with alone(out):
        begun = (out / "config.toml").exists()
        if begun and not arguments.resume:
            raise UserError(f"--out {out} already holds a run; go on with --resume {out}, or choose another folder")
        try:
            yield out
        finally:
            if made and not (out / "config.toml").exists():
                (out / LOCK).unlink()
                with suppress(OSError):  # there is something in it
                    out.rmdir()


def new_folder(asked: str | None, settings: setup.Settings) -> tuple[Path, bool]:
    """The folder asked for, or a free one with the run's name; and whether it was made here."""
    name = "-".join(_word(x) for x in (settings.recipe, settings.problem, settings.model)) + f"-s{settings.seed}"
    out, n = Path(asked or Path("runs") / name), 1
    made = not (asked and out.is_dir())
    try:
        while True:
            try:
                out.mkdir(parents=True, exist_ok=bool(asked))
                return out, made
            except FileExistsError:  # also where another run that starts just now was faster
                if asked:
                    raise
                n += 1
                out = Path("runs") / f"{name}-{n}"
    except OSError as error:
        raise UserError(f"cannot create the run folder {out}: {error.strerror}; choose another with --out") from None


@contextmanager
def alone(out: Path) -> Generator[None]:
    """Holds a folder as long as the process lives. A file system without locks lets everybody in."""
    with disk(f"writing {out / LOCK}"):
        file = (out / LOCK).open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"a run is under way in {out}; wait for its end, or choose another folder with --out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                raise
        yield


def _word(x: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in Path(x).stem).strip("-").lower()


def write_settings(out: Path, settings: setup.Settings, recipe: Any) -> None:
    """The run's complete configuration."""
    whole = {k: v for k, v in asdict(settings).items() if v not in (None, "", ())}
    if not settings.track:
        del whole["track_seconds"]
    leaves, takes = values.flatten(recipe), setup.arguments(settings.recipe)
    # a leaf stands under its full path only: what a resumed run sets by a shorter one must come after it
    others = {k: v for k, v in settings.set.items() if k in takes or values.find(recipe, k) not in leaves}
    whole["set"] = {**others, **leaves}
    write_atomic(out / "config.toml", values.to_toml(whole))


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
    return setup.in_parts(runnable, smallest)


def smallest(recipe: Any) -> Any:
    known = values.flatten(recipe)
    for path, given in SMOKE.items():
        recipe = values.override(recipe, path, given) if path in known else recipe
    return recipe


def finish(ctx: RunContext, result: Result, settings: setup.Settings, quiet: bool) -> dict[str, Any]:
    """Summary, curve and report; what a person reads at the end."""
    from palaestra.view.report import write_report

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
    ctx.trackers.finish(summary, (out / "report.html", out / "curve.png"))
    if not quiet:
        print(farewell(summary, settings, out))
    return summary


def farewell(summary: dict[str, Any], settings: setup.Settings, out: Path) -> str:
    lines = [""]
    measured = {n: found for n in ("before", "after") if (found := summary.get(f"accuracy_{n}"))}
    share = all(0 <= found["mean"] <= 1 for found in measured.values())
    for name, found in measured.items():
        what, shown = ("accuracy", percent(found)) if share else ("reward", f"{found['mean']:8.3f}")
        lines.append(f"held-out {what:<8} {name:<7} {shown}  n = {found['n']}")
    if summary.get("caveat"):
        lines.append(f"note     {summary['caveat']}")
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
