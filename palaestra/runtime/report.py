"""`report.html` of a run folder: one offline file, without scripts, that tells what the run did. Reads only what a run writes."""

from __future__ import annotations

import json
import math
import shlex
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.ledger.statistics import Interval, difference, proportion
from palaestra.runtime import exhibits
from palaestra.runtime.exhibits import Rollout, Rollouts
from palaestra.runtime.plots import curve, curve_svg, evaluations_of, percent, series, short, smoothed
from palaestra.types import UserError, value

ENDS = 5  # steps at each end that are averaged to tell what changed, at most a quarter of the run
SETTINGS_OPEN = 12  # settings shown before the table is folded
ERROR_FILES = 20  # rollout files that are searched for the causes of errors
PARTS = 6  # parts of the reward that are listed
NO_PLACE = "a run folder has config.toml, metrics.jsonl and, when it has ended, summary.json"


@value
class Run:
    """A run folder as read. What is missing is empty."""

    folder: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    evaluations: Sequence[tuple[float, Interval]]
    first: Rollouts | None
    last: Rollouts | None

    def name(self, field: str) -> str:
        return str(self.summary.get(field) or self.config.get(field) or "")


def write_report(run_dir: str | Path) -> Path:
    """Writes report.html and curve.png into a run folder, finished or not. Returns the report's path."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    run = read(Path(run_dir))
    title = " · ".join(x for x in (run.name("recipe"), run.name("task"), run.name("model")) if x)
    curve(run.steps, run.folder / "curve.png", evaluations=run.evaluations, title=title)
    where = Path(__file__).parent / "templates"
    pages = Environment(
        loader=FileSystemLoader(where), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    path = run.folder / "report.html"
    path.write_text(pages.get_template("report.html").render(page(run)), encoding="utf-8", errors="replace")
    return path


# ---- reading


def read(folder: Path) -> Run:
    """Reads a run folder; the line or file that a killed run left unfinished is passed over."""
    if not (folder / "config.toml").is_file():
        raise UserError(f"{folder} is not a run folder: it has no config.toml ({NO_PLACE})")
    records = _records(folder / "metrics.jsonl")
    files = sorted((folder / "rollouts").glob("step-*.parquet"))
    first, last = (_rollouts(files), _rollouts(files[::-1])) if files else (None, None)
    return Run(
        folder=folder,
        config=tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")),
        summary=next(iter(_records(folder / "summary.json", whole=True)), {}),
        steps=[r for r in records if "evaluation" not in r],
        evaluations=evaluations_of(records),
        first=first,
        last=last if first and last and last.step != first.step else None,
    )


def _records(path: Path, whole: bool = False) -> list[dict[str, Any]]:
    """Objects of a JSONL file, or the one object of a JSON file."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = []
    for part in [text] if whole else text.splitlines():
        try:
            found.append(json.loads(part))
        except ValueError:
            continue
    return [r for r in found if isinstance(r, dict)]


def _rollouts(files: Sequence[Path]) -> Rollouts | None:
    """The first file that can be read and holds something."""
    for path in files[:3]:
        try:
            found = Rollouts(path)
        except (OSError, ValueError):  # pyarrow's errors are these two
            continue
        if found.all:
            return found
    return None


# ---- the page


def page(run: Run) -> dict[str, Any]:
    """Everything that the template shows, as text and numbers."""
    rollouts = [r for r in (run.first, run.last) if r is not None]
    return {
        "recipe": run.name("recipe") or "run",
        "task": run.name("task"),
        "model": run.name("model"),
        "finished": bool(run.summary),
        "facts": facts(run),
        "verdict": verdict(run),
        "curves": [curve_svg(run.steps, evaluations=run.evaluations, narrow=n) for n in (False, True)] if run.steps else [],
        "pace": half_way(run),
        "changes": changes(run),
        "remarks": remarks(run),
        "phases": phases(run),
        "speed": speed(run),
        "shown": shown(rollouts),
        "errors": errors(run),
        "settings": flat(run.config),
        "settings_open": SETTINGS_OPEN,
        "commands": commands(run),
        "weights": str(run.summary.get("weights_sha256") or ""),
    }


def facts(run: Run) -> list[str]:
    """The run in a line: seed, steps, tokens, time."""
    last = run.steps[-1] if run.steps else {}
    get = lambda name: _number(run.summary.get(name, last.get(name)))
    steps, tokens, seconds = get("steps") or _number(last.get("step")), get("sampled_tokens"), get("seconds")
    seed = run.summary.get("seed", run.config.get("seed"))
    found = [
        f"seed {seed}" if seed is not None else "",
        f"{steps:,.0f} steps" if steps else "",
        f"{tokens:,.0f} sampled tokens" if tokens else "",
        duration(seconds) if seconds else "",
    ]
    return [f for f in found if f]


def ends(run: Run) -> tuple[Interval | None, Interval | None]:
    """Held-out accuracy before and after, of the summary or of the evaluations so far."""
    found = []
    for name in ("accuracy_before", "accuracy_after"):
        given = run.summary.get(name)
        found.append(Interval.of(given) if isinstance(given, Mapping) and _number(given.get("mean")) is not None else None)
    if found[0] is None and run.evaluations and run.evaluations[0][0] == 0:
        found[0] = run.evaluations[0][1]
    if found[1] is None and run.evaluations and run.evaluations[-1][0] > 0:
        found[1] = run.evaluations[-1][1]
    return found[0], found[1]


def verdict(run: Run) -> dict[str, Any]:
    """Before and after with a judgement in plain words."""
    before, after = ends(run)
    share = all(0 <= e.low and e.high <= 1 for e in (before, after) if e is not None)
    tell = percent if share else lambda x: short(x) if math.isfinite(x) else "?"
    told = [
        {"label": label, "mean": tell(e.mean), "low": tell(e.low), "high": tell(e.high), "n": f"{e.n:,}"}
        for label, e in (("before", before), ("after", after))
        if e is not None
    ]
    kind, words = judged(before, after, share)
    return {"ends": told, "kind": kind, "words": words, "what": "Held-out accuracy" if share else "Held-out reward"}


def judged(before: Interval | None, after: Interval | None, share: bool = True) -> tuple[str, str]:
    """("up" | "down" | "same" | "open", the sentence)."""
    if before is None or after is None:
        return "open", "There is no evaluation before and after, so whether the model became better is not known."
    d = difference(before, after)
    tell = (lambda x: f"{100 * x:.0f}".replace("-", "−")) if share else short
    unit = " points" if share else ""
    if not math.isfinite(d.low + d.high):
        return "open", "The evaluations are too small for an interval, so whether the model became better is not known."
    if d.low > 0:
        size = f"by {tell(d.mean)}{unit} (95% interval {tell(d.low)} to {tell(d.high)})"
        return "up", f"Better, beyond what chance explains: on problems that it was not trained on, the model improved {size}."
    if d.high < 0:
        size = f"by {tell(-d.mean)}{unit} (95% interval {tell(-d.high)} to {tell(-d.low)})"
        return "down", f"Worse, beyond what chance explains: on problems that it was not trained on, the model fell {size}."
    span = f"{tell(d.low)} to {tell(d.high)}{unit}"
    return "same", f"No change that can be told from chance: the difference lies between {span}, and zero is inside."


def half_way(run: Run) -> str:
    """When half of the rise of the training reward was reached."""
    steps, reward = series(run.steps, "step", "reward")
    if len(steps) < 8:
        return ""
    course = smoothed(reward)
    rise = course[-1] - course[0]
    if rise < max(0.03, 2 * float(np.std(reward - course))):
        return ""
    at = int(np.argmax(course >= course[0] + rise / 2))
    seconds = _number(run.steps[at].get("seconds"))
    return f"Half of the rise in reward was there after step {steps[at]:.0f}" + (f", {duration(seconds)} into training." if seconds else ".")


def changes(run: Run) -> list[dict[str, str]]:
    """Behaviour at the start and at the end: means over the first and the last steps."""
    n = max(1, min(ENDS, len(run.steps) // 4))
    told = [
        ("length", "Answer length, tokens", lambda x: f"{x:.1f}"),
        ("truncated", "Answers cut off at the limit", percent),
        ("groups_mixed", "Groups with differing rewards", percent),
        ("entropy", "Entropy, nats a token", lambda x: f"{x:.2f}"),
        ("reward", "Reward of the training batch", lambda x: f"{x:.2f}"),
    ]
    parts = sorted({k for r in run.steps for k in r if k.startswith("part/")})
    told += [(k, f"Part of the reward: {k[5:]}", lambda x: f"{x:.2f}") for k in parts[:PARTS] if len(parts) > 1]
    rows = []
    for name, label, tell in told:
        values = series(run.steps, "step", name)[1]
        if len(values) > 1 and n < len(values):
            start, end = float(values[:n].mean()), float(values[-n:].mean())
            rows.append({"label": label, "start": tell(start), "end": tell(end), "line": spark(smoothed(values))})
    return rows + working(run)


def working(run: Run) -> list[dict[str, str]]:
    """Share of answers with something before the answer, where some show it and some do not."""
    if run.first is None or run.last is None:
        return []
    shares = []
    for rollouts in (run.first, run.last):
        shares.append(proportion(sum(exhibits.shows_work(r.text) for r in rollouts.valid), len(rollouts.valid)))
    means = [s.mean for s in shares]
    if not all(math.isfinite(m) for m in means) or max(means) < 0.05 or min(means) > 0.95:
        return []
    return [{"label": "Answers of more than one line: work shown", "start": percent(means[0]), "end": percent(means[1]), "line": ""}]


def spark(values_N: np.ndarray, width: int = 96, height: int = 22) -> str:
    """The points of a polyline, at most one a pixel."""
    at = np.linspace(0, len(values_N) - 1, min(width, len(values_N)))
    y = np.interp(at, np.arange(len(values_N)), values_N)
    span = float(np.ptp(y)) or 1.0
    x = np.linspace(2, width - 2, len(y))
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, 2 + (height - 4) * (y.max() - y) / span, strict=True))


def remarks(run: Run) -> list[str]:
    """What a careful reader should know."""
    found = []
    tail = run.steps[-max(1, min(ENDS, len(run.steps) // 4)) :]
    mean = lambda name: float(np.mean(v)) if len(v := series(tail, "step", name)[1]) else math.nan
    before, after = ends(run)
    rising = half_way(run) != ""
    if before and after and rising and difference(before, after).low <= 0:
        found.append(
            "The training reward rose and the held-out accuracy did not: the rise may come from these problems only, or from sampling less widely."
        )
    if mean("truncated") > 0.05:
        found.append(f"At the end {percent(mean('truncated'))} of the answers were cut off at the length limit; try a larger --max-tokens.")
    if mean("groups_mixed") < 0.15:
        found.append(
            f"At the end only {percent(mean('groups_mixed'))} of the groups held answers of differing reward. The others teach a "
            "group-relative method nothing: harder problems would."
        )
    skipped = sum(bool(r.get("skipped")) for r in run.steps)
    if skipped:
        found.append(f"{skipped} updates were skipped because their gradient was not finite; see the cases in the run folder.")
    if before and after:
        found.append("This is one run with one seed. The intervals cover the choice of problems, not what another seed would have done.")
    return found


def phases(run: Run) -> list[dict[str, Any]]:
    """Where the time went; a phase under half a percent is left out."""
    given = run.summary.get("phase_seconds")
    seconds = {str(k): x for k, v in given.items() if (x := _number(v))} if isinstance(given, Mapping) else {}
    total = sum(seconds.values())
    return [
        {"name": name, "share": round(100 * s / total, 2), "told": f"{100 * s / total:.0f}%", "time": duration(s)}
        for name, s in seconds.items()
        if s / total >= 0.005
    ]


def speed(run: Run) -> list[str]:
    rate, memory = series(run.steps, "step", "tokens_per_second")[1], _number(run.summary.get("peak_memory_mb"))
    found = [f"{np.median(rate):,.0f} sampled tokens a second of training (median step)"] if len(rate) else []
    return found + ([f"{memory:,.0f} MB of memory at the peak"] if memory else [])


def shown(steps: Sequence[Rollouts]) -> dict[str, Any]:
    """The notable rollouts of the first and last step side by side, and a group of each."""
    picked = [(s, exhibits.notable(s.valid), exhibits.instructive_group(s.valid)) for s in steps]
    raws = {(s.step, r.at): s.raw(r) for s, some, group in picked for r in [*some.values(), *group[: exhibits.LARGEST]]}
    scale = exhibits.largest_advantage(raws.values())
    card = lambda s, r: _card(r, exhibits.coloured(raws[s.step, r.at], scale))
    kinds = [k for k in ("best", "typical", "worst") if any(k in some for _, some, _ in picked)]
    return {
        "steps": [s.step for s in steps],
        "rows": [{"kind": k, "cards": [card(s, some[k]) if k in some else None for s, some, _ in picked]} for k in kinds],
        "groups": [
            {
                "step": s.step,
                "prompt": exhibits.visible(group[0].prompt),
                "cards": [card(s, r) for r in group[: exhibits.LARGEST]],
                "more": max(0, len(group) - exhibits.LARGEST),
            }
            for s, _, group in picked
            if group
        ],
        "scale": scale,
        "any_logp": any(t.logp is not None for raw in raws.values() for t in raw),
    }


def _card(r: Rollout, tokens: list[exhibits.Token]) -> dict[str, Any]:
    number = lambda x: short(round(x, 3)) if math.isfinite(x) else ""
    signed = lambda x: f"{x:+.2f}".replace("-", "−") if math.isfinite(x) else ""
    parts = {k: number(v) for k, v in r.reward_parts.items()}
    trivial = len(parts) == 1 and next(iter(r.reward_parts.values())) == r.reward
    return {
        "task": r.task_id, "prompt": exhibits.visible(r.prompt), "tokens": tokens, "reward": number(r.reward), "good": r.reward > 0,
        "parts": {} if trivial else parts, "advantage": signed(r.advantage), "n": r.n_tokens, "muted": r.muted,
        "status": "" if r.status == "finished" else r.status,
        "version": r.policy_version,
    }  # fmt: skip


def errors(run: Run) -> dict[str, Any]:
    """Infrastructure errors: how many, at which steps, of what cause."""
    counts = {int(r["step"]): share * (_number(r.get("episodes")) or 0) for r in run.steps if (share := _number(r.get("errors")))}
    causes: Counter[str] = Counter()
    for step in list(counts)[:ERROR_FILES]:
        found = _rollouts([run.folder / "rollouts" / f"step-{step:06}.parquet"])
        causes.update(r.status for r in (found.all if found else []) if r.status.startswith("error"))
    return {"total": round(sum(counts.values())), "steps": list(counts), "causes": causes.most_common()}


def flat(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by dotted path."""
    found: list[tuple[str, str]] = []
    for name, given in config.items():
        path = f"{prefix}{name}"
        found += flat(given, path + ".") if isinstance(given, Mapping) else [(path.removeprefix("set."), json.dumps(given, default=str))]
    return found


def commands(run: Run) -> list[tuple[str, str]]:
    """What to type to repeat, resume and inspect the run."""
    again, resume = run.summary.get("command"), run.summary.get("resume_command")
    quoted = shlex.quote(str(run.folder))
    steps = _number(run.summary.get("steps"))
    model = (run.summary.get("artifacts") or {}).get("policy")
    last = run.folder / "rollouts" / f"step-{run.last.step:06}.parquet" if run.last else None
    found = [
        ("Repeat it from the start", again),
        (
            "Train on for as many steps again" if run.summary else "Go on where it stopped",
            f"{resume} --steps {2 * steps:.0f}" if resume and steps else f"palaestra train --resume {quoted}",
        ),
        ("Measure the trained model, with pass@k", model and f"palaestra eval --model {shlex.quote(str(model))} --task {shlex.quote(run.name('task'))} --k 8"),
        ("Load it", model and f"transformers.AutoModelForCausalLM.from_pretrained({str(model)!r})"),
        ("Read the rollouts", last and f"pyarrow.parquet.read_table({str(last)!r}).to_pylist()"),
    ]
    return [(label, str(text)) for label, text in found if text]


def _number(x: Any) -> float | None:
    return float(x) if isinstance(x, (int, float)) and math.isfinite(x) else None


def duration(seconds: float) -> str:
    """1.2 s, 48 s, 2 min 31 s, 3 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
