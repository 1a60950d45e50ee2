"""`report.html` of a run folder: one offline file, without scripts, that tells what the run did."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.ends import (
    ENDS,
    HELD_OUT,
    HeldOut,
    describe_changes_on_the_way,
    end_of,
    found_beside,
)
from palaestra.errors import NOT_APPLICABLE
from palaestra.markdown import hide_folders, render
from palaestra.settings.commands import measure_command
from palaestra.stats import difference, mean_interval, proportion
from palaestra.store.checkpoint import write_atomic
from palaestra.store.folder import (
    RunFolder,
    flatten_settings,
    is_run,
    loading_class,
    read_run,
    rollouts_of,
)
from palaestra.store.reading import Rollout, StepRollouts, number
from palaestra.view import exhibits
from palaestra.view.drawing import (
    duration,
    entropy_metric,
    main_metric,
    percent,
    series,
    short_number,
    smooth,
)
from palaestra.view.plots import curve, curve_svg
from palaestra.view.privacy import remarks_on_privacy
from palaestra.view.verdict import capital, ends, tell_change, tell_mean, verdict

AVERAGED = (
    5  # steps at each end that are averaged to tell what changed, at most a quarter of the run
)
PACE_STEPS = 30  # steps from which on half of the rise can be dated
SETTINGS_OPEN = 12  # settings shown before the table is folded
ERROR_FILES = 20  # rollout files that are searched for the causes of errors
LONGEST_ERROR = 400  # characters shown of what infrastructure said
SHORT = 120  # tokens; shorter answers of a group stand beside one another
PARTS = 6  # parts of the reward, kinds of problems, and tools, that are listed
CALLS = "tools/calls/"  # how metrics of calls by tool begin
TURNS_SHOWN = 3  # whose calls are listed
ONE_SEED = (
    "This is one run with one seed: the intervals cover the choice of problems, not what another "
    "seed would do."
)


def write_report(run_dir: str | Path, config: Mapping[str, Any] | None = None) -> Path:
    """Writes report.html, whose path it returns, and curve.png. `config`: of the pipeline that the
    run is a part of.
    """
    run = read_run(Path(run_dir))
    run = replace(run, config=config) if config else run
    for part in run.parts:
        if (run.folder / part / "metrics.jsonl").is_file():
            write_report(run.folder / part, run.config)
    title = " · ".join(x for x in (run.label("recipe"), run.problem, run.label("model")) if x)
    curve(run.steps, run.folder / "curve.png", evaluations=run.evaluations, of=run.of, title=title)
    path = run.folder / "report.html"
    write_atomic(path, render("report.html", **page(run)))
    return path


# ---- the page


def page(run: RunFolder) -> dict[str, Any]:
    """Everything that the template shows, as text and numbers. It may be shown to others: no
    absolute path stands in it.
    """
    hide = partial(hide_folders, here=run.folder.absolute().parent)
    whole = commands(run)
    typed = [(label, hide(text)) for label, text in whole]
    rollouts = [r for r in (run.first, run.last) if r is not None]
    curves = (
        [
            curve_svg(run.steps, evaluations=run.evaluations, of=run.of, narrow=n)
            for n in (False, True)
        ]
        if run.steps
        else []
    )
    return {
        "recipe": run.label("recipe") or "run",
        "task": run.problem,
        "model": run.label("model"),
        "finished": bool(run.summary),
        "facts": facts(run),
        "verdict": verdict(run),
        "curves": curves,
        "pace": half_rise(run),
        "findings": findings(run),
        "parts": parts(run),
        "changes": changes(run),
        "averaged": steps_averaged(run),
        "sampling": sampling(run),
        "judged": is_judged(run),
        "remarks": [hide(r) for r in remarks(run)],
        "phases": phases(run),
        "speed": speed(run),
        "shown": rollout_cards(rollouts),
        "errors": errors(run),
        "settings": [(name, hide(x)) for name, x in flatten_settings(run.config)],
        "settings_open": SETTINGS_OPEN,
        "commands": typed,
        "hidden": typed != whole,
        "weights": str(run.summary.get("weights_sha256") or ""),
    }


def facts(run: RunFolder) -> list[str]:
    """The run in a line: seed, steps, tokens, time."""
    last = run.steps[-1] if run.steps else {}
    steps = number(run.summary.get("steps", last.get("step")))
    tokens, seconds = (
        number(run.summary.get(name, last.get(name))) for name in ("sampled_tokens", "seconds")
    )
    seed = run.summary.get("seed", run.config.get("seed"))
    texts = [
        f"seed {seed}" if seed is not None else "",
        f"{steps:,.0f} steps" if steps else "",
        f"{tokens:,.0f} sampled tokens" if tokens else "",
        duration(seconds) if seconds else "",
    ]
    return [f for f in texts if f]


def findings(run: RunFolder) -> list[tuple[str, str]]:
    """The numbers of evaluators and programs, by name."""
    texts = {
        name: [tell_mean(x.json()) if isinstance(x, HeldOut) else short_number(x) for x in each]
        for name, each in found_beside(run.summary).items()
    }
    return [(name, " → ".join(each)) for name, each in texts.items()]


def has_risen(run: RunFolder) -> bool:
    """The training reward of the last quarter lies above that of the first, beyond chance."""
    reward = series(run.steps, "step", "reward")[1].tolist()
    n = len(reward) // 4
    return n > 1 and difference(mean_interval(reward[:n]), mean_interval(reward[-n:])).low > 0


def parts(run: RunFolder) -> list[dict[str, str]]:
    """The parts of a pipeline in order, those of a part that is a pipeline behind it: what each did in
    training and on held-out problems, at what cost, and where its own page is.
    """
    return parts_below(run.folder, run.parts)


def parts_below(
    folder: Path, summaries: Mapping[str, Mapping[str, Any]], above: str = ""
) -> list[dict[str, str]]:
    """`parts` from their summaries by name; `above` is the path of the pipeline, with its slash."""
    rows = []
    for name, values in summaries.items():
        path = f"{above}{name}"
        held = [end_of(values, end) for end in ENDS]
        kinds = dict.fromkeys(HELD_OUT[x["of"]].removeprefix("held-out ") for x in held if x)
        tokens, seconds, steps = (
            number(values.get(k)) for k in ("sampled_tokens", "seconds", "steps")
        )
        page = f"{path}/report.html"
        rows.append(
            {
                "name": path,
                "page": page if (folder / page).is_file() else "",
                "steps": f"{steps:,.0f}" if steps is not None else "",
                "tokens": f"{tokens:,.0f}" if tokens is not None else "",
                "time": duration(seconds) if seconds is not None else "",
                "problem": str(values.get("task") or "").rpartition("/")[2],
                "what": ", ".join(kinds),
                "change": tell_change(*held),
                "course": tell_course(folder / path),
            }
        )
        rows += parts_below(folder, values.get("parts") or {}, f"{path}/")
    return rows


def tell_course(folder: Path) -> str:
    """The reward of a run's first step and of its last one, or the loss where nothing was judged;
    "" where no step has either.
    """
    steps = read_run(folder).steps if is_run(folder) else []
    name = main_metric(steps)
    values = [x for r in steps if (x := number(r.get(name))) is not None]
    if not values:
        return ""
    return f"{name} {short_number(values[0])} → {short_number(values[-1])}"


def half_rise(run: RunFolder) -> str:
    """When half of the rise of the training reward was reached, of runs long enough to tell."""
    steps, reward = series(run.steps, "step", "reward")
    if len(steps) < PACE_STEPS or not has_risen(run):
        return ""
    course = smooth(reward)
    at = int(np.argmax(course >= (course[0] + course[-1]) / 2))
    seconds = number(run.steps[at].get("seconds"))
    when = f", {duration(seconds)} into training" if seconds else ""
    return f"Half of the rise in reward was there after step {steps[at]:.0f}{when}."


def is_judged(run: RunFolder) -> bool:
    """Whether the answers of the steps have a reward; recorded ones may have none."""
    return main_metric(run.steps) == "reward"


def sampling(run: RunFolder) -> str:
    """Where the answers come from that the pictures are of."""
    sampled = not run.steps or any("length" in r for r in run.steps)
    held = run.of in ("accuracy", "reward")
    if sampled:
        return "Training answers are sampled, held-out ones greedy."
    return f"Training answers are recorded, held-out ones {'greedy' if held else 'too'}."


def steps_averaged(run: RunFolder) -> int:
    return max(1, min(AVERAGED, len(run.steps) // 4))


def changes(run: RunFolder) -> list[dict[str, str]]:
    """Behaviour at the start and at the end: means over the first and the last steps."""
    n = steps_averaged(run)
    two, rows = "{:.2f}".format, []
    change_rows = [
        ("length", "Answer length, tokens", "{:.1f}".format, 1.0),
        ("truncated", "Answers cut off at the limit", percent, 0.2),
        ("groups_mixed", "Groups with differing rewards", percent, 0.2),
        (entropy_metric(run.steps), "Entropy, nats a token", two, 0.05),
        ("reward", "Reward of the training batch", two, 0.1),
        ("age_mean", "Age of what is trained, steps", two, 0.1),
    ]
    change_rows += (
        [] if is_judged(run) else [(main_metric(run.steps), "Loss of the training batch", two, 0.1)]
    )
    scored = sorted({k for r in run.steps for k in r if k.startswith("part/")})
    change_rows += [
        (k, f"Part of the reward: {k[5:]}", two, 0.1) for k in scored[:PARTS] if len(scored) > 1
    ]
    change_rows += tool_rows(run)
    drawn = most_drawn(run)
    change_rows += [(k, f"Prompts drawn from {k[6:]}", percent, 0.2) for k in drawn]
    records = [{**dict.fromkeys(drawn, 0.0), **r} for r in run.steps]
    for name, label, tell, least in change_rows:
        values = series(records, "step", name)[1]
        if len(values) > 1 and n < len(values):
            start, end = float(values[:n].mean()), float(values[-n:].mean())
            rows.append(
                {
                    "label": label,
                    "start": tell(start),
                    "end": tell(end),
                    "line": spark(smooth(values), least),
                }
            )
    return rows + shown_work(run)


def tool_rows(run: RunFolder) -> list[tuple[str, str, Callable[[float], str], float]]:
    """What is shown of each tool, and of the first turns with calls: metric, label, form, and the
    least range of its line.
    """
    logged = {k for r in run.steps for k in r}
    names = sorted(k.removeprefix(CALLS) for k in logged if k.startswith(CALLS))[:PARTS]
    rows: list[tuple[str, str, Callable[[float], str], float]] = []
    for name in names:
        rows += [
            (f"{CALLS}{name}", f"Calls of {name} an answer", "{:.2f}".format, 0.1),
            (f"tools/errors/{name}", f"Calls of {name} that gave an error", percent, 0.2),
            (f"tools/seconds/{name}", f"Seconds of a call of {name}", "{:.3f}".format, 0.01),
        ]
    for n in range(1, TURNS_SHOWN + 1):
        rows.append((f"tools/turn/{n}/calls", f"Calls in turn {n} an answer", "{:.2f}".format, 0.1))
    return [row for row in rows if row[0] in logged]


def most_drawn(run: RunFolder) -> list[str]:
    """The metrics of the domains that gave most prompts, by name."""
    count: Counter[str] = Counter()
    for record in run.steps:
        count.update({k: number(x) or 0.0 for k, x in record.items() if k.startswith("drawn/")})
    return sorted(k for k, _ in count.most_common(PARTS))


def shown_work(run: RunFolder) -> list[dict[str, str]]:
    """Share of answers with something before the answer, where some show it and some do not."""
    if run.first is None or run.last is None or not is_judged(run):
        return []
    shares = []
    for rollouts in (run.first, run.last):
        shares.append(
            proportion(
                sum(exhibits.shows_work(r.text) for r in rollouts.valid), len(rollouts.valid)
            )
        )
    means = [s.mean for s in shares]
    if not all(math.isfinite(m) for m in means) or max(means) < 0.05 or min(means) > 0.95:
        return []
    return [
        {
            "label": "Answers of several lines (work shown), first and last step",
            "start": percent(means[0]),
            "end": percent(means[1]),
            "line": "",
        }
    ]


def spark(values_N: np.ndarray, least: float, width: int = 96, height: int = 22) -> str:
    """The points of a polyline, at most one a pixel; a range below `least` is drawn as the little
    that it is.
    """
    at = np.linspace(0, len(values_N) - 1, min(width, len(values_N)))
    y = np.interp(at, np.arange(len(values_N)), values_N)
    x, span = np.linspace(2, width - 2, len(y)), max(float(np.ptp(y)), least)
    top = height / 2 - (height - 4) * (y - (y.max() + y.min()) / 2) / span
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, top, strict=True))


def remarks(run: RunFolder) -> list[str]:
    """What a careful reader should know."""
    remark_lines = remarks_on_privacy(run)
    tail = run.steps[-steps_averaged(run) :]
    cut, mixed = (
        float(np.mean(values)) if len(values := series(tail, "step", name)[1]) else math.nan
        for name in ("truncated", "groups_mixed")
    )
    before, after = ends(run)
    is_share = run.of in ("accuracy", "reward")
    if is_share and before and after and has_risen(run) and difference(before, after).low <= 0:
        remark_lines.append(
            f"The training reward rose and the {HELD_OUT[run.of]} did not: the rise may come "
            "from these problems only, or from sampling less widely."
        )
    if cut > 0.05:
        remark_lines.append(
            f"At the end {percent(cut)} of the answers were cut off at the length limit; try a "
            "larger --max-tokens."
        )
    which = str(run.config.get("rollouts", "all"))
    if which == "none":
        remark_lines.append("No episodes were written (--rollouts none), so none are shown.")
    elif which != "all":
        n = which.removeprefix("sample:")
        remark_lines.append(
            f"At most {n} episodes of each step were written (--rollouts {which}): those that are "
            "shown, and a problem's fate in run.problems(), are of these."
        )
    reward = series(tail, "step", "reward")[1]
    # equal rewards are too low more often than too high where the mean is nearer to the lowest
    lowest = min([0.0, *series(run.steps, "step", "reward")[1].tolist()])
    poor = len(reward) > 0 and float(np.mean(reward)) - lowest < 0.5
    remedy = "easier problems, or demonstrations first," if poor else "harder problems"
    if mixed < 0.15:
        remark_lines.append(
            f"At the end only {percent(mixed)} of the groups held answers of differing reward. The "
            f"others teach a group-relative method nothing: {remedy} would."
        )
    if skipped := sum(
        bool(v) for r in run.steps for k, v in r.items() if k.rpartition("/")[2] == "skipped"
    ):
        remark_lines.append(
            f"{skipped} updates were skipped because they were not finite; see the cases in the "
            "run folder."
        )
    if changed := describe_changes_on_the_way(run.summary):
        remark_lines.append(f"{capital(changed)}; no command repeats it.")
    if known := run.name("caveat"):
        remark_lines.append(f"{known[:1].upper()}{known[1:]}.")
    if before and after:
        remark_lines.append(ONE_SEED)
    return remark_lines


def phases(run: RunFolder) -> list[dict[str, Any]]:
    """Where the time went; a phase under half a percent is left out."""
    given = run.summary.get("phase_seconds")
    seconds = (
        {str(k): x for k, v in given.items() if (x := number(v))}
        if isinstance(given, Mapping)
        else {}
    )
    total = sum(seconds.values())
    return [
        {
            "name": name,
            "share": round(100 * s / total, 2),
            "told": f"{100 * s / total:.0f}%",
            "time": duration(s),
        }
        for name, s in seconds.items()
        if s / total >= 0.005
    ]


def speed(run: RunFolder) -> list[str]:
    rate, memory = (
        series(run.steps, "step", "tokens_per_second")[1],
        number(run.summary.get("peak_memory_mb")),
    )
    lines = (
        [f"{np.median(rate):,.0f} sampled tokens a second of training (median step)"]
        if len(rate)
        else []
    )
    return lines + ([f"{memory:,.0f} MB of memory at the peak"] if memory else [])


def rollout_cards(steps: Sequence[StepRollouts]) -> dict[str, Any]:
    """The notable rollouts of the first and last step side by side, and a group of each."""
    picked = [
        (s, exhibits.notable_rollouts(s.valid), exhibits.instructive_group(s.valid)) for s in steps
    ]
    raws = {
        (s.step, r.at): s.raw(r)
        for s, some, group in picked
        for r in [*some.values(), *group[: exhibits.LARGEST]]
    }
    scale = exhibits.largest_advantage(raws.values())

    def card(s: StepRollouts, r: Rollout) -> dict[str, Any]:
        return _card(r, exhibits.colour_tokens(raws[s.step, r.at], scale))

    kinds = [k for k in ("best", "typical", "worst") if any(k in some for _, some, _ in picked)]
    return {
        "steps": [s.step for s in steps],
        "rows": [
            {"kind": k, "cards": [card(s, some[k]) if k in some else None for s, some, _ in picked]}
            for k in kinds
        ],
        "groups": [
            {
                "step": s.step,
                "prompt": group[0].prompt,
                "cards": [card(s, r) for r in group[: exhibits.LARGEST]],
                "more": max(0, len(group) - exhibits.LARGEST),
                "short": max(len(raws[s.step, r.at]) for r in group[: exhibits.LARGEST]) <= SHORT,
            }
            for s, _, group in picked
            if group
        ],
        "scale": scale,
        "any_logp": any(t.logp is not None for raw in raws.values() for t in raw),
    }


def _card(r: Rollout, tokens: list[exhibits.Token]) -> dict[str, Any]:
    parts = {k: short_number(round(v, 3)) for k, v in r.reward_parts.items()}
    alone = list(r.reward_parts.values()) == [r.reward]
    return {
        "prompt": r.prompt,
        "tokens": tokens,
        "reward": short_number(round(r.reward, 3)),
        "good": r.reward > 0,
        "parts": {} if alone else parts,
        "advantage": f"{r.advantage:+.2f}".replace("-", "−") if math.isfinite(r.advantage) else "",
        "n": r.n_tokens,
        "muted": r.muted,
        "status": "" if r.status == "finished" else r.status,
    }


def errors(run: RunFolder) -> dict[str, Any]:
    """Infrastructure errors: how many, at which steps, of what cause."""
    failed = [r for r in run.steps if number(r.get("errors"))]
    steps = [int(r["step"]) for r in failed]
    error_rows = [
        rollouts_of([run.folder / "rollouts" / f"step-{step:06}.parquet"])
        for step in steps[:ERROR_FILES]
    ]
    broken = [
        r
        for rollouts in error_rows
        if rollouts
        for r in rollouts.all
        if r.status.startswith("error") and r.status != f"error:{NOT_APPLICABLE}"
    ]
    first = {r.status: r.error for r in reversed(broken)}
    causes = [
        (status, hide_folders(first[status])[:LONGEST_ERROR], n)
        for status, n in Counter(r.status for r in broken).most_common()
    ]
    total = round(sum(r["errors"] * (number(r.get("episodes")) or 0) for r in failed))
    return {"total": total, "steps": steps, "causes": causes}


def view_command(folder: Path) -> str:
    return f"palaestra view {shlex.quote(str(folder))}"


def commands(run: RunFolder) -> list[tuple[str, str]]:
    """What to type to repeat, resume and inspect the run. A pipeline's part has no settings, and
    goes on with the whole.
    """
    resume = f"palaestra train --resume {shlex.quote(str(run.folder))}" if run.config else ""
    resume = run.summary.get("resume_command") or resume
    steps = number(run.summary.get("steps"))
    onward = (
        ("Train on for as many steps again", f"{resume} --steps {2 * steps:.0f}")
        if steps and resume
        else ("Go on where it stopped", resume)
    )
    other = run.summary.get("changed") or run.summary.get("set")  # the command made a part of it
    again = "" if other else str(run.summary.get("command") or "")
    command_list = [("Repeat it from the start", again), onward]
    if model := (run.summary.get("artifacts") or {}).get("policy"):
        measure = measure_command(run.config, run.summary) if run.config else ""
        load = f"transformers.{loading_class(str(model))}.from_pretrained({str(model)!r})"
        command_list += [("Measure the trained model, with pass@k", measure), ("Load it", load)]
    if run.last:
        path = str(run.folder / "rollouts" / f"step-{run.last.step:06}.parquet")
        command_list.append(
            ("See every answer, search them, compare runs", view_command(run.folder))
        )
        command_list.append(
            ("Read the rollouts", f"pyarrow.parquet.read_table({path!r}).to_pylist()")
        )
    return [(label, text) for label, text in command_list if text]
