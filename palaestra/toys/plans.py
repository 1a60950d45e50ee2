"""T-plans: a value that is found step by step, in an order that has to be seen, with constants that have to
be known. Each problem has its plan, its knowledge and its sub-problems.

user: x=r+A,p=4,r=p*2:x          assistant: p=4 \\n r=4*2=8 \\n x=8+A=8+7=5 \\n = 5
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.annotations import (
    SubProblem,
    add_knowledge,
    add_plan,
    subproblem_task,
    subproblems_of,
)
from palaestra.tasks.procedural import draw_task, question_task, stream_of
from palaestra.toys.chain import apply
from palaestra.toys.ladder import Stepwise
from palaestra.types import Task, need_at_least, rng_of, stage

CONSTANTS, NAMES, MODULO = "ABCDEFGH", "abcdefghijklmnopqrstuvwxyz", 10


@declare(
    columns=(
        "plan",
        ("knowledge", str, "facts that the problem needs"),
        ("subproblems", tuple, "its parts in order, each with its question and answer"),
        ("difficulty", object, "how hard it is, a number or a word"),
        "steps",
    )
)
@stage
class Plans(Stepwise):
    """`x=r+A,p=4,r=p*2:x`: the assignments stand in any order, A to H are constants modulo 10 that stand
    nowhere in the question.

    The plan is the order of the names, the knowledge the constants that occur, the sub-problems are the
    names, and the difficulty is the number of assignments.

    Args:
        d: assignments, at least and at most.
        beside: of so many questions, the share that shows its plan, shows its knowledge, or asks for a
            sub-problem, each as often.
    """

    d: tuple[int, int] = (2, 5)
    beside: float = 0.0
    name: str = "plans"
    size: int | None = None
    max_tokens: int = 96

    def __post_init__(self) -> None:
        need_at_least(self, beside=0)

    def task(self, split: str, index: int) -> Task:
        task = draw_task(self, split, index, self._draw)
        rng = rng_of((stream_of(self), "beside", split, index))
        return self._decorated(task, rng) if rng.random() < self.beside else task

    def _draw(self, rng: np.random.Generator) -> Task:
        n = int(rng.integers(self.d[0], self.d[1] + 1))
        names = [NAMES[int(i)] for i in rng.permutation(len(NAMES))[:n]]
        operands = [self._operand(rng) for _ in names]
        if not any(x in CONSTANTS for x in operands):
            operands[0] = CONSTANTS[int(rng.integers(len(CONSTANTS)))]
        ops = [str(x) for x in rng.choice(list("+-*"), n - 1)]
        equations, steps, values = [f"{names[0]}={operands[0]}"], list[str](), list[int]()
        for i, (name, x) in enumerate(zip(names, operands, strict=True)):
            known = constants()[x] if x in CONSTANTS else int(x)
            if not i:
                values.append(known)
                steps.append(f"{name}={x}" + (f"={known}" if x in CONSTANTS else ""))
                continue
            value = apply(values[-1], op := ops[i - 1], known, MODULO)
            looked = f"{values[-1]}{op}{x}=" if x in CONSTANTS else ""
            equations.append(f"{name}={names[i - 1]}{op}{x}")
            steps.append(f"{name}={looked}{values[-1]}{op}{known}={value}")
            values.append(value)
        used = sorted({x for x in operands if x in CONSTANTS})
        meta = {
            "plan": ",".join(names),
            "knowledge": " ".join(f"{x}={constants()[x]}" for x in used),
            "subproblems": tuple((m, str(v)) for m, v in zip(names, values, strict=True)),
            "difficulty": n,
            "steps": tuple(steps),
        }
        question = ",".join(equations[int(i)] for i in rng.permutation(n))
        return question_task(self.name, f"{question}:{names[-1]}", str(values[-1]), meta)

    def _operand(self, rng: np.random.Generator) -> str:
        letter = CONSTANTS[int(rng.integers(len(CONSTANTS)))]
        return letter if rng.random() < 0.5 else str(int(rng.integers(MODULO)))

    def _decorated(self, task: Task, rng: np.random.Generator) -> Task:
        kind = int(rng.integers(3))
        if kind == 0:
            return add_plan(task, task.meta["plan"])
        if kind == 1:
            return add_knowledge(task, task.meta["knowledge"])
        parts: list[SubProblem] = subproblems_of(task)
        at = int(rng.integers(len(parts)))
        asked = subproblem_task(task, parts, at)
        return replace(asked, meta={**task.meta, "steps": (task.meta["steps"][at],)})


@lru_cache(maxsize=1)
def constants() -> dict[str, int]:
    """The values of the constants, the same in all problems."""
    values = rng_of(("plans", "constants")).permutation(MODULO)
    return {x: int(v) for x, v in zip(CONSTANTS, values, strict=False)}
