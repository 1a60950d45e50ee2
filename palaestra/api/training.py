"""A training run from settings to report: what `palaestra train` and `palaestra.train` do."""

from __future__ import annotations

import errno
import fcntl
import json
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Unpack

from palaestra.api.loops import run_blocking
from palaestra.api.run import Run
from palaestra.catalogue import is_own_file
from palaestra.context import Runnable
from palaestra.ends import NOT_JUDGED
from palaestra.errors import Paused, Stopped, UserError
from palaestra.ledger.digests import packages
from palaestra.run import setup
from palaestra.run.checks import check_bench
from palaestra.run.context import RunContext
from palaestra.run.evaluators import exams_of
from palaestra.run.given_rows import (
    SETTINGS,
    check_rows,
    file_name,
    found_beside,
    keep_rows,
    take_rows,
)
from palaestra.run.origin import (
    ACCEPT,
    RECORD,
    Provenance,
    check_files,
    check_parts,
    conditions,
    describe_changes,
    lasting_fields,
)
from palaestra.run.parts import stoppable
from palaestra.run.plan import Plan
from palaestra.run.programs import total
from palaestra.run.record_checks import OMISSIONS, write_omissions
from palaestra.run.stages import check_stages, describe_idle_clip, describe_lone_answers
from palaestra.run.steering import OnStep
from palaestra.run.study import Study, holds_out
from palaestra.run.trust import check_code, remember_settings
from palaestra.settings import overrides, reading
from palaestra.settings.commands import call, commands, values_given
from palaestra.settings.fields import (
    VALUE,
    DriveSettings,
    Settings,
    Use,
    flag_of,
    setting_names,
    words_of,
)
from palaestra.settings.keywords import TrainKeywords, check_keywords, flags_as_keywords
from palaestra.settings.reading import write_settings
from palaestra.store.checkpoint import disk_errors, write_atomic
from palaestra.store.folder import SUMMARY, is_step, records
from palaestra.trackers.feed import Trackers
from palaestra.trackers.registry import makers
from palaestra.types import Result
from palaestra.view.report import write_report

START = (
    "config.toml",
    RECORD,
    "metrics.jsonl",
    OMISSIONS,
)  # what a run writes before its first step
LOCK = ".lock"


def train(
    recipe: str | Runnable | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    smoke: bool = False,
    quiet: bool = False,
    accept_changes: bool = False,
    on_step: OnStep | None = None,
    **settings: Unpack[TrainKeywords],
) -> Run:
    """Trains a model, as `palaestra train` does: the same run folder, the same report.

    Args:
        recipe: an id of the catalogue, a user's FILE.py, or a recipe (`recipe("grpo")`,
            `vary(...)`); None = that of the run in `resume`, else "grpo".
        out: the run folder; None = runs/RECIPE-TASK-MODEL-sSEED.
        resume: go on with the run in this folder, with its settings where none are given.
        smoke: two tiny steps, to see that it runs.
        quiet: no progress on standard error.
        accept_changes: go on although files of the run are not what they were (data, reward,
            environment, recipe), or the recipe given here has other parts.
        on_step: called after every step with its number, from 1, and its metrics; if it returns
            True the run ends after this step, with its evaluation and its report. It may also
            return a dictionary: `stop`, a truth value; `log`, numbers by name, which are logged
            with the step; `set`, fields of the recipe by path, as numbers or schedules, from the
            next step on ({"set": {"optimiser.lr": 1e-5}}). What it sets is part of the checkpoint.
            What it raises ends the run.
        settings: those of the command line, with "_" for "-": task, data, reward, env, model, steps
            (optimiser steps), seed, max_tokens (of an answer), evaluate (held-out problems), ...;
            `tools` takes functions as well as names; `set` holds fields of the recipe by their
            paths, {"objective.high": 0.3}. `data` and `test_data` may also be rows,
            [{"prompt": ..., "answer": ...}], a `datasets.Dataset` or a data frame; they are kept in
            the run folder.

    Returns:
        The finished run.

    Raises:
        UserError: something that can be mended, in one line; Paused: every episode failed; Fault:
            infrastructure failed;
        Stopped: SIGTERM, SIGINT or SIGHUP, the run can be resumed.
    """
    check_keywords(train, TrainKeywords, settings)
    with flags_as_keywords():
        return Run(
            train_given(
                recipe,
                dict(settings),
                out=out,
                resume=resume,
                smoke=smoke,
                quiet=quiet,
                accept_changes=accept_changes,
                on_step=on_step,
            )
        )


def train_given(
    recipe: str | Runnable | None,
    settings: dict[str, Any],
    *,
    out: str | Path | None,
    resume: str | Path | None,
    smoke: bool,
    quiet: bool,
    accept_changes: bool,
    on_step: OnStep | None = None,
) -> Path:
    """The folder of the run that a program asks for; see `train`."""
    rows = take_rows(settings)
    named: dict[str, Any] = {"recipe": recipe} if isinstance(recipe, str) else {}
    value = None if isinstance(recipe, str) else recipe
    if value is not None:
        named = {"recipe": VALUE}
    given = named | reading.check_types(settings)
    if resume is None:
        chosen = overrides.merge(overrides.merge(Settings(), named), given)
    else:
        folder = Path(resume)
        stored = stored_run(folder)
        check_rows(rows, folder, accept=accept_changes)
        given |= {name: str(folder / file_name(name)) for name in rows}
        check_files(folder, stored, given, accept=accept_changes)
        if value is not None:
            chosen = over_stored_value(folder, stored, given, value, accept=accept_changes)
        else:
            chosen = overrides.merge(lasting(folder, stored, accept=accept_changes), given)
        check_kept(stored, chosen, folder)
    return work(
        chosen,
        out=out,
        resume=resume,
        smoke=smoke,
        talk=not quiet,
        recipe=value,
        rows=rows,
        on_step=on_step,
    )


def work(
    settings: Settings,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    smoke: bool = False,
    talk: bool = True,
    recipe: Runnable | None = None,
    rows: Mapping[str, str] | None = None,
    on_step: OnStep | None = None,
    split: bool = False,
) -> Path:
    """Runs settings in a folder of their own, which it returns; `recipe` stands in the place of the
    one they name, `rows` of files, by setting. A study that trains nothing measures all rows of its
    data, unless it is to `split` them as a training run does.
    """
    goes_on = resume is not None
    embedded = recipe is None and not goes_on and overrides.embeds(settings)
    settings = replace(settings, embedded=True) if embedded else settings
    remember_settings(settings)
    runnable = overrides.whole_recipe(recipe, settings)
    before = overrides.without_fields(recipe, settings)
    check_stages(runnable)
    if smoke:
        runnable = overrides.make_smallest(runnable)
        settings = overrides.merge(settings, {"steps": 2, "evaluate": 4})
    settings = setup.settings_for(runnable, settings)
    trackers = trackers_of(settings)
    given, settings = settings, replace(settings, dtype=settings.precision)  # as meant here
    places: list[Path] = []
    with (
        stoppable(lambda: after_stop(places, settings)),
        run_folder(out, resume, settings) as place,
        trackers,
    ):
        places.append(place)
        settings = replace(settings, **keep_rows(rows or {}, place))
        if isinstance(runnable, Study) and not holds_out(runnable) and not split:
            settings = replace(settings, test_data=settings.test_data or settings.data)
        origin = Provenance.of(settings, before, place)
        ctx = setup.context(settings, out=place, talk=talk, recipe=runnable, begun=goes_on)
        ctx.trackers, trackers.say = trackers, ctx.say
        ctx.resumed, ctx.on_step, ctx.elsewhere = goes_on, on_step, bool(settings.cluster)
        ctx.plan = plan_in(place, settings, runnable, ctx, origin)
        ctx = place_parts(settings, runnable, ctx)
        ctx.say(f"{setup.name_run(runnable, settings)}, seed {settings.seed}; run folder {place}")
        begun = changes(place, settings, runnable) if goes_on else []
        fresh = [] if goes_on else remarks(recipe, before, settings, runnable, given.dtype)
        judge = "" if goes_on else setup.describe_verifier(runnable, ctx.bench)
        for line in [*begun, *fresh, *([judge] if judge else [])]:
            ctx.say(line)
        result = run_to_end(runnable, ctx, settings, origin)
        write_summary(ctx, result, settings)
        return place


def run_to_end(recipe: Runnable, ctx: RunContext, settings: Settings, origin: Provenance) -> Result:
    """The result of a run. What ends it before says how to go on; what it holds is given back."""
    place = ctx.folder
    try:
        return run_blocking(check_and_run(recipe, ctx, settings, origin))
    except Stopped as stopped:
        raise Stopped(f"{stopped}; {advice(settings, place)}", stopped.signal) from None
    except Paused as paused:
        raise UserError(f"{paused}; mend it, then {advice(settings, place)}") from None
    except UserError as error:
        if (not ctx.resumed and remove_failed_start(place)) or not has_checkpoint(place):
            raise
        raise UserError(f"{error}; mend it, then {advice(settings, place, origin)}") from error
    finally:
        ctx.close()


def check_names(settings: Settings, folder: str | Path | None) -> None:
    """Raises UserError for a name that is not UTF-8, which the files of a run could not hold."""
    named = {"the run folder": (str(folder or ""),)}
    named |= {flag_of(f.name): words_of(getattr(settings, f.name)) for f in fields(settings)}
    for what, words in named.items():
        for word in words:
            if word != word.encode(errors="replace").decode():
                raise UserError(
                    f"{what}: the name {word!a} is not UTF-8, so no file of the run could hold "
                    "it; rename it, or call it by a path from its own folder"
                )


def plan_in(
    place: Path, settings: Settings, runnable: Runnable, ctx: RunContext, origin: Provenance
) -> Plan:
    """The plan of a run, with what it was made from."""
    added = packages(runnable, settings, ctx.bench, ctx.players)
    begun = plan(settings, place, {"packages": added} if added else {})
    return replace(begun, conditions=conditions(settings, runnable, origin.files))


def trackers_of(settings: Settings) -> Trackers:
    """Those that settings name, each with a limited time to begin."""
    seconds, late = settings.track_seconds, lambda line: print(line, file=sys.stderr, flush=True)
    return Trackers(makers(settings.track, seconds, late), seconds=seconds)


def remarks(
    recipe: Runnable | None,
    before: Runnable,
    settings: Settings,
    runnable: Runnable,
    dtype: str = "",
) -> list[str]:
    """What is to be said of the settings of a run that begins, see `work`.

    Args:
        before: its recipe without fields that were set.
        dtype: as the user named it; "" = the one in `settings` was chosen for the model.
    """
    rate = setup.describe_rate(recipe, settings, runnable)
    idle = describe_idle_clip(settings, before, runnable)
    numbers = "" if dtype else setup.describe_numbers(settings)
    apart = setup.describe_sampler(settings)
    lone = describe_lone_answers(runnable)
    late = setup.describe_schedules(settings, runnable)
    asked = setup.describe_instruction(settings, runnable)
    return [line for line in (rate, numbers, apart, idle, lone, late, asked) if line]


def place_parts(settings: Settings, runnable: Runnable, ctx: RunContext) -> RunContext:
    """The run's context with the processes that its settings ask for beside this one."""
    if not settings.cluster:
        return ctx
    from palaestra.scale import placement
    from palaestra.scale.cluster import Cluster

    return placement.place(Cluster.read(settings.cluster), runnable, ctx)


def after_stop(places: Sequence[Path], settings: Settings) -> str:
    """How a run goes on that was stopped at once; the folder of one that never began is gone."""
    begun = [p for p in places if (p / "config.toml").exists()]
    return advice(settings, begun[0]) if begun else "the run had not begun"


def has_checkpoint(place: Path) -> bool:
    """Whether the run in a folder, or a part of it, has something to go on from."""
    return any(place.rglob("checkpoints/step-*"))


def remove_failed_start(place: Path) -> bool:
    """Takes the record of a run away that failed before its first step and kept nothing that costs
    something, so that the mended command may use the folder. Whether it was such a run.
    """
    log = place / "metrics.jsonl"
    kept = {x.name for x in place.iterdir()} - {LOCK, *map(file_name, SETTINGS), *START}
    if kept or any(is_step(line) for line in records(log)):
        return False
    for name in START:
        (place / name).unlink(missing_ok=True)
    return True


def advice(settings: Settings, place: Path, origin: Provenance | None = None) -> str:
    """How a run goes on. `origin`: where it stopped for a mistake, which is mended in files that the
    run reads.
    """
    mended = origin is not None and any(origin.files.values())
    command = commands(settings, place)["resume_command"]
    if mended and values_given(settings):
        command = call(settings, resume=str(place), accept_changes=True)
    elif mended:
        command += f" {ACCEPT}"
    return f"go on with: {command}"


async def check_and_run(
    recipe: Runnable, ctx: RunContext, settings: Settings, origin: Provenance
) -> Result:
    """The run, once its problem is known to be one that can be learned."""
    if adapted := setup.describe_adapters(ctx.model("policy")):
        ctx.say(adapted)
    await check_bench(ctx)
    write_settings(ctx.folder, settings, recipe)
    origin.write(ctx.folder)
    write_omissions(ctx)
    return await recipe.run(ctx)


# ---- going on


def stored_run(folder: Path) -> Settings:
    """The settings of the run in a folder. Says which code they name, see `check_code`."""
    given = stored_settings(folder)
    check_code(folder / "config.toml", given)
    return overrides.merge(Settings(), given)


def lasting(folder: Path, stored: Settings, *, accept: bool) -> Settings:
    """Stored settings; with what their recipe's file says by now, where changes are accepted."""
    if not (accept and is_own_file(stored.recipe)):
        return stored
    takes = overrides.arguments(stored.recipe)
    return replace(stored, set=lasting_fields(folder, stored.set, takes))


def over_stored_value(
    folder: Path, stored: Settings, given: Mapping[str, Any], recipe: Runnable, *, accept: bool
) -> Settings:
    """Settings of a run that goes on with a recipe that is a value."""
    if stored.recipe != VALUE:
        raise UserError(
            f"--resume {folder}: its recipe is {stored.recipe}, by its name, and stays so; go on "
            "without a recipe, or with set={...} for fields of it, or start a new run from a "
            "checkpoint of this one (model=...)"
        )
    settings = overrides.merge(
        replace(stored, set={}), {k: v for k, v in given.items() if k != "set"}
    )
    check_parts(folder, overrides.without_fields(recipe, settings), accept=accept)
    last = lasting_fields(folder, stored.set, {})
    return replace(settings, set={**last, **given.get("set", {})})


def changes(folder: Path, settings: Settings, recipe: Runnable) -> list[str]:
    """What is not as it was when the run in the folder last began."""
    stored = overrides.merge(Settings(), stored_settings(folder))
    return describe_changes(folder, stored, settings, recipe, overrides.arguments(stored.recipe))


def check_kept(before: Settings, settings: Settings, folder: Path) -> None:
    """A run goes on with what its checkpoints were made with."""
    for name in setting_names(Use.KEPT):
        old, new = before.meant(name), settings.meant(name)
        if old != new:
            raise UserError(
                f"--resume {folder}: its {name} is {shown(old)} and stays so; for {shown(new)} start "
                f"a new run: palaestra train @{shlex.quote(str(folder / 'config.toml'))}"
                f"{'' if name == 'recipe' else as_flag(name, new)}"
            )


def shown(value: Any) -> Any:
    """A setting in a message, also if it is empty."""
    return "not set" if value in ("", None, ()) or value is False else value


def as_flag(name: str, value: Any) -> str:
    """A setting as it is written behind a command; "" for one that is not set."""
    if shown(value) == "not set":
        return ""
    return f" {flag_of(name)}" + ("" if value is True else f" {shlex.quote(str(value))}")


def stored_settings(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"--resume {folder}: no such folder")
    if not (folder / "config.toml").is_file():
        raise UserError(f"--resume {folder}: not a run folder, it has no config.toml")
    stored = reading.from_file(folder / "config.toml")
    return {**stored, **found_beside(stored, folder)}


# ---- the run's place


@contextmanager
def run_folder(
    asked: str | Path | None, resume: str | Path | None, settings: Settings
) -> Generator[Path]:
    """The run's folder, for this run alone. One that was made for a run that never began goes away
    with it.
    """
    check_names(settings, resume or asked)
    out, made = (Path(resume), False) if resume else new_folder(asked, settings)
    with lock_folder(out):
        begun = (out / "config.toml").exists()
        if begun and not resume:
            raise UserError(
                f"--out {out} already holds a run; go on with --resume {out}, or choose another "
                "folder"
            )
        try:
            yield out
        finally:
            if made and not (out / "config.toml").exists():
                for name in (LOCK, *map(file_name, SETTINGS)):
                    (out / name).unlink(missing_ok=True)
                with suppress(OSError):  # there is something in it
                    out.rmdir()


def new_folder(asked: str | Path | None, settings: Settings) -> tuple[Path, bool]:
    """The folder asked for, or a free one with the run's name; and whether it was made here."""
    name = (
        "-".join(_word(x) for x in (settings.recipe, settings.problem, settings.model))
        + f"-s{settings.seed}"
    )
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
        raise UserError(
            f"cannot create the run folder {out}: {error.strerror}; choose another with --out"
        ) from None


@contextmanager
def lock_folder(out: Path) -> Generator[None]:
    """Holds a folder as long as the process lives. A file system without locks lets
    everybody in.
    """
    with disk_errors(f"writing {out / LOCK}"):
        file = (out / LOCK).open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"a run is under way in {out}; wait for its end, or choose another folder with "
                "--out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                raise
        yield


def _word(x: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in Path(x).stem).strip("-").lower()


def plan(settings: Settings, out: Path, more: Mapping[str, Any]) -> Plan:
    """How the run is driven; `more` stands in its summary as it is."""
    names = {"recipe": settings.recipe, "task": settings.problem, "model": settings.model}
    return Plan(
        **{f.name: getattr(settings, f.name) for f in fields(DriveSettings)},
        exams=exams_of(settings),
        labels=names | commands(settings, out) | dict(more),
    )


def write_summary(ctx: RunContext, result: Result, settings: Settings) -> None:
    """summary.json, the curve and the report."""
    summary = {
        **ctx.plan.labels,
        "seed": settings.seed,
        **result.metrics,
        **({"spent": spent} if (spent := total(ctx)) else {}),
        **({} if ctx.plan.answers else NOT_JUDGED),
        "artifacts": dict(result.artifacts),
        "out": str(ctx.folder),
    }
    write_atomic(ctx.folder / SUMMARY, json.dumps(summary, indent=1))
    write_report(ctx.folder)
    ctx.trackers.finish(summary, (ctx.folder / "report.html", ctx.folder / "curve.png"))
