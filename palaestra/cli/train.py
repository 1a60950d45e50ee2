"""`palaestra train`: trains a model."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from palaestra import values
from palaestra.api.run import Run
from palaestra.api.training import check_kept, lasting, stored_run, work
from palaestra.ends import (
    ENDS,
    HELD_OUT,
    SHARES,
    HeldOut,
    all_of,
    describe_changes_on_the_way,
    found_beside,
)
from palaestra.errors import UserError
from palaestra.run.best import FOLDER
from palaestra.run.origin import check_files
from palaestra.run.trust import KEY_FIELD, check_code
from palaestra.settings import commands, overrides, reading
from palaestra.settings.fields import Settings
from palaestra.store.folder import loading_class
from palaestra.view.report import parts_below

MOST_NUMBERS = 12  # that are told beside the held-out problems
NEVER_RIGHT = (
    "no held-out answer was right, before or after; where no training answer is right either, nothing "
    "can be learned from rewards: begin with imitation (sft), or with easier problems"
)


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    settings = read_settings(arguments)
    out = work(settings, out=arguments.out, resume=arguments.resume, smoke=arguments.smoke)
    summary = dict(Run(out).summary)
    if not arguments.json:
        print(
            farewell(
                summary, overrides.merge(Settings(), reading.from_file(out / "config.toml")), out
            )
        )
    return summary


def read_settings(arguments: argparse.Namespace) -> Settings:
    """Merges settings of the resumed folder, files, flags and words; later ones override earlier."""
    words = [w for w in arguments.words if not w.startswith("@")]
    recipes = [w for w in words if "=" not in w]
    if len(recipes) > 1:
        raise UserError(
            f"one recipe at a time, not {' and '.join(recipes)}; `palaestra compare` runs several"
        )
    named = {"recipe": recipes[0]} if recipes else {}
    files = [
        (p, reading.from_file(p))
        for w in arguments.words
        if w.startswith("@")
        for p in [Path(w[1:])]
    ]
    given = {
        f.name: v for f in fields(Settings) if (v := getattr(arguments, f.name, None)) is not None
    }
    for path, file_values in files:
        check_code(path, file_values | key_for(file_values, given, arguments))
    # so that the fields a file sets are those of the recipe asked for
    before = settings = Settings(**named)
    resumed = getattr(arguments, "resume", None)
    if resumed:
        folder, accept = Path(resumed), arguments.accept_changes
        before = stored_run(folder)
        anew = {k: v for values in (*(f for _, f in files), given) for k, v in values.items()}
        check_files(folder, before, anew, accept=accept)
        settings = lasting(folder, before, accept=accept)
    for _, file_values in files:
        settings = overrides.merge(settings, file_values)
    paths = values.overrides([w for w in words if "=" in w])
    settings = overrides.merge(settings, named | given | ({"set": paths} if paths else {}))
    if resumed:
        check_kept(before, settings, Path(resumed))
    return settings


def key_for(
    values: Mapping[str, Any], given: Mapping[str, Any], arguments: argparse.Namespace
) -> dict[str, str]:
    """The variable of an API key that the user gave, where the file says whom it is sent to: that is
    asked for as a key which the file names. With an engine of the user's own it goes there.
    """
    key = getattr(arguments, "key_env", "")
    return {KEY_FIELD: key} if key and "engine" in values and "engine" not in given else {}


def farewell(summary: dict[str, Any], settings: Settings, out: Path) -> str:
    lines = [""]
    parts = summary.get("parts", {})
    for row in parts_below(out, parts):
        lines += [f"part {row['name']}: {line}" for line in lines_of_part(row, parts)]
    # a pipeline that measured what its last part did has said so
    if not parts or measured(summary) != measured([*parts.values()][-1]):
        lines += measured(summary)
    lines += measured_beside(summary)
    if used := summary.get("tools"):
        lines.append(f"tools    {tool_use(used)}")
    if summary.get("caveat"):
        lines.append(f"note     {summary['caveat']}")
    if never_right(summary):
        lines.append(f"note     {NEVER_RIGHT}")
    if changed := describe_changes_on_the_way(summary):
        lines.append(f"note     {changed}")
    model = summary["artifacts"].get("policy")
    if model:
        lines += [
            "",
            f"model    {model}",
            f"         transformers.{loading_class(model)}.from_pretrained({model!r})",
        ]
    if best := summary.get("best"):
        value = f"{best['measure']} {best['value']:.3g} after step {best['step']}"
        lines.append(f"best     {out / FOLDER} ({value})")
    lines += [
        f"report   {out / 'report.html'}",
        f"curve    {out / 'curve.png'}",
        *([] if changed else [f"repeat   {summary['command']}"]),
        f"resume   {summary['resume_command']} --steps N",
        f"inspect  {commands.inspect_command(asdict(settings), summary, out)}",
    ]
    return "\n".join(lines)


def never_right(summary: Mapping[str, Any]) -> bool:
    """Whether all held-out answers were wrong, both before and after training."""
    accuracies = [summary.get(f"accuracy_{end}") for end in ENDS]
    return all(
        x is not None and x.get("of", "accuracy") == "accuracy" and x["mean"] == 0
        for x in accuracies
    )


def lines_of_part(row: Mapping[str, str], parts: Mapping[str, Any]) -> list[str]:
    """What a row of `parts_below` says of a part: its cost and its training in a line, then what was
    measured on held-out problems.
    """
    part: Mapping[str, Any] = {"parts": parts}
    for name in row["name"].split("/"):
        part = part["parts"][name]
    steps = "1 step" if row["steps"] == "1" else f"{row['steps']} steps"
    cost = [
        steps if row["steps"] else "",
        f"{row['tokens']} sampled tokens" if row["tokens"] else "",
        row["time"],
        f"{row['course']} (first step → last)" if row["course"] else "",
    ]
    line = ", ".join(filter(None, cost))
    return [*([line] if line else []), *measured(part)]


def measured(summary: Mapping[str, Any]) -> list[str]:
    """What was measured on held-out problems, a line each."""
    return [
        f"{HELD_OUT[value['of']]} {end:<7} {describe_score(value)}  n = {value['n']}"
        for end in ENDS
        for value in all_of(summary, end)
    ]


def measured_beside(summary: Mapping[str, Any]) -> list[str]:
    """What evaluators and programs found, a line each, as far as they are few."""
    others = found_beside(summary)
    lines = [
        f"{name}  {' -> '.join(told_number(x) for x in each)}"
        for name, each in [*others.items()][:MOST_NUMBERS]
    ]
    more = len(others) - len(lines)
    return [*lines, *([f"and {more} more numbers in summary.json"] if more > 0 else [])]


def told_number(x: HeldOut | float) -> str:
    return describe_score(x.json()).strip() if isinstance(x, HeldOut) else f"{x:.4g}"


def tool_use(used: dict[str, float]) -> str:
    """How tools were used at the end, for people."""
    calls = f"{used['calls']:.2f} calls an answer in the last step"
    shares = {"malformed": "could not be read", "errors": "of the others gave an error"}
    shares_text = [f"{used[k]:.0%} {text}" for k, text in shares.items() if k in used]
    by_tool = {k.removeprefix("calls/"): x for k, x in used.items() if k.startswith("calls/")}
    each = ", ".join(f"{name} {x:.2f}" for name, x in by_tool.items())
    return ", ".join([calls, *shares_text]) + (f"; by tool: {each}" if len(by_tool) > 1 else "")


def describe_score(summary: dict[str, Any]) -> str:
    """An evaluation for people: a share in per cent, anything else with its unit."""
    if summary.get("of", "accuracy") in SHARES:
        return percent(summary)
    ends = (
        "" if summary["low"] is None else f"  (95%: {summary['low']:.3f} to {summary['high']:.3f})"
    )
    unit = f" {summary['unit']}" if summary.get("unit") else ""
    return f"{summary['mean']:6.3f}{unit}{ends}"


def percent(values: dict[str, Any]) -> str:
    """An interval for people; one value alone has no bounds."""
    bounds = (
        ""
        if values["low"] is None
        else f"  (95%: {100 * values['low']:.1f} to {100 * values['high']:.1f})"
    )
    return f"{100 * values['mean']:5.1f}%{bounds}"
