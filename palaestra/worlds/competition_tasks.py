"""Competitions as tasks: those of a folder, and those that are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.toys.competitions import KINDS
from palaestra.types import Message, Task, rng_of, seed_of, stage
from palaestra.worlds.competition_files import DRAWN, competition_named


@declare(columns=(("competition", str, "the folder of a competition, or the name of a drawn one"),))
@stage
class CompetitionTasks:
    """Competitions by the names of their folders, each trained on as often as it is drawn, and measured
    once.

    Args:
        folders: of the competitions.
        held_out: how many are not trained on, those with the smallest hashes of their names; 0 = the same
            ones are trained on and measured.
    """

    folders: tuple[str, ...]
    held_out: int = 0
    name: str = "competition"
    size: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < len(self.folders):
            raise UserError(
                f"competition: held_out is from 0 to {len(self.folders) - 1}, one less than there are "
                f"competitions, not {self.held_out}"
            )

    @property
    def caveat(self) -> str:
        """What a reader of the held-out score should know."""
        return (
            ""
            if self.held_out
            else "the competitions that are measured are those that are trained on"
        )

    @property
    def test_size(self) -> int:
        """Each competition that is measured is so once."""
        return len(self.of("test"))

    def task(self, split: str, index: int) -> Task:
        names = self.of(split)
        return competition_task(names[index % len(names)], self.name, split, index)

    def of(self, split: str) -> tuple[str, ...]:
        """The competitions of a split."""
        if not self.held_out:
            return self.folders
        held = sorted(self.folders, key=lambda f: seed_of(("held out", Path(f).name)))[
            : self.held_out
        ]
        return tuple(f for f in self.folders if (f in held) == (split == "test"))


@stage
class DrawnCompetitionTasks:
    """Two kinds of drawn competitions: 12 of each to train on, and 8 of each that are held out."""

    name: str = "competitions"
    size: int | None = None
    test_size: ClassVar[int] = 16

    def task(self, split: str, index: int) -> Task:
        kind, seed = KINDS[index % 2], 12 + index // 2 % 8
        if split == "train":
            rng = rng_of((self.name, split, index))
            kind, seed = KINDS[int(rng.integers(len(KINDS)))], int(rng.integers(12))
        return competition_task(f"{DRAWN}{kind}:{seed}", self.name, split, index)


def competition_task(competition: str, name: str, split: str, index: int) -> Task:
    c = competition_named(competition)
    return Task(
        id=f"{name}/{split}/{index}",
        prompt=(Message(role="user", content=c.description),),
        meta={"competition": competition},
        domain=c.name,
    )
