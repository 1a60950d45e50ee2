"""Where a stage is in a run, which every face of the context knows."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from palaestra.context import Bench, Carrier
from palaestra.markdown import escape_controls
from palaestra.rollout.tickets import InProcess
from palaestra.run.clocks import Clocks
from palaestra.types import Key, Player

if TYPE_CHECKING:
    from palaestra.context import Context


@dataclass(kw_only=True)
class RunSituation:
    """The problem, seed and step of a run, and its terminal."""

    bench: Bench
    seed: int
    out: Path | None = None
    players: Mapping[str, Player] = field(default_factory=dict)  # seats that are not the policy's
    talk: bool = False  # progress and notes on standard error
    place: Key = ()  # names of the parts that this one lies in

    step: int = field(init=False, default=0)
    # records that checks leave out: their places, and why
    omissions: list[tuple[str, str]] = field(init=False, repr=False, default_factory=list)
    # where the rollouts happen
    carrier: Carrier = field(init=False, repr=False, compare=False, default_factory=InProcess)
    clocks: Clocks = field(init=False, repr=False, compare=False)

    @property
    def context(self) -> Context:
        """This object as all faces: each of them is a part of a `RunContext`."""
        return cast("Context", self)

    def say(self, text: str) -> None:
        """A note to the person at the terminal."""
        if self.talk:
            # escaped here too: beside a live display it does not pass the program's stream
            print(escape_controls(text), file=sys.stderr, flush=True)
