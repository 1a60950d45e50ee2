"""Trackers by name: those that come with the package, and those of other packages.

Another package adds, as `palaestra.trackers`, what makes a `Tracker` from the text after `NAME:`.
It raises UserError where it cannot work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from palaestra.errors import Fault, UserError
from palaestra.plugins import find, pick
from palaestra.services.threads import run_in_thread
from palaestra.services.tools.names import GIVEN
from palaestra.tasks.user_code import VALUES, spec_of
from palaestra.trackers.accelerated import PACKAGES, Accelerated
from palaestra.trackers.base import Tracker
from palaestra.trackers.feed import SECONDS, THREAD
from palaestra.trackers.like import Trackio, Wandb
from palaestra.trackers.tensorboard import TensorBoard

NONE = "none"  # on the command line: no tracker, also where a resumed run had some
METHODS = ("start", "log", "episodes", "finish")  # of a `Tracker`, in the order of its calls
OWN: Mapping[str, Callable[[str], Tracker]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "tensorboard": TensorBoard,
    "accelerate": Accelerated,
}


def makers(
    targets: Sequence[str], seconds: float = SECONDS, late: Callable[[str], None] | None = None
) -> dict[str, Callable[[], Tracker]]:
    """What makes each tracker of `NAME[:PROJECT]` texts, tried once.

    Args:
        targets: the texts.
        seconds: that making one may take. One that takes longer is left out.
        late: hears the line about one that is left out; None = it is a Fault.

    Raises:
        UserError: an unknown name, one that is given twice, a package that is missing.
        Fault: a tracker took too long.
    """
    make: dict[str, Callable[[], Tracker]] = {}
    for target in targets:
        if target == NONE:
            continue
        if kind(target) in map(kind, make):
            raise UserError(f"--track {target}: {kind(target)} is given twice")
        trial = run_in_thread(partial(_try, target), THREAD)
        try:
            make[target] = trial.result(seconds)
        except TimeoutError:
            if trial.done():  # the tracker's own error
                raise
            why = f"the tracker {target} was not made in {seconds:g} seconds"
            if late is None:
                raise Fault("tracker", f"{why}; mend it, or uninstall its package") from None
            late(
                f"note: {why} and is left out; the run goes on, and palaestra track RUN --to "
                f"{target} sends all of it later"
            )
    return make


def _try(target: str) -> Callable[[], Tracker]:
    """What makes the tracker, which did so once."""
    make = partial(factory(target), target.partition(":")[2])
    make()
    return make


def tracker_names(given: Any) -> tuple[str, ...]:
    """The names of trackers that a program gives: names and objects, or one of them.

    Raises:
        UserError: an object lacks methods of a tracker, or is a class.
    """
    each = given if isinstance(given, list | tuple) else (given,)
    return tuple(x if isinstance(x, str) else _name_object(x) for x in each)


def _name_object(given: Any) -> str:
    """The name under which this process finds a tracker that is an object."""
    if isinstance(given, type):
        raise UserError(f"track takes trackers, not the class {given.__name__}; write it with ()")
    if not isinstance(given, Tracker):
        missing = [n for n in METHODS if not callable(getattr(given, n, None))]
        raise UserError(
            f"track takes names ({', '.join(OWN)}) and objects with the methods "
            f"{', '.join(METHODS)}; a {type(given).__name__} has no {', '.join(missing)}"
        )
    return spec_of(given)


def kind(target: str) -> str:
    """A target without its project: a process has at most one run of each. An object is a kind of
    its own.
    """
    names = target.split(":")
    return ":".join(names[:2]) if names[0] == "accelerate" or _is_given(target) else names[0]


def _is_given(target: str) -> bool:
    return target.startswith(GIVEN)


def factory(target: str) -> Callable[[str], Tracker]:
    """What makes a tracker from the text after its name."""
    if _is_given(target):
        if target not in VALUES:
            called = target.removeprefix(GIVEN)
            raise UserError(
                f"the tracker {called} is an object of another program; give it again with "
                f"track=[{called}], or go on without: --track {NONE}"
            )
        return lambda _: VALUES[target]
    name = target.partition(":")[0]
    if name in PACKAGES and name not in OWN and find("trackers", name) is None:
        raise UserError(f"--track {target}: it works by accelerate: --track accelerate:{target}")
    return pick("trackers", name, OWN, lambda p: p.factory(Tracker, "a tracker"))
