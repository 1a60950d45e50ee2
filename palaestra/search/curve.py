"""How accuracy grows with the tokens that a search may generate: several strategies with equal budgets
on the same held-out problems. Best of n and the majority vote always stand beside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from palaestra.api.loops import run_blocking
from palaestra.context import RewardFn
from palaestra.errors import UserError
from palaestra.run.context import RunContext
from palaestra.run.evaluation import chosen_tasks
from palaestra.run.given_rows import settings_of_call
from palaestra.search.answers import (
    Line,
    default_budget,
    held_out_of,
    kept_answers,
    label_of,
    meter,
    record_of,
    search_all,
    search_context,
    settings_of_search,
    summarise,
)
from palaestra.search.named import file_name, scorer_by_name, strategy_by_name
from palaestra.search.problem import Strategy
from palaestra.search.tokens import MeteredEngine
from palaestra.settings.fields import Settings
from palaestra.settings.keywords import EvaluateKeywords, check_keywords
from palaestra.stats import paired_difference, paired_share_difference
from palaestra.store.checkpoint import jsonable, make_folder, write_atomic
from palaestra.types import value_class
from palaestra.view.drawing import DASHES, INK, MARKERS, PALETTE, drawing_style, percent, save

BESIDE = ("best-of-n", "majority")
SHARES = (8, 4, 2, 1)  # the budgets are the greatest one over these
CURVE, PICTURE = "curve.json", "curve.png"


@value_class
class Contender:
    """A strategy that is measured, by the name it is given, with what scores its answers; None = the
    verifier with the gold answer.
    """

    name: str
    strategy: Strategy
    scorer: RewardFn | None
    reward_model: str


def accuracy_curve(
    model: str | Path = "tiny",
    *,
    strategies: Sequence[str | Strategy] = (),
    budget: int = 0,
    reward_model: str = "",
    n: int = 128,
    out: str | Path | None = None,
    talk: bool = False,
    **settings: Unpack[EvaluateKeywords],
) -> dict[str, Any]:
    """Accuracy against generated tokens, as `palaestra eval --with ... --json` says it.

    Args:
        model: a name, or a folder.
        strategies: as of `run`; best of n and the majority vote are always added.
        budget: the greatest one: generated tokens for each problem; an eighth, a quarter and half of
            it are measured too. 0 = 8 answers of the greatest length.
        reward_model: what scores answers without the gold answer, see `run`; best of n as an oracle
            is then drawn too, as what choosing can reach at most.
        n: held-out problems.
        out: a folder for curve.json, curve.png and all answers; finished parts are not made again.
        talk: notes on standard error.
        settings: those of `evaluate`: task, data, reward, env, max_tokens, seed, ...

    Returns:
        {"curves": {name: {"oracle", "points": [{"budget", "tokens", "mean", "low", "high", ...}],
        "above majority": interval of the difference at the greatest budget, paired by problem}}, ...}

    Raises:
        UserError: something that can be mended; Fault: infrastructure failed.
    """
    check_keywords(accuracy_curve, EvaluateKeywords, settings)
    with settings_of_call(model, settings, out) as chosen:
        return curve_given(chosen, strategies, budget, reward_model, n, out, talk=talk)


def curve_given(
    settings: Settings,
    strategies: Sequence[str | Strategy],
    budget: int,
    reward_model: str,
    n: int,
    out: str | Path | None,
    *,
    talk: bool = True,
) -> dict[str, Any]:
    """See `accuracy_curve`."""
    contenders = contenders_of(strategies, reward_model)
    settings = settings_of_search(settings)
    ctx = search_context(settings, talk=talk)
    try:
        engine = meter(ctx, keep=True)
        places = [("test", i) for i in chosen_tasks(ctx.bench, n)]
        most = budget or default_budget(ctx)
        budgets = sorted({max(1, most // share) for share in SHARES})
        curves: dict[str, Any] = {}
        lines_of: dict[str, list[Line]] = {}
        for contender in contenders:
            # the greatest first: the others are its beginning, and nothing is sampled twice
            cells = {
                b: _cell(ctx, engine, settings, contender, b, places, out) for b in budgets[::-1]
            }
            label = label_of(contender.name, any(x["oracle"] for ls in cells.values() for x in ls))
            lines_of[label] = cells[most]
            curves[label] = {
                "oracle": label != contender.name,
                "points": [_point(ctx, b, cells[b]) for b in budgets],
            }
            ctx.say(f"{label}: {_percent_of(curves[label]['points'][-1])} with {most} tokens")
        for label, curve in curves.items():
            if label != "majority":
                curve["above majority"] = _difference(lines_of["majority"], lines_of[label])
    finally:
        ctx.close()
    about = {"task": settings.problem, "model": settings.model, "seed": settings.seed}
    result = jsonable({**about, "n": len(places), "budgets": budgets, "curves": curves})
    if out:
        write_atomic(make_folder(Path(out)) / CURVE, json.dumps(result, indent=1) + "\n")
        draw(result, Path(out) / PICTURE)
        result["picture"] = str(Path(out) / PICTURE)
    return result


def contenders_of(strategies: Sequence[str | Strategy], reward_model: str) -> list[Contender]:
    """The given strategies, and those that always stand beside them."""
    scorer = scorer_by_name(reward_model)
    named = dict(strategy_by_name(s) for s in (*strategies, *BESIDE))
    made = [
        Contender(name=name, strategy=s, scorer=scorer, reward_model=reward_model)
        for name, s in named.items()
    ]
    if scorer is None:
        return made
    name, best = strategy_by_name(BESIDE[0])
    return [*made, Contender(name=name, strategy=best, scorer=None, reward_model="")]


def _cell(
    ctx: RunContext,
    engine: MeteredEngine,
    settings: Settings,
    contender: Contender,
    budget: int,
    places: Sequence[tuple[str, int]],
    out: str | Path | None,
) -> list[Line]:
    """The answers of a strategy with a budget; with a folder they are kept there."""
    name, strategy, model = contender.name, contender.strategy, contender.reward_model
    folder, kept = None, list[dict[str, Any]]()
    if out:
        scored = "-scored" if model else ""  # by a reward model
        folder = Path(out) / "search" / f"{file_name(name)}{scored}-{budget}"
        kept = kept_answers(folder, record_of(settings, name, strategy, budget, model, places))
    work = search_all(ctx, engine, places, strategy, budget, contender.scorer, kept, folder)
    lines = run_blocking(work)
    if held_out_of(ctx, lines) is None:
        raise UserError(f"{ctx.bench.name} has no answers, so no accuracy can be measured")
    return lines


def _point(ctx: RunContext, budget: int, lines: Sequence[Line]) -> dict[str, Any]:
    summary = summarise(ctx, lines)
    held = held_out_of(ctx, lines)
    measured = held.json() if held else {}
    return {"budget": budget, "tokens": summary["tokens"], "errors": summary["errors"], **measured}


def _percent_of(point: Mapping[str, Any]) -> str:
    return percent(point["mean"]) if point["of"] == "accuracy" else f"{point['mean']:.3f}"


def _difference(a: Sequence[Line], b: Sequence[Line]) -> dict[str, Any]:
    """b - a over the problems that both have answered, with the paired 95% interval."""
    pairs = [
        (x, y)
        for x, y in zip(a, b, strict=True)
        if x.get("reward") is not None and y.get("reward") is not None
    ]
    shares = all(x["solved"] is not None for pair in pairs for x in pair)
    number: Callable[[Line], float] = lambda x: float(x["solved"] if shares else x["reward"])
    first, second = [number(x) for x, _ in pairs], [number(y) for _, y in pairs]
    return (paired_share_difference if shares else paired_difference)(first, second).json()


def draw(result: Mapping[str, Any], path: Path) -> None:
    """The curves as a picture: oracles are dashed and named so."""
    from matplotlib.figure import Figure

    curves: Mapping[str, Any] = result["curves"]
    share = all(p["of"] == "accuracy" for c in curves.values() for p in c["points"])
    with drawing_style():
        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        axes = figure.subplots()
        for i, (label, curve) in enumerate(curves.items()):
            points = curve["points"]
            aside = 2 ** (0.05 * (i - (len(curves) - 1) / 2))  # so that no interval hides another
            x_N, y_N = [p["tokens"] * aside for p in points], [p["mean"] for p in points]
            low_N = [p["mean"] - p["low"] if p["low"] is not None else 0.0 for p in points]
            high_N = [p["high"] - p["mean"] if p["high"] is not None else 0.0 for p in points]
            axes.errorbar(
                x_N,
                y_N,
                yerr=[low_N, high_N],
                label=label,
                color=PALETTE[i % len(PALETTE)],
                marker=MARKERS[i % len(MARKERS)],
                linestyle=DASHES[1] if curve["oracle"] else DASHES[0],
                elinewidth=0.8,
                markersize=4.5,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(result["budgets"], [str(b) for b in result["budgets"]])
        axes.minorticks_off()
        axes.set_xlabel("generated tokens for each problem")
        if share:
            axes.set_ylim(0, 1.02)
            axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.0f}%")
        what = "accuracy" if share else "mean reward"
        title = (
            f"{what}, {result['model']} on {result['task']}, {result['n']} problems (95% intervals)"
        )
        axes.set_title(title, color=INK)
        axes.legend(frameon=False, handlelength=3.4, loc="center left", bbox_to_anchor=(1.0, 0.5))
        save(figure, path)
