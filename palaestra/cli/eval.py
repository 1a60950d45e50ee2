"""`palaestra eval`: measures a model on held-out problems."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from math import isfinite
from typing import Any

from palaestra.api.asking import evaluate_given
from palaestra.cli.train import describe_score, read_settings
from palaestra.ends import HeldOut, numbers_in
from palaestra.errors import UserError
from palaestra.run.parts import go_on, stoppable
from palaestra.store.checkpoint import jsonable


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.strategy:
        return curve(arguments)
    if arguments.budget or arguments.reward_model:
        raise UserError("--budget and --reward-model belong to a search; add --with NAME")
    settings = asdict(read_settings(arguments))
    result = evaluate_given(
        settings.pop("model"),
        settings,
        n=arguments.n,
        k=arguments.k,
        temperature=arguments.temperature,
        key_env=arguments.key_env,
        out=arguments.out,
        talk=not arguments.json,
    )
    if "metrics" in result:
        if not arguments.json:
            print(*harness_lines(result), sep="\n")
        return jsonable(result)
    if not arguments.json:
        table(result)
        if arguments.out:
            print(f"attempts: palaestra view {shlex.quote(arguments.out)}")
    return jsonable(result)


def curve(arguments: argparse.Namespace) -> dict[str, Any]:
    """Accuracy against generated tokens of searches."""
    from palaestra.search.answers import name_of_folder
    from palaestra.search.curve import curve_given

    settings = read_settings(arguments)
    out = arguments.out or str(name_of_folder(settings, "curve"))
    with stoppable(lambda: go_on(arguments.command)):
        result = curve_given(
            settings,
            arguments.strategy,
            arguments.budget,
            arguments.reward_model,
            arguments.n,
            out,
            talk=not arguments.json,
        )
    if not arguments.json:
        print(
            f"{result['model']} on {result['task']}, {result['n']} held-out problems (95% intervals)"
        )
        for label, each in result["curves"].items():
            print(f"  {label}")
            for point in each["points"]:
                print(f"    {point['budget']:>7} tokens  {describe_score(point)}")
            if "above majority" in each:
                print(f"    above majority  {describe_difference(each)}")
        print(f"picture: {result['picture']}")
    return result


def describe_difference(curve: dict[str, Any]) -> str:
    """How far a search is above the majority vote with the greatest budget, problem by problem."""
    return describe_score({"of": curve["points"][-1]["of"], **curve["above majority"]})


def harness_lines(result: dict[str, Any]) -> list[str]:
    """The metrics of lm-evaluation-harness or Inspect, for people."""
    head = f"{result['model']} on {result['task']}, up to {result['n']} items of a task (95% intervals)"
    rows = [
        (path, describe_score(x.json()) if isinstance(x, HeldOut) else f"{x:.4g}")
        for path, x in numbers_in(result["metrics"])
    ]
    return [head, *(f"  {path:<28} {text}" for path, text in rows)]


def table(result: dict[str, Any]) -> None:
    print(f"{result['model']} on {result['task']}, {result['n']} held-out problems (95% intervals)")
    for name, values in result.items():
        if isinstance(values, dict) and "mean" in values:
            unit = "mean reward" if values["of"] == "reward" else "accuracy"
            print(
                f"  {f'{name}, {unit}' if name == 'greedy' else name:<20} {describe_score(values)}"
            )
    for name, values in result.items():
        if name.startswith("tools/") and isfinite(values):
            print(f"  {name:<20} {values:.3f}")
    if len(result["domains"]) > 1:
        print("  greedy by domain")
        for name, values in result["domains"].items():
            print(f"    {name:<24} {describe_score(values)}  n = {values['n']}")
    if result["errors"]:
        print(f"  {result['errors']} episodes ended in an error and are left out")
