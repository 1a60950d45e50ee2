"""The tasks of a source, apart by their `domain`: the arms of a draw that chooses among them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np

from palaestra.abilities import split_size
from palaestra.types import Task, Tasks


@runtime_checkable
class TellsDomains(Protocol):
    """Tasks of one source that belong to domains."""

    @property
    def domains(self) -> Sequence[Tasks]:
        """The tasks of each domain; none where all are of one."""
        ...


@dataclass(frozen=True)
class DomainTasks:
    """The tasks of one domain, in the order of the source. Each split comes to an end."""

    name: str
    source: Tasks
    numbers: Mapping[str, np.ndarray] = field(compare=False)  # [N] of its tasks, by split

    @property
    def size(self) -> int:
        return len(self.numbers["train"])

    @property
    def test_size(self) -> int:
        return len(self.numbers["test"])

    def task(self, split: str, index: int) -> Task:
        return self.source.task(split, int(self.numbers[split][index]))


def domain_tasks(tasks: Tasks) -> tuple[DomainTasks, ...]:
    """A part for each domain that training tasks have, in the order of their names; none where there
    are not two. Tasks without a domain are a part by the name of the source.
    """
    return _domain_tasks(tasks, os.getcwd())


@lru_cache(maxsize=16)
def _domain_tasks(tasks: Tasks, folder: str) -> tuple[DomainTasks, ...]:
    """One pass over all tasks. `folder` is where relative paths start."""
    by_split: dict[str, dict[str, list[int]]] = {}
    for split in ("train", "test"):
        by_split[split] = defaultdict(list)
        for i in range(split_size(tasks, split) or 0):
            by_split[split][tasks.task(split, i).domain or tasks.name].append(i)
    names = sorted(by_split["train"])
    return tuple(
        DomainTasks(name, tasks, {s: np.array(by_split[s].get(name, []), int) for s in by_split})
        for name in (names if len(names) > 1 else [])
    )
