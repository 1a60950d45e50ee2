"""ScienceWorld's experiments as worlds: `scienceworld:find-living-thing(simplifications=easy)`, or
`ScienceWorldTask`. It runs in Java.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.types import Task, need_at_least, stage
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Live,
    Lives,
    Scene,
    library_call,
    missing_library,
)
from palaestra.worlds.adapters.textworld import SOLVED, last_command, refuse_settings

IDLE: list[Any] = []  # simulators that no episode uses: a Java machine takes seconds to start


@stage
class ScienceWorldTask(AdaptedWorld):
    """A task of ScienceWorld (https://github.com/allenai/ScienceWorld), whose variations are the episodes;
    the held-out ones are the library's own test variations.

    Args:
        make: the task's name.
        settings: none.
        simplifications: the library's, apart by commas, or "easy".
        steps: actions after which an episode is cut.
        sessions: simulators that run at a time, a Java machine each; further episodes wait.

    The command is the last line of a reply. The score, of 0 to 100, is paid in hundredths as it
    changes; what stands at the start is paid with the first action. A failure, which the library
    scores below 0, takes back what was paid.
    """

    draws: ClassVar[bool] = False
    make: str
    settings: tuple[tuple[str, Any], ...] = ()
    simplifications: str = field(default="", kw_only=True)
    steps: int = field(default=100, kw_only=True)
    sessions: int = field(default=4, kw_only=True)
    solved: float | None = field(default=SOLVED, kw_only=True)

    def __post_init__(self) -> None:
        refuse_settings(self.label, self.settings)
        need_at_least(self, steps=1, sessions=1)
        load_library(self.label)
        object.__setattr__(self, "lives", Lives(self.sessions))
        variations(self.make, self.simplifications)

    @property
    def label(self) -> str:
        return f"scienceworld:{self.make}"

    @property
    def max_turns(self) -> int:
        return self.steps + self.retries + 1

    @property
    def size(self) -> int | None:
        return len(variations(self.make, self.simplifications)[0])

    @property
    def test_size(self) -> int | None:
        return len(variations(self.make, self.simplifications)[1])

    @property
    def caveat(self) -> str:
        return ""

    def task(self, split: str, index: int) -> Task:
        train, test = variations(self.make, self.simplifications)
        variation = (test if split == "test" else train)[index]
        return Task(
            id=f"{self.label}/{split}/{variation}",
            meta={"seed": variation, "plays": ""},
            domain=self.label,
        )

    def open_live(self) -> Live:
        return ScienceWorldEpisode(self, IDLE.pop() if IDLE else open_simulator(self.label))


def load_library(label: str) -> Any:
    if shutil.which("java") is None:
        raise UserError(
            f"{label} needs Java 8 or later: install it, for example default-jre-headless"
        )
    try:
        return import_module("scienceworld")
    except ImportError as error:
        raise missing_library(label, "ScienceWorld", "scienceworld", error) from None


def open_simulator(label: str) -> Any:
    with library_call(label):
        return load_library(label).ScienceWorldEnv("")


@lru_cache(maxsize=64)
def variations(task: str, simplifications: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of a task's variations to train and to test on. Raises UserError where there is no
    such task or simplification.
    """
    label = f"scienceworld:{task}"
    simulator = IDLE.pop() if IDLE else open_simulator(label)
    try:
        names = list(simulator.task_names)
        if task not in names:
            near = suggestion(task, names) or f"; there are {', '.join(names)}"
            raise UserError(f"ScienceWorld has no task {task!r}{near}")
        try:
            simulator.load(task, 0, simplifications)
        except ValueError as error:
            raise UserError(f"{label}: {' '.join(str(error).split())}") from None
        train, test = simulator.get_variations_train(), simulator.get_variations_test()
        return tuple(map(int, train)), tuple(map(int, test))
    finally:
        IDLE.append(simulator)


@dataclass
class ScienceWorldEpisode:
    """One variation as it is played."""

    world: ScienceWorldTask
    simulator: Any
    paid: float = 0.0

    def start(self, seed: int) -> Scene:
        with library_call(self.world.label):
            self.simulator.envStepLimit = self.world.steps
            self.simulator.load(self.world.make, seed, self.world.simplifications)
            observation, info = self.simulator.reset()
        return Scene(text=f"{str(info['taskDesc']).strip()}\n\n{str(observation).strip()}")

    def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            observation, _, over, info = self.simulator.step(action)
        share = max(info["score"], 0) / 100
        pay, self.paid = share - self.paid, share
        cut = info["moves"] > self.world.steps and 0 <= info["score"] < 100
        status = "" if not over else "truncated:environment" if cut else "finished"
        return Scene(text=str(observation).strip(), pay={POLICY: pay}, status=status)

    def read(self, text: str) -> str:
        return last_command(text)

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    def close(self) -> None:
        """Leaves the simulator to the next episode."""
        IDLE.append(self.simulator)
