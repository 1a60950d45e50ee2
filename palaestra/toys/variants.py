"""Problems about answers: does this equation hold, or does it contradict one that does (variants of
a theorem).

The tiny model has met the form, `judge:`, and starts near chance.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.declared import declare
from palaestra.tasks import phrasing as formats
from palaestra.tasks.procedural import ANSWER_PREFIX, stream_of
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.ladder import Stepwise
from palaestra.types import Task, rng_of, stage


@declare(columns=(("theorem", str, "the theorem that this is a variant of"), "steps"))
@stage
class Variants(Stepwise):
    """Each chain gives `variants` tasks in a row: its true equation (`right`), and equations that
    contradict it (`wrong`).

    `meta["theorem"]` names the chain: a theorem is solved if all its variants are. Proofs are
    checkable line by line.
    """

    variants: int = 2
    operands: tuple[int, int] = (2, 3)
    name: str = "variants"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        number, variant = divmod(index, self.variants)
        chain = ArithmeticChain(operands=self.operands)
        theorem = chain.task(split, number)
        others = (
            rng_of((stream_of(self), split, number)).permutation(chain.modulo - 1) + 1
        )  # how far off, all different
        answer = str(
            (int(theorem.answer) + int(others[variant - 1]) * (variant > 0)) % chain.modulo
        )
        task = formats.judging_task(theorem, f"{ANSWER_PREFIX}{answer}", variant == 0)
        steps = (*chain.steps(theorem), f"{theorem.answer} {answer}")
        meta = {"theorem": f"{self.name}/{split}/{number}", "steps": steps}
        return replace(task, id=f"{self.name}/{split}/{index}", meta=meta, domain=self.name)
