"""T-taxonomy: a made-up tree of names, of which single facts are learned and paths are asked for.

user: up bako?      assistant: bako tiru \\n = tiru                              (the parent)
user: top bako?     assistant: bako tiru \\n tiru mema \\n mema zulo \\n = zulo    (the top of its branch)
user: path bako?    assistant: bako tiru \\n tiru mema \\n mema zulo \\n = zulo > mema > tiru > bako
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.procedural import answer_lines, format_answer, question_task
from palaestra.toys.relations import label_said
from palaestra.toys.wiki import SYLLABLES
from palaestra.types import Task, need_at_least, rng_of, stage

DEPTHS = (2, 3, 4, 5)  # ancestors of a leaf
ARROW = re.compile(r"\s*(?:->|→|›|»|>)\s*")
BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.)])\s+")
LEAD = re.compile(r"^.*(?:^=|:|\bis)\s+")  # words in front of the first node


@declare(columns=("path",))
@stage
class Taxonomy:
    """Questions about a tree in which leaves have 2 to 5 ancestors, as many leaves each.

    `ask`: "parent" of any name, the same facts in both splits; "top" of a leaf, or its whole "path", of one
    half of the leaves in the split "train" and of the other half in "test". A path is paid its `path_score`,
    the others right or wrong.

    Args:
        leaves: at least 8.
        tops: names without a parent.
        width: names on each of the four levels between.
        levels: the question for the top asks for the levels on the way.
        at_once: share of demonstrations of the top that show no way, unless `levels` are asked for.
        few: of leaves in "train" every second one alone.
        seed: of the tree.
    """

    ask: Literal["parent", "top", "path"] = "top"
    leaves: int = 96
    tops: int = 4
    width: int = 8
    levels: bool = False
    at_once: float = 0.0
    few: bool = False
    seed: int = 0
    name: str = "taxonomy"
    size: int | None = None
    max_tokens: int = 112

    def __post_init__(self) -> None:
        need_at_least(self, leaves=8, tops=2, width=1)
        most = len(SYLLABLES) ** 2
        if self.tops + 4 * self.width + self.leaves > most:
            raise UserError(
                f"Taxonomy: there are {most} names; take fewer leaves or a smaller width"
            )
        if self.ask not in ("parent", "top", "path"):
            raise UserError(f"Taxonomy: ask={self.ask!r} is parent, top or path")

    @property
    def test_size(self) -> int | None:
        """Held-out leaves; facts have no end."""
        return None if self.ask == "parent" else len(self._asked("test"))

    def task(self, split: str, index: int) -> Task:
        paths = self._asked(split)
        number = index
        if split == "train" or self.ask == "parent":
            number = int(
                rng_of((self.name, self.seed, self.ask, split, index)).integers(len(paths))
            )
        path = paths[number]
        what, meta = path[-1], {"path": path}
        if self.ask == "parent":
            task = question_task(self.name, f"up {what}?", path[-2], meta)
        elif self.ask == "top":
            end = "\nlevels" if self.levels else ""
            task = question_task(self.name, f"top {what}?{end}", path[0], meta)
        else:
            task = question_task(self.name, f"path {what}?", " > ".join(path), meta)
        return replace(task, id=f"{self.name}/{split}/{index}")

    def _asked(self, split: str) -> tuple[tuple[str, ...], ...]:
        """The paths to what may be asked about, the root first."""
        tree = drawn_tree(self.leaves, self.tops, self.width, self.seed)
        if self.ask == "parent":
            return tree.inner + tree.leaves
        # four leaves in a row have different depths
        half = [p for i, p in enumerate(tree.leaves) if (i // 4 % 2 == 0) == (split == "test")]
        if self.few and split == "train":
            half = [p for i, p in enumerate(half) if i // 4 % 2 == 0]
        return tuple(half)

    def check(self, text: str, task: Task) -> float:
        """1 for the right name, in any form of a final answer; of a path its score."""
        path = task.meta["path"]
        if self.ask == "path":
            return path_score(path_said(text, path), path)
        tree = drawn_tree(self.leaves, self.tops, self.width, self.seed)
        names = tree.tops if self.ask == "top" else tree.names
        return float(label_said(text, names) == task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The way up, a fact a line, then the answer; or the answer alone."""
        up = task.meta["path"][::-1]
        facts = [f"{name} {parent}" for name, parent in pairwise(up)]
        at_once = self.ask == "top" and not self.levels and rng.random() < self.at_once
        bare = habit == "guess" or at_once
        way = facts[:1] if self.ask == "parent" else facts
        return format_answer([] if bare else way, task.answer)


@dataclass(frozen=True, slots=True)
class NameTree:
    """Paths from a root: of names between, and of leaves."""

    tops: tuple[str, ...]
    inner: tuple[tuple[str, ...], ...]
    leaves: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> list[str]:
        return [*self.tops, *(p[-1] for p in (*self.inner, *self.leaves))]


@lru_cache(maxsize=8)
def drawn_tree(leaves: int, tops: int, width: int, seed: int) -> NameTree:
    """Children are spread evenly over the names of the level above, in a drawn order."""
    rng = rng_of(("tree", leaves, tops, width, seed))
    order = rng.permutation(len(SYLLABLES) ** 2).tolist()
    names = iter([SYLLABLES[i // len(SYLLABLES)] + SYLLABLES[i % len(SYLLABLES)] for i in order])
    levels: list[list[tuple[str, ...]]] = [[(next(names),) for _ in range(tops)]]
    for _ in DEPTHS:
        above = rng.permutation(len(levels[-1])).tolist()
        parents = [levels[-1][above[i % len(above)]] for i in range(width)]
        levels.append([(*parent, next(names)) for parent in parents])
    made, start = list[tuple[str, ...]](), 0
    for i in range(leaves):
        above = levels[DEPTHS[i % len(DEPTHS)] - 1]
        if i % len(DEPTHS) == 0:
            start = int(rng.integers(width))
        made.append((*above[(start + i // len(DEPTHS)) % len(above)], next(names)))
    inner = tuple(p for level in levels[1:] for p in level)
    return NameTree(tuple(p[0] for p in levels[0]), inner, tuple(made))


# ---- paths in the words of a model


def path_said(text: str, gold: Sequence[str]) -> tuple[str, ...]:
    """The nodes that a text lists: those of its last line with arrows (>), else those of its last list of
    lines, else its last line. A node that begins with the whole name of a gold one is that one.
    """
    lines = [plain(x) for x in answer_lines(text) if plain(x)]
    arrows = [x for x in lines if ARROW.search(x)]
    nodes = ARROW.split(arrows[-1]) if arrows else listed_lines(lines) or lines[-1:]
    names = [gold_name(x, gold) for x in nodes if x.strip()]
    if names and names[0] not in gold:
        names[0] = gold_name(LEAD.sub("", names[0]), gold)
    return tuple(names)


def plain(line: str) -> str:
    """A line without a box, bold print or code marks around it."""
    boxed = re.fullmatch(r"\W*\\boxed\{(.*)\}\W*", line.strip())
    return re.sub(r"\*\*|`|</?\w+>", "", boxed[1] if boxed else line).strip()


def listed_lines(lines: Sequence[str]) -> list[str]:
    """The last run of lines with a bullet or a number."""
    items = list[str]()
    for line in reversed(lines):
        if BULLET.match(line):
            items.append(BULLET.sub("", line))
        elif items:
            break
    return items[::-1]


def gold_name(name_given: str, gold: Iterable[str]) -> str:
    """The longest gold name that a text begins with, else the text."""
    name_given = name_given.strip()
    for name in sorted(gold, key=len, reverse=True):
        if re.match(rf"{re.escape(name)}(?!\.?\w)", name_given, re.IGNORECASE):
            return name
    return name_given


def path_score(path: Sequence[str], gold: Sequence[str]) -> float:
    """How much of a path is said: the harmonic mean of

        F1 over nodes, as sets          2 P R / (P + R)
        order                           the longest common subsequence / the length of the gold path

    0 where either is 0. The denominator is our choice (arXiv:2511.05933 as the catalogue has it).
    """
    both = len({*path} & {*gold})
    common = common_subsequence(path, gold)
    if not both or not common:
        return 0.0
    precision, recall = both / len({*path}), both / len({*gold})
    f1, order = 2 * precision * recall / (precision + recall), common / len(gold)
    return 2 * f1 * order / (f1 + order)


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest sequence that both contain in order."""
    best = [0] * (len(b) + 1)
    for x in a:
        before = best
        best = [0]
        for j, y in enumerate(b):
            best.append(before[j] + 1 if x == y else max(before[j + 1], best[j]))
    return best[-1]
