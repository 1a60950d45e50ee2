"""How many threads a model's operators use on a processor.

Threads that share an operator wait for one another at its end. Beside other work one of them is
late, and the smaller the operators, the more of a step is waiting: a model of a million weights is
slower with two threads than with one as soon as one of two cores is busy, and hardly faster on a
quiet machine. `OMP_NUM_THREADS` decides where it is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from palaestra.cores import cores
from palaestra.models.model import Model
from palaestra.models.precision import SMALL


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why."""

    n: int
    why: str


def threads_for(weights: int) -> Threads:
    """Threads for a largest model of so many weights."""
    if set_by_user := os.environ.get("OMP_NUM_THREADS"):
        return Threads(torch.get_num_threads(), f"OMP_NUM_THREADS is {set_by_user}")
    if weights < SMALL:
        return Threads(1, f"operators of a model below {SMALL // 10**6} million weights are small")
    return Threads(cores(), "one for each core that this process may use")


def use_threads(models: Iterable[Model]) -> None:
    """Sets the threads of this process for models that it works with."""
    n = threads_for(max((m.n_parameters for m in models), default=0)).n
    if n != torch.get_num_threads():
        torch.set_num_threads(n)
