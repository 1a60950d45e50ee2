"""Trackers by name: those that come with the package, and those of other packages.

Another package adds, as `palaestra.trackers`, what makes a `Tracker` from the text after `NAME:`.
It raises UserError where it cannot work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from palaestra.errors import UserError
from palaestra.plugins import find, pick
from palaestra.trackers.accelerated import PACKAGES, Accelerated
from palaestra.trackers.base import Tracker
from palaestra.trackers.like import Trackio, Wandb
from palaestra.trackers.tensorboard import TensorBoard

NONE = "none"  # on the command line: no tracker, also where a resumed run had some
OWN: Mapping[str, Callable[[str], Tracker]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "tensorboard": TensorBoard,
    "accelerate": Accelerated,
}


def makers(targets: Sequence[str]) -> dict[str, Callable[[], Tracker]]:
    """What makes each tracker of `NAME[:PROJECT]` texts, tried once.

    Raises UserError for an unknown name, one that is given twice, and a package that is missing.
    """
    make: dict[str, Callable[[], Tracker]] = {}
    for target in targets:
        if target == NONE:
            continue
        if kind(target) in map(kind, make):
            raise UserError(f"--track {target}: {kind(target)} is given twice")
        make[target] = partial(factory(target), target.partition(":")[2])
        make[target]()
    return make


def kind(target: str) -> str:
    """A target without its project: a process has at most one run of each."""
    names = target.split(":")
    return ":".join(names[:2]) if names[0] == "accelerate" else names[0]


def factory(target: str) -> Callable[[str], Tracker]:
    """What makes a tracker from the text after its name."""
    name = target.partition(":")[0]
    if name in PACKAGES and name not in OWN and find("trackers", name) is None:
        raise UserError(f"--track {target}: it works by accelerate: --track accelerate:{target}")
    return pick("trackers", name, OWN, lambda p: p.factory(Tracker, "a tracker"))
