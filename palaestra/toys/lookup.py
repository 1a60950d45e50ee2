"""T-lookup: sums over a dictionary that only code can read, one key a cell.

user: k7+p2-x9
<think>k7</think><code>a=get('k7')</code>             tool: ok
<think>p2</think><code>b=get('p2')</code>             tool: ok
<think>x9</think><code>answer(a+b-get('x9'))</code>
"""

from __future__ import annotations

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Task, stage

# `get` remembers in which cells it was called: a sum of n keys takes n cells
TOOLS = """import sys
store, cells = {store!r}, set()
def get(key):
    cell = sys._getframe(1).f_code.co_filename
    if cell in cells:
        raise RuntimeError("one get a cell")
    cells.add(cell)
    return store[key]
"""


@declare(
    columns=(
        ("tools", str, "the tools of the session"),
        ("solution", tuple, "the calls that lead to the answer"),
    )
)
@stage
class LookupTasks:
    """Sums and differences of `terms` values of a dictionary with so many `entries`."""

    terms: tuple[int, int] = (2, 3)  # at least, at most
    entries: int = 8
    name: str = "lookup"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        n = int(rng.integers(self.terms[0], self.terms[1] + 1))
        numbers = rng.permutation(260)[: max(self.entries, n)]
        keys = [f"{chr(97 + int(i) // 10)}{int(i) % 10}" for i in numbers]
        store = {k: int(v) for k, v in zip(keys, rng.integers(10, 100, len(keys)), strict=True)}
        signs = ["", *rng.choice(["+", "-"], n - 1).tolist()]
        total = sum((-1 if s == "-" else 1) * store[k] for s, k in zip(signs, keys, strict=False))
        meta = {
            "tools": TOOLS.format(store=dict(sorted(store.items()))),
            "solution": solution(signs, keys[:n]),
        }
        question = "".join(s + k for s, k in zip(signs, keys, strict=False))
        return question_task(self.name, question, str(total), meta)


def solution(signs: list[str], keys: list[str]) -> tuple[str, ...]:
    """A cell for each key; the last one answers."""
    names = "abcdefgh"[: len(keys) - 1]
    cells = [f"{x}=get('{k}')" for x, k in zip(names, keys, strict=False)]
    terms = [*names, f"get('{keys[-1]}')"]
    cells.append(f"answer({''.join(s + x for s, x in zip(signs, terms, strict=True))})")
    return tuple(f"<think>{k}</think><code>{c}</code>" for k, c in zip(keys, cells, strict=True))
