"""Questions to models, methods and runs: what `palaestra eval`, `explain` and `compare` answer, as
values.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Unpack

from palaestra import values
from palaestra.api.ended import EVALUATION_ALONE, compare_runs, pairs_of
from palaestra.api.loops import run_blocking
from palaestra.api.run import Run
from palaestra.context import Runnable
from palaestra.ends import SHARES, End, end_of
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain as explain_groups
from palaestra.explanation.trajectories import Trajectory, groups_from
from palaestra.ledger.cells import CellOutcome, CellRequest, run_all
from palaestra.ledger.digests import check_importable, packages
from palaestra.ledger.measures import Cell
from palaestra.method import Recipe
from palaestra.run import setup
from palaestra.run.checks import say_notes
from palaestra.run.context import RunContext
from palaestra.run.evaluation import evaluate as evaluate_context
from palaestra.run.evaluators import OWN_EVALUATION, attempts_kept
from palaestra.run.given_rows import keep_rows, take_rows
from palaestra.run.inspect_exam import library_exam
from palaestra.run.origin import Provenance, digests, files_of_settings
from palaestra.run.record_checks import check_records
from palaestra.run.served import context
from palaestra.run.stages import check_stages
from palaestra.run.trust import check_code
from palaestra.settings import overrides, reading
from palaestra.settings.fields import VALUE, Settings, Use, setting_names
from palaestra.settings.keywords import (
    CompareKeywords,
    EvaluateKeywords,
    check_keywords,
    flags_as_keywords,
)
from palaestra.stats import (
    mean_interval,
    paired_difference,
    share_difference,
    share_of_runs,
)
from palaestra.store.checkpoint import checkpoint_of, jsonable, make_folder, write_atomic
from palaestra.store.folder import SUMMARY, is_run, read_summary
from palaestra.terminal.progress import Headway


def evaluate(
    model: str | Path | Run = "tiny",
    *,
    n: int = 512,
    k: int = 8,
    temperature: float = 1.0,
    key_env: str = "",
    out: str | Path | None = None,
    talk: bool = False,
    **settings: Unpack[EvaluateKeywords],
) -> dict[str, Any]:
    """How good a model is on held-out problems, as `palaestra eval --json` says it.

    Args:
        model: a name, a folder, or a run: its trained model, on its problem where no other is
            given.
        n: held-out problems.
        k: samples a problem, for pass@k and maj@k; 1 = greedy only.
        temperature: of the samples.
        key_env: with engine="openai:URL" the environment variable that holds its API key.
        out: a folder for the attempts, which `palaestra view` and `open(out).attempts()` show.
        talk: progress and notes on standard error.
        settings: those of `train`: task, data, reward, env, max_tokens, seed, ...

    Returns:
        {"greedy": {"mean", "low", "high", "n"}, "pass@1": ..., "maj@8": ..., "domains": ...,
        "errors": ..., "temperature": of the samples}; of task="lm-eval:NAME" or "inspect:NAME" {"metrics": {"acc": ...}}

    Raises:
        UserError: something that can be mended; Fault: infrastructure failed.
    """
    check_keywords(evaluate, EvaluateKeywords, settings)
    with flags_as_keywords():
        return evaluate_given(
            model,
            dict(settings),
            n=n,
            k=k,
            temperature=temperature,
            key_env=key_env,
            out=out,
            talk=talk,
        )


def evaluate_given(
    model: str | Path | Run,
    settings: dict[str, Any],
    *,
    n: int,
    k: int,
    temperature: float,
    key_env: str,
    talk: bool,
    out: str | Path | None = None,
) -> dict[str, Any]:
    """See `evaluate`. `settings` may also be all those of a run."""
    folder = attempts_folder(Path(out)) if out else None
    rows = take_rows(settings)
    given: dict[str, Any] = reading.check_types(settings)
    if isinstance(model, Run):
        kept = {k: v for k, v in model.config.items() if k in setting_names(Use.MEASURED)}
        problem = setting_names(Use.PROBLEM)
        asked = any(k in given for k in problem)
        last = {k: v for k, v in kept.items() if not (asked and k in problem)}
        check_code(model.folder / "config.toml", last)
        given = last | given
        trained = (model.summary.get("artifacts") or {}).get("policy")
        name = str(trained or model.config.get("model", "tiny"))
    else:
        name = str(model)
    chosen = overrides.merge(Settings(), {**given, "model": name})
    asked, exam = chosen.task, library_exam(chosen.task, n)
    chosen = replace(chosen, task="") if exam else chosen
    with tempfile.TemporaryDirectory() as place:
        chosen = replace(chosen, **keep_rows(rows, Path(place)))
        ctx = context(chosen, key_env, talk=talk, out=folder)
        try:
            say_notes(ctx)
            if not exam:
                tell_rows(ctx, name, chosen)
            with attempts_kept(ctx, OWN_EVALUATION, 0):
                measure = exam(ctx) if exam else evaluate_context(ctx, n, k, temperature)
                evaluation = run_blocking(measure)
        finally:
            ctx.close()
    if exam:
        named = {"task": asked.partition("(")[0], "model": chosen.model, "seed": chosen.seed}
        return {**named, "n": n, "metrics": evaluation}
    result = {
        "task": Path(chosen.problem).name if rows else chosen.problem,
        "model": chosen.model,
        "seed": chosen.seed,
        "n": evaluation["greedy"]["n"],
        "k": k,
        "temperature": temperature,
        **evaluation,
        **{f"chat/{k}": v for c in ctx.clients.values() for k, v in c.meter.numbers().items()},
    }
    if folder:
        describe_attempts(folder, chosen, result)
    return result


def tell_rows(ctx: RunContext, name: str, chosen: Settings) -> None:
    """Says which rows are measured where training may have seen them. Raises UserError for rows that
    cannot be measured.
    """
    if trained_on := remark_on_trained(name, chosen):
        ctx.say(f"note: {trained_on}")
    if setup.measures_its_data(chosen):
        ctx.say(
            f"note: the rows of {chosen.test_data} are measured as they are: none is held out "
            "from a model that was trained on them"
        )
    if not chosen.engine.startswith("openai:"):  # whose context nobody here knows
        check_records(ctx, (), golds=True, splits=("test",))


def remark_on_trained(model: str, asked: Settings) -> str:
    """A line where the rows that an evaluation holds out are among those that the run of a model
    was trained on, by the content of their files; "" where nothing says so.
    """
    place = Path(model).expanduser().resolve()
    saved = checkpoint_of(place) if place.is_dir() else None
    files = kept_files(saved.parent.parent) if saved else {}
    trained, held_out = (set(files.get(n, {}).values()) for n in ("data", "test_data"))
    data, test_data = (set(digests(x).values()) for x in (asked.data, asked.test_data))
    if trained and test_data == trained:
        return f"{model} was trained on {asked.test_data}, so its rows are not held out from it"
    if held_out and not test_data and data == trained:
        return (
            f"{model} was trained on all of {asked.data}, so what is held out of it here is no new "
            f"problem to it; what its run held out: --test-data {' '.join(files['test_data'])}"
        )
    return ""


def kept_files(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The files that a run was made from, by setting, with their digests; nothing where it keeps
    none.
    """
    try:
        provenance = Provenance.read(folder)
    except UserError:  # which the run itself tells when it goes on
        provenance = None
    return provenance.files if provenance else {}


def attempts_folder(folder: Path) -> Path:
    """A folder for an evaluation of its own, which an earlier one may have had. Raises UserError
    for that of a training run.
    """
    known = read_summary(folder)
    if is_run(folder) and EVALUATION_ALONE not in known:
        raise UserError(
            f"--out {folder} is the folder of a run, whose own evaluations stay as they are; give "
            "this one a folder of its own"
        )
    for file in folder.glob("evaluations/*/step-*.parquet"):
        file.unlink()
    return make_folder(folder)


def describe_attempts(folder: Path, settings: Settings, result: Mapping[str, Any]) -> None:
    """Beside the attempts: what was measured, how, and what came of it."""
    options = {k: v for k, v in asdict(settings).items() if v not in (None, "", (), {})}
    measured = {k: v for k, v in options.items() if k in (*setting_names(Use.MEASURED), "model")}
    write_atomic(folder / "config.toml", values.to_toml(measured))
    Provenance(files=files_of_settings(settings, folder), fields={}, parts={}).write(folder)
    summary = {k: result[k] for k in ("task", "model", "seed")} | {"steps": 0}
    summary[EVALUATION_ALONE] = result
    line = {"step": 0, "evaluation": result["greedy"]}
    write_atomic(folder / "metrics.jsonl", json.dumps(jsonable(line)) + "\n")
    write_atomic(folder / SUMMARY, json.dumps(jsonable(summary), indent=1) + "\n")


def explain(
    method: str | Recipe,
    *,
    rewards: Sequence[Sequence[float]] | None = None,
    lengths: Sequence[Sequence[int]] | None = None,
    groups: Sequence[Sequence[Trajectory]] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """What a method does to given rewards, as `palaestra explain --json` says it. No model is
    needed.

    Args:
        method: an id of the catalogue, a user's FILE.py, or a recipe.
        rewards: groups of rewards, [[1, 0, 0, 0]].
        lengths: their lengths in tokens.
        groups: instead of both, groups of trajectories with more fields: {"reward": 1, "length": 3,
            "entropy": [...], ...}.
        settings: arguments of the method's `build`, or fields by their paths.

    Returns:
        {"advantages": one a trajectory, or one a token, "token_weights":
        [group][trajectory][token], what multiplies the gradient of each token's log-probability
        (None = something is missing, see the notes), "notes": lines of text}

    Raises:
        UserError: the method has no advantages, or its credit reads what is not given.
    """
    if rewards is None and groups is None:
        raise UserError(
            "explain takes groups of rewards, rewards=[[1, 0, 0, 0]], or of trajectories with more "
            'fields, groups=[[{"reward": 1, "length": 3}, {"reward": 0, "length": 5}]]'
        )
    with flags_as_keywords():
        recipe = overrides.build(method, settings) if isinstance(method, str) else method
        if not isinstance(recipe, Recipe):
            raise UserError(f"{method!r} is not an RL recipe: it has no advantages to explain")
        return explain_groups(recipe, groups_from(rewards, lengths, groups))


def say_nothing(text: str) -> None:
    """Says nothing."""


def compare(
    *methods: str | Run,
    recipes: Mapping[str, Runnable] | None = None,
    seeds: int = 3,
    tokens: int = 200_000,
    out: str | Path = "runs/compare",
    jobs: int = 0,
    quiet: bool = False,
    **settings: Unpack[CompareKeywords],
) -> dict[str, Any]:
    """Several methods on the same problem, seeds and budget, as `palaestra compare --json` says it;
    or runs that are over.

    Args:
        methods: ids of the catalogue or FILE.py, which are trained; or runs, or their folders, also
            those of `evaluate`.
        recipes: further methods to train, each a value under a name of your own.
        seeds: of each method: 0, 1, ...
        tokens: sampled policy tokens that every run may spend.
        out: a folder for the runs; what is there already is not run again.
        jobs: runs at a time; 0 = one a core or GPU.
        quiet: no progress on standard error.
        settings: those of `train` that name the problem: task, data (a file), model, evaluate, ...

    Returns:
        {"methods": {name: {"before", "after", "values", ...}}, "differences": {"b - a": interval,
        paired by seed}}, of all pairs where there are at most five. Of runs that are over the names
        are folders, with the "method" of each, or the model of an evaluation, which has no "before";
        their "differences" are "paired" "by problem" where they had the same held-out problems, else
        "" with "why" not; "sampled" has those of pass@1 where two evaluations have k attempts, and
        "notes" are lines of text.

    Raises:
        UserError: fewer than two, or methods and runs mixed, or a recipe with parts that only this
            program has; Fault: a cell failed, the others are kept.
    """
    check_keywords(compare, CompareKeywords, settings)
    with flags_as_keywords():
        return compare_given(
            methods,
            recipes or {},
            dict(settings),
            seeds=seeds,
            tokens=tokens,
            out=out,
            jobs=jobs,
            quiet=quiet,
        )


def compare_given(
    methods: Sequence[str | Run],
    given: Mapping[str, Runnable],
    settings: Mapping[str, Any],
    *,
    seeds: int,
    tokens: int,
    out: str | Path,
    jobs: int,
    quiet: bool,
) -> dict[str, Any]:
    """See `compare`."""
    if len(methods) + len(given) < 2:
        raise UserError("compare needs at least two methods, or two runs")
    runs = [r for m in methods if (r := run_of(m)) is not None]
    if runs:
        return compare_runs(runs, whole=len(runs) == len(methods) + len(given))
    if others := [m for m in methods if not isinstance(m, str)]:
        raise UserError(
            f"compare takes names of methods, FILE.py or runs, not a {type(others[0]).__name__}; "
            'give a recipe a name: recipes={"mine": recipe}'
        )
    if twice := repeated([*map(str, methods), *given]):
        raise UserError(
            f"two methods are called {twice!r}; give one of them as a recipe under another name: "
            'recipes={"mine": recipe}'
        )
    checked = reading.check_types(settings)
    named = {str(m): str(m) for m in methods} | dict.fromkeys(given, VALUE)
    read = {m: overrides.merge(Settings(), {**checked, "recipe": r}) for m, r in named.items()}
    for name, recipe in given.items():
        check_importable(name, overrides.adjust_recipe(recipe, read[name]))
    with Headway("compare", say_nothing if quiet else None) as headway:
        return compare_cells(
            read,
            recipes=given,
            seeds=seeds,
            tokens=tokens,
            out=make_folder(Path(out)),
            jobs=jobs,
            headway=headway,
        )[0]


def repeated(names: Iterable[str]) -> str:
    """The first of some names that is there twice, or ""."""
    return next((n for n, times in Counter(names).items() if times > 1), "")


def run_of(method: str | Path | Run) -> Run | None:
    """The run that is meant, itself or by its folder; None = no run."""
    if isinstance(method, Run):
        return method
    is_path = isinstance(method, str | Path)
    return Run(method) if is_path and (Path(method) / "config.toml").is_file() else None


def compare_cells(
    read: Mapping[str, Settings],
    *,
    seeds: int,
    tokens: int,
    out: Path,
    jobs: int,
    headway: Headway,
    recipes: Mapping[str, Runnable] | None = None,
) -> tuple[dict[str, Any], dict[str, list[Cell]]]:
    """Trains every method with every seed; the comparison, and the cells of each method. `recipes`:
    those that are values.
    """
    requests = {
        (m, seed): CellRequest(
            label=f"{m}, seed {seed}",
            settings=replace(settings, seed=seed),
            tokens=tokens,
            recipe=(recipes or {}).get(m),
        )
        for seed in range(seeds)
        for m, settings in read.items()
    }
    for method in read:
        try:
            check_stages(requests[method, 0].runnable())
        except UserError as error:
            raise UserError(f"{method}: {error}") from error
    outcomes = dict(
        zip(requests, run_all(list(requests.values()), out, headway, jobs), strict=True)
    )
    cells = {m: [cell_of(outcomes[m, seed]) for seed in range(seeds)] for m in read}
    first = next(iter(read))
    result = {
        "task": read[first].problem,
        "model": read[first].model,
        "budget_tokens": tokens,
        "seeds": seeds,
        "methods": {m: summary_of(record) | origin(requests[m, 0]) for m, record in cells.items()},
        "differences": {f"{b} - {a}": difference_of(cells[a], cells[b]) for a, b in pairs_of(read)},
    }
    return result, cells


def cell_of(outcome: CellOutcome) -> Cell:
    """A finished cell. Raises Fault for one that failed."""
    if outcome.cell is None:
        raise Fault(
            "cell",
            f"{outcome.request.label} {outcome.error}; the others are kept, run it again to go on",
        )
    return outcome.cell


def origin(request: CellRequest) -> dict[str, Any]:
    """What other packages made a method's numbers, where there are any."""
    settings, recipe = request.settings, request.runnable()
    bench, players = setup.bench_of(
        settings,
        judged=setup.brings_reward(recipe),
        instruction=setup.instruction_of(recipe),
        recipe=recipe,
    )
    added = packages(recipe, settings, bench, players)
    return {"packages": added} if added else {}


def ends_of(cells: Sequence[Cell], end: End) -> tuple[list[float], int]:
    """What the cells' evaluations found, and of how many problems these are shares; 0 = they are
    means.
    """
    end_values = [e for c in cells if (e := end_of(c.summary, end))]
    shares = all(e["of"] in SHARES for e in end_values)
    return [e["mean"] for e in end_values], min(
        (e["n"] for e in end_values), default=0
    ) if shares else 0


def kind_of(cells: Sequence[Cell], end: End) -> str:
    """What the cells' evaluations are of."""
    return next((e["of"] for c in cells if (e := end_of(c.summary, end))), "accuracy")


def over_cells(cells: Sequence[Cell], end: End) -> dict[str, Any]:
    """The mean over cells with its interval; nothing where nothing was measured."""
    values, n = ends_of(cells, end)
    if not values:
        return {}
    interval = share_of_runs(values, n) if n else mean_interval(values)
    return {"of": kind_of(cells, end), **interval.json()}


def difference_of(first: Sequence[Cell], other: Sequence[Cell]) -> dict[str, Any]:
    """What another method's cells ended with above those of a first one, paired by seed."""
    (a, n), (b, m) = ends_of(first, "after"), ends_of(other, "after")
    shares = bool(n and m)
    difference = share_difference(a, b, min(n, m)) if shares else paired_difference(a, b)
    return {"of": kind_of(first, "after"), **difference.json()}


def summary_of(cells: Sequence[Cell]) -> dict[str, Any]:
    """The numbers of a method's cells."""
    return {
        "problems": min((e["n"] for c in cells if (e := end_of(c.summary, "after"))), default=0),
        "before": over_cells(cells, "before"),
        "after": over_cells(cells, "after"),
        "values": ends_of(cells, "after")[0],
        "sampled_tokens": [c.summary["sampled_tokens"] for c in cells],
        "seconds": [c.summary["wall_seconds"] for c in cells],
        "folders": [str(c.folder) for c in cells],
    }
