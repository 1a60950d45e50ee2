"""What the own engine knows of a sequence that it samples or scores."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from palaestra.engines.drafts import Drafted
from palaestra.pictures import Picture
from palaestra.types import Completion, Sampling


@dataclass(eq=False)
class SampleRequest:
    """A sequence under way."""

    prompt: tuple[int, ...]
    sampling: Sampling
    uniform_T: np.ndarray
    done: asyncio.Future[Completion]
    pictures: tuple[Picture, ...] = ()
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    version: int = 0  # of the weights that drew its first token
    versions: list[tuple[int, int]] = field(default_factory=list)  # (token, version) of later ones
    moved: bool = False  # the weights did, under way: what its slot holds is of no weights
    given: tuple[int, ...] = ()  # what it says, where it is only scored
    # [3, T + 1] how far its prompt, and what follows, is turned beyond its places; None = not at all
    shift: np.ndarray | None = None
    drafted: Drafted | None = None  # what its drafts know of it; None = it has none

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.ids)

    @property
    def longest(self) -> int:
        """What its length can become."""
        return len(self.prompt) + len(self.uniform_T)
