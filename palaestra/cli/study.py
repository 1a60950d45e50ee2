"""`palaestra study`: looks at a model: what training did to it, and what it knows."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestra.api.studying import ALL, check_up, make_study, read_report, studies, with_its_problem
from palaestra.cli.train import read_settings
from palaestra.errors import UserError
from palaestra.run.study import holds_out
from palaestra.search.named import file_name
from palaestra.settings.fields import Settings
from palaestra.studies.page import PAGE


def run(arguments: argparse.Namespace) -> dict[str, Any] | list[Any]:
    if arguments.list:
        return listed(arguments)
    words = [w for w in arguments.words if not w.startswith("@") and "=" not in w]
    if len(words) != 1:
        raise UserError("name one study, or all; `palaestra study --list` shows them")
    every = words[0] == ALL
    arguments.words = [w for w in arguments.words if not (every and w == ALL)]
    settings = read_settings(arguments)
    if arguments.base:
        settings = replace(settings, set={"base": arguments.base, **settings.set})
    problem = with_its_problem(settings) if every else settings
    out = Path(arguments.out) if arguments.out else name_of_folder(words[0], problem)
    talk = not arguments.json
    if every:
        place, folders = out, check_up(settings, out, talk=talk)
    else:
        place = make_study(settings, out, talk=talk)
        folders = {words[0]: place}
    reports = {name: read_report(folder) for name, folder in folders.items()}
    if talk:
        print()
        for name, report in reports.items():
            print(f"{name}: {report['question']}" if every else report["question"])
            print(*(f"  {line}" for line in report["findings"]), "", sep="\n")
        print(f"page: {place / PAGE}")
    return reports if every else reports[words[0]]


def listed(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The studies and what each answers; those of the check-up and those that train are marked."""
    known = studies()
    if not arguments.json:
        width = max(map(len, known))
        for name, study in known.items():
            mark = "*" if study.check_up else "+" if holds_out(study) else " "
            print(f"{name:<{width}}  {mark} {study.question}")
        print(f"\n* in the check-up: palaestra study {ALL} --model DIR --data F")
        print("+ trains copies of the model, and takes as long as that does")
    return [
        {
            "study": name,
            "question": study.question,
            "check_up": study.check_up,
            "trains": holds_out(study),
        }
        for name, study in known.items()
    ]


def name_of_folder(study: str, settings: Settings) -> Path:
    """Where a study lies that is given no folder: runs/study-NAME-PROBLEM-MODEL-sSEED."""
    end = "/".join(Path(settings.model).parts[-3:])
    problem = Path(settings.problem).stem if settings.problem else ""
    words = [w for w in ("study", study, problem, end, f"s{settings.seed}") if w]
    return Path("runs") / "-".join(file_name(w) for w in words)
