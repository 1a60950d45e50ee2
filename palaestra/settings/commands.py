"""Commands and calls that repeat, resume and measure a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from palaestra.services.tools.names import GIVEN
from palaestra.settings.fields import TASK, VALUE, Settings, Use, flag_of, setting_names, words_of


def eval_command(given: Mapping[str, Any], model: str) -> str:
    """What measures a model on the held-out problems of these settings."""
    chosen = Settings(**{n: v for n in setting_names(Use.MEASURED) if (v := given.get(n))})
    named = {n: chosen.meant(n) for n in setting_names(Use.MEASURED) if chosen.says(n)}
    if not {"task", "data", "env"} & named.keys():
        named = {"task": Settings().problem, **named}
    flags = {n: "--n" if n == "evaluate" else flag_of(n) for n in named}
    words = (
        flags[n] if v is True else f"{flags[n]} {shlex.quote(x)}"
        for n, v in named.items()
        for x in words_of(v)
    )
    return " ".join(["palaestra eval --model", shlex.quote(model), *words, "--k 8"])


def measure_command(given: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """What measures the policy that a run, or a part of it, trained with these settings; "" where
    no command can: no policy was kept, no answer can be judged, the part has a problem of its own,
    or only a program has the reward or the tools.
    """
    model = (summary.get("artifacts") or {}).get("policy")
    whole = given.get("env") or given.get("data") or given.get("task") or TASK
    elsewhere = summary.get("part") and summary.get("task", whole) != whole
    values_of_program = any(GIVEN in str(given.get(n, "")) for n in ("reward", "tools"))
    has_reward = summary.get("answers_judged", True)
    if not model or not has_reward or elsewhere or values_of_program:
        return ""
    return eval_command(given, str(model))


def inspect_command(given: Mapping[str, Any], summary: Mapping[str, Any], out: Path) -> str:
    """What to type to see more of a finished run: its policy on held-out problems, or all that was
    measured where no answers of a trained policy can be judged.
    """
    if measuring := measure_command(given, summary):
        return measuring
    text = (
        f"import palaestra; print(palaestra.open({json.dumps(str(out))}).evaluations.to_pylist())"
    )
    return f"python -c {shlex.quote(text)}"


def commands(settings: Settings, out: Path) -> dict[str, str]:
    """What repeats a run, and what goes on with it: commands, or calls of `train` where only the
    program can give its values again.
    """
    if values_given(settings):
        return {"command": call(settings), "resume_command": call(settings, resume=str(out))}
    return {
        "command": f"palaestra train @{shlex.quote(str(out / 'config.toml'))}",
        "resume_command": f"palaestra train --resume {shlex.quote(str(out))}",
    }


def values_given(settings: Settings) -> dict[str, str]:
    """Settings that only the program can give again, and what it calls their values."""
    values = {"recipe": "recipe"} if settings.recipe == VALUE else {}
    if GIVEN in settings.reward:
        values["reward"] = settings.reward.replace(GIVEN, "")
    for name, names in (("tools", settings.tools), ("track", settings.track)):
        if any(GIVEN in x for x in names):
            called = [x.removeprefix(GIVEN) if GIVEN in x else repr(x) for x in names]
            values[name] = f"[{', '.join(called)}]"
    return values


def call(settings: Settings, **more: Any) -> str:
    """The call of `train` that makes the run, for a program that has the values at hand."""
    own = values_given(settings)
    words = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name != "recipe"}
    words_by_name = {n: repr(x) for n, x in words.items() if settings.says(n)} | own
    first = words_by_name.pop("recipe", repr(settings.recipe))
    words_by_name |= {n: repr(x) for n, x in more.items()}
    return f"palaestra.train({', '.join([first, *(f'{n}={x}' for n, x in words_by_name.items())])})"
