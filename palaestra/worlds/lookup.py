"""The notebook in which T-lookup is played (`toys.lookup`), with an oracle."""

from __future__ import annotations

from palaestra.types import stage
from palaestra.worlds.notebook import Notebook, NotebookState


@stage
class Lookup(Notebook):
    """The notebook of sums over a dictionary."""

    def oracle(self, state: NotebookState) -> str:
        """The next cell of the right episode."""
        turns = state.task.meta["solution"]
        return turns[min(len(state.cells), len(turns) - 1)]
