"""A run folder as read: finished or not, whole or cut off."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.ends import SHARES, HeldOut, HeldOutKind, end_of, numbers_in, parts_of
from palaestra.errors import UserError
from palaestra.markdown import escape_controls
from palaestra.stats import Interval
from palaestra.store.limits import UNREADABLE, json_object, read_text
from palaestra.store.reading import StepRollouts, number
from palaestra.types import value_class

# members of records and summaries that are read as these
SHAPES: Mapping[str, type] = {
    "artifacts": dict,
    "beside": list,
    "changed": list,
    "evaluation": dict,
    "evaluations": dict,
    "parts": dict,
    "set": dict,
    "steps": int,
}
SUMMARY = "summary.json"  # of a run, or a part of one, that has ended
NO_PLACE = "a run folder has config.toml, metrics.jsonl and, when it has ended, summary.json"


@value_class
class RunFolder:
    """A run folder as read. What is missing is empty."""

    folder: Path
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    evaluations: Sequence[tuple[float, Interval]]
    of: HeldOutKind  # what evaluations measure
    held: Sequence[tuple[float, HeldOut]]  # all that they measured, by step
    # what evaluators measured: step, path of the number, number
    beside: Sequence[tuple[float, str, HeldOut | float]]
    first: StepRollouts | None
    last: StepRollouts | None

    @property
    def is_share(self) -> bool:
        """Whether evaluations are shares, told in per cent."""
        return self.of in SHARES

    @property
    def unit(self) -> str:
        """Of what evaluations measure; "" = shares, or what has none."""
        return next((h.unit for _, h in self.held if h.of == self.of), "")

    @property
    def parts(self) -> Mapping[str, Mapping[str, Any]]:
        """Metrics of a pipeline's parts by name, in order."""
        return self.summary.get("parts") or {}

    @property
    def problem(self) -> str:
        """A name for headings of what was learned; nothing where parts learned different things."""
        several = {part.get("task") for part in self.parts.values()}
        return "" if len(several) > 1 else self.label("task")

    def name(self, field: str) -> str:
        return str(self.summary.get(field) or self.config.get(field) or "")

    def label(self, field: str) -> str:
        """A name for headings: of a path its end."""
        return escape_controls(self.name(field).rstrip("/").rsplit("/", 1)[-1])


def read_run(folder: Path) -> RunFolder:
    """Reads a run folder, or that of a pipeline's part; what a killed run left unfinished is passed
    over.
    """
    if not is_run(folder):
        raise UserError(f"{folder} is not a run folder: it has no config.toml ({NO_PLACE})")
    lines = records(folder / "metrics.jsonl")
    files = sorted(f for f in (folder / "rollouts").glob("step-*.parquet") if f.is_file())
    summary = read_summary(folder)
    first, last = (rollouts_of(files), rollouts_of(files[::-1])) if files else (None, None)
    return RunFolder(
        folder=folder,
        config=read_config(folder),
        summary=summary,
        steps=[r for r in lines if is_step(r)],
        evaluations=evaluations_of(since_changed(lines)),
        of=measured(summary, lines),
        held=[
            (float(r["step"]), held)
            for r in lines
            if isinstance(r.get("evaluation"), Mapping)
            for part in parts_of(r["evaluation"])
            if (held := HeldOut.read(part)) is not None
        ],
        beside=[
            (float(r["step"]), name, number)
            for r in lines
            if isinstance(r.get("evaluations"), Mapping)
            for name, number in numbers_in(r["evaluations"])
        ],
        first=first,
        last=last if first and last and last.step != first.step else None,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The settings in a folder's config.toml; empty where there are none, or nobody can read them."""
    try:
        return tomllib.loads(read_text(folder / "config.toml"))
    except (OSError, ValueError, RecursionError):
        return {}


def is_run(folder: Path) -> bool:
    """Whether there is a run in it."""
    return any((folder / n).is_file() for n in ("config.toml", "metrics.jsonl"))


def is_step(record: Mapping[str, Any]) -> bool:
    """Whether a line of metrics.jsonl has the metrics of a step, and not an evaluation or a change."""
    return bool(record.keys() - {"step", "evaluation", "evaluations", "changed", "set"})


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl: objects with a whole number as their `step`. A line that is none
    is left out. Raises UserError for a file above the limit (`store.limits`).
    """
    lines = (tidy(json_object(line)) for line in read_text(path).splitlines() if line.strip())
    return [r for r in lines if isinstance(r.get("step"), int) and not isinstance(r["step"], bool)]


def tidy(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A record with what its readers rely on, whoever wrote it: whole numbers have at most 64 bits,
    and what has a `mean` is an evaluation, with numbers or None. What is none of it is None.
    """
    record = {k: _tidy_value(v) for k, v in stored.items()}
    if "mean" in record:
        record |= {k: number(record[k]) for k in ("mean", "low", "high") if k in record}
        record |= {"n": int(number(record["n"]) or 0)} if "n" in record else {}
    for name, kind in SHAPES.items():
        if name in record and not isinstance(record[name], kind):
            del record[name]
        elif kind is list and name in record:
            record[name] = [x for x in record[name] if isinstance(x, dict)]
        elif name == "parts" and name in record:
            record[name] = {k: x for k, x in record[name].items() if isinstance(x, dict)}
    return record


def _tidy_value(x: Any) -> Any:
    if isinstance(x, dict):
        return tidy(x)
    if isinstance(x, list):
        return list(map(_tidy_value, x))
    return None if isinstance(x, int) and abs(x) >= 1 << 63 else x


def read_summary(folder: Path) -> dict[str, Any]:
    """What a run said at its end; empty while it has not ended.

    Where the folder was moved, the models that it keeps are those that lie in it now.
    """
    summary = tidy(json_object(read_text(folder / SUMMARY)))
    if kept := summary.get("artifacts"):
        summary["artifacts"] = {name: moved_to(folder, str(path)) for name, path in kept.items()}
    return summary


def moved_to(folder: Path, path: str) -> str:
    """The path, or where nothing is there any more, what has the longest end of it inside the
    folder.
    """
    if not Path(path).exists():
        parts = Path(path).parts
        inside = (folder.joinpath(*parts[i:]) for i in range(1, len(parts)))
        return next((str(p) for p in inside if p.exists()), path)
    return path


def rollouts_of(files: Sequence[Path]) -> StepRollouts | None:
    """The first file that can be read and holds something."""
    for path in files[:3]:
        try:
            rollouts = StepRollouts(path)
        except (*UNREADABLE, UserError):  # also one above a limit: it is an example
            continue
        if rollouts.all:
            return rollouts
    return None


def measured(summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> HeldOutKind:
    """What the evaluations of a run are of: a mean reward if any of them is."""
    given = [r["evaluation"] for r in records if isinstance(r.get("evaluation"), Mapping)]
    held_out = (
        HeldOut.read(x) for x in (end_of(summary, "before"), end_of(summary, "after"), *given)
    )
    of: HeldOutKind = "accuracy"
    for i, held in enumerate(x for x in held_out if x is not None):
        of = held.of if i == 0 or held.of == "reward" else of
    return of


def since_changed(records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The records since the run went on with another problem: earlier evaluations cannot be
    compared with later ones.
    """
    at = [i for i, r in enumerate(records) if "changed" in r]
    return records[at[-1] + 1 :] if at else records


def evaluations_of(records: Sequence[Mapping[str, Any]]) -> list[tuple[float, Interval]]:
    """The evaluation records of a metrics.jsonl."""
    return [
        (float(r["step"]), Interval.of(r["evaluation"]))
        for r in records
        if isinstance(r.get("evaluation"), Mapping)
    ]


def flatten_settings(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Settings by dotted path."""
    pairs: list[tuple[str, str]] = []
    for name, given in config.items():
        path = f"{prefix}{name}"
        pairs += (
            flatten_settings(given, path + ".")
            if isinstance(given, Mapping)
            else [(path.removeprefix("set."), json.dumps(given, default=str))]
        )
    return pairs


def loading_class(model: str) -> str:
    """The name of the class of transformers that loads a saved model: a processor lies beside one
    that sees pictures or hears sounds, and one for sounds is in it.
    """
    try:
        processor = json.loads((Path(model) / "processor_config.json").read_text("utf-8"))
    except OSError:
        return "AutoModelForCausalLM"
    hears = "feature_extractor" in processor
    return "AutoModelForMultimodalLM" if hears else "AutoModelForImageTextToText"
