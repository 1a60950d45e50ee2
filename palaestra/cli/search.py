"""`palaestra search`: answers problems by a search with a budget of generated tokens for each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.cli.train import describe_score, read_settings
from palaestra.run.parts import go_on, stoppable
from palaestra.search.answers import ANSWERS, Line, name_of_folder, search_given
from palaestra.search.named import strategy_by_name

WIDEST = 60  # characters of an answer in a line for people


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = read_settings(arguments)
    name, _ = strategy_by_name(arguments.strategy)
    out = Path(arguments.out) if arguments.out else name_of_folder(settings, name)
    tell = tell_as_json if arguments.json else tell_person
    with stoppable(lambda: go_on(arguments.command)):
        result = search_given(
            settings,
            arguments.strategy,
            arguments.budget,
            arguments.reward_model,
            arguments.n,
            out,
            tell,
            talk=not arguments.json,
        )
    del result["answers"]
    if not arguments.json:
        print(describe(result))
        print(f"answers: {out / ANSWERS}")
    return result


def tell_as_json(line: Line) -> None:
    print(json.dumps(line), flush=True)


def tell_person(line: Line) -> None:
    """A problem and its answer, as soon as those before it are there."""
    mark = {True: "right", False: "wrong", None: ""}[line.get("solved")]
    answer = line.get("error") or " ".join(str(line["answer"]).split())
    more = "" if len(answer) <= WIDEST else "…"
    print(f"{line['problem'] + 1:>5}  {mark:<5}  {answer[:WIDEST]}{more}", flush=True)


def describe(result: Mapping[str, Any]) -> str:
    """What a search found, for people."""
    lines = [
        f"{result['strategy']}, {result['model']} on {result['task']}, {result['n']} problems, "
        f"{result['tokens']:.0f} generated tokens each (budget {result['budget']})"
    ]
    for of in ("accuracy", "reward"):
        if of in result:
            lines.append(f"  {of:<9} {describe_score(result[of])}  n = {result[of]['n']}")
    if result["oracle"]:
        lines.append("  an oracle: it chose by a verifier that has the answer")
    if result["errors"]:
        lines.append(f"  {result['errors']} problems ended in an error and are left out")
    return "\n".join(lines)
