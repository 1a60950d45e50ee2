"""`palaestra eval`: measures a model on held-out problems."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from math import isfinite
from typing import Any

from palaestra.api.asking import evaluate_given
from palaestra.cli.train import describe_score, read_settings
from palaestra.store.checkpoint import jsonable


def run(arguments: argparse.Namespace) -> dict[str, Any]:
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
    if not arguments.json:
        table(result)
        if arguments.out:
            print(f"attempts: palaestra view {shlex.quote(arguments.out)}")
    return jsonable(result)


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
