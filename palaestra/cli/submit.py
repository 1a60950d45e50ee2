"""`palaestra submit`: submits a run to a running Ray cluster."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palaestra.cli.train import read_settings
from palaestra.errors import UserError
from palaestra.run.trust import Executables
from palaestra.scale.cluster import Cluster
from palaestra.scale.jobs import ClusterJob, follow, hand_over
from palaestra.settings import overrides, reading


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    check(arguments)
    words = words_of(shlex.split(arguments.command)[2:])
    if names_code(words) and "--trust" not in words:
        words.append("--trust")  # `check` asked here, and nobody can be asked there
    job = ClusterJob.of(arguments.to, words, Path.cwd())
    client, name = hand_over(job)
    result = {"job": name, "address": job.address, "command": job.command}
    print(f"job {name}: it goes on without this process; `{job.call('stop', name)}` ends it")
    if not arguments.detach:
        asyncio.run(follow(client, job, name))
    return result


def check(arguments: argparse.Namespace) -> None:
    """Raises UserError for mistakes that can be detected before anything is sent."""
    flag = "resume" if arguments.resume else "out"
    place = getattr(arguments, flag)
    if not place or not Path(place).is_absolute():
        raise UserError(
            f"submit: --{flag} {place or 'is missing'}; the run folder lies on the cluster and must "
            "outlast the job, so give a whole path there, on a disk that stays: "
            f"--{flag} /PATH/NAME"
        )
    if arguments.resume:  # its settings are in a folder there
        return
    settings = read_settings(arguments)
    overrides.recipe_of(settings)
    if settings.cluster:
        Cluster.read(settings.cluster)


def names_code(words: Sequence[str]) -> bool:
    """Whether a settings file among the words names code to execute."""
    files = [reading.from_file(Path(w[1:])) for w in words if w.startswith("@")]
    return any(Executables.of(given).marks() for given in files)


def words_of(argv: Sequence[str]) -> list[str]:
    """Those that are the run's: without the flags that say where it goes."""
    given, words = iter(argv), list[str]()
    for word in given:
        if word == "--to":
            next(given, None)
        elif not word.startswith("--to=") and word not in ("--detach", "--json"):
            words.append(word)
    return words
