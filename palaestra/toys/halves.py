"""T-halves: a chain of sums of which each of two agents knows one half, for `worlds.Dialogue`.

a: 4+7 mod 10    = 1    b: 1*3-9 mod 10    = 4
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Message, Task, stage


@declare(
    columns=(
        ("context_a", str, "what the first agent of a dialogue knows alone"),
        ("context_b", str, "what the second agent of a dialogue knows alone"),
    )
)
@stage
class Halves:
    """Chains of `operands` numbers; the first two are the first agent's, who speaks first."""

    operands: tuple[int, int] = (3, 4)  # at least, at most
    modulo: int = 10
    name: str = "halves"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        # the split is that of the whole chain, which neither of both sees
        task = draw_task(self, split, index, self._draw)
        return replace(task, prompt=(Message(role="user", content=f"mod {self.modulo}"),))

    def _draw(self, rng: np.random.Generator) -> Task:
        chains = ArithmeticChain(self.operands, self.modulo)
        whole = chains.task("train", int(rng.integers(1 << 40)))
        chain = whole.prompt[0].content.partition(" ")[0]
        at = len(str(whole.meta["numbers"][0])) + 1 + len(str(whole.meta["numbers"][1]))
        halves = {"context_a": chain[:at], "context_b": chain[at:]}
        return question_task(self.name, chain, whole.answer, halves)
