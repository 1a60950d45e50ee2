"""What is asked about the places of a hierarchy, and how answers are read."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import palaestra as pl

LETTERS = string.ascii_uppercase
PARTED = re.compile(r"\s*(?:>|→|\|)\s*")  # nodes of a path that is written as text


@dataclass(frozen=True, slots=True)
class HierarchyQuestion:
    """A question about the last node of a path, whose first node is the root; `options` are none where it is
    open. The right one stands at place `right`.
    """

    task: pl.Task
    path: tuple[str, ...]
    options: tuple[str, ...] = ()
    right: int = 0

    @property
    def node(self) -> str:
        return self.path[-1]

    @property
    def ancestors(self) -> int:
        return len(self.path) - 1

    @property
    def answer(self) -> str:
        return self.options[self.right] if self.options else str(self.task.answer)

    def spell(self, template: str) -> str:
        """A text with {node}, {parent}, {top} and {answer} in their places."""
        words = {
            "node": self.node,
            "parent": self.path[-2] if self.ancestors else self.node,
            "top": self.path[0],
            "answer": self.answer,
        }
        return re.sub(r"\{(node|parent|top|answer)\}", lambda m: words[m[1]], template)

    def asked(self, end: str) -> pl.Task:
        """The task with its options and an instruction at the end of its last message."""
        *before, last = self.task.prompt
        lines = [str(last.content)]
        if self.options and not pl.tasks.contains_options(lines[0], self.options):
            lines.append(pl.tasks.letter_options(self.options))
        lines += [end] if end else []
        return replace(self.task, prompt=(*before, replace(last, content="\n".join(lines))))

    def asks_path(self, template: str) -> pl.Task:
        """Another question about the same node, behind the same system message."""
        system = tuple(m for m in self.task.prompt if m.role == "system")
        return replace(
            self.task, prompt=(*system, pl.Message(role="user", content=self.spell(template)))
        )

    def chosen(self, text: str) -> int | None:
        """The place of the option that is the answer; None = none or several are."""
        judge = pl.verifiers.MultipleChoice()
        # an option that is a letter itself is named by its place
        golds = [i if o.upper() in LETTERS else o for i, o in enumerate(self.options)]
        marks = [judge(text, gold, options=self.options) for gold in golds]
        good = [i for i, mark in enumerate(marks) if mark.score == 1]
        return good[0] if len(good) == 1 else None


@pl.stage
class AskedQuestions:
    """Held-out tasks, checked as where they come from checks its own."""

    tasks: tuple[pl.Task, ...]
    source: Any
    name: str = "hierarchy"
    size: int | None = 0

    @property
    def test_size(self) -> int:
        return len(self.tasks)

    def task(self, split: str, index: int) -> pl.Task:
        return self.tasks[index]

    def check(self, text: str, task: pl.Task) -> float | Mapping[str, float]:
        known = isinstance(self.source, pl.abilities.Checks)
        return self.source.check(text, task) if known else pl.tasks.exact_match(text, task)


def vote(votes: Sequence[int | None]) -> int | None:
    """The option that most samples choose, of equal ones the first chosen; None where none chooses."""
    counts = Counter(x for x in votes if x is not None)
    return max(counts, key=lambda x: counts[x]) if counts else None


# ---- rows


def read_questions(ctx: pl.Context, most: int, choices: int) -> list[HierarchyQuestion]:
    """The questions of the data.

    Args:
        ctx: of the program.
        most: how many are asked.
        choices: options of a question whose row has none; 0 = it stays open.

    Raises:
        UserError: a row says no path; or no two rows have different answers to choose from.
    """
    numbers = pl.run.chosen_tasks(ctx.bench, most)
    tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
    if not tasks:
        raise pl.UserError("there are no rows to ask about")
    parents = parents_in(ctx.bench.tasks) if any("node" in t.meta for t in tasks) else {}
    paths = [path_of(t, parents) for t in tasks]
    answers = [str(t.answer) for t in tasks]
    if choices and len(different(answers)) < 2 and not all("options" in t.meta for t in tasks):
        raise pl.UserError(
            f"all answers are {answers[0]!r}: there is nothing to choose from; give rows `options`, or take "
            "choices=0 for open questions"
        )
    return [
        with_options(t, p, options_of(ctx, t, i, answers, paths, choices))
        for i, (t, p) in enumerate(zip(tasks, paths, strict=True))
    ]


def parents_in(tasks: pl.Tasks) -> dict[str, str]:
    """The parent of each node of all rows, "" of a root."""
    splits = {"train": tasks.size or 0, "test": getattr(tasks, "test_size", None) or 0}
    rows = (tasks.task(split, i).meta for split, n in splits.items() for i in range(n))
    return {str(m["node"]): str(m.get("parent") or "") for m in rows if "node" in m}


def path_of(task: pl.Task, parents: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes from the root to what a row asks about: of its column `path`, or by `node` and `parent`.

    Raises:
        UserError: it says neither, or parents lead in a circle.
    """
    given: Any = task.meta.get("path")
    if isinstance(given, str):
        given = PARTED.split(given.strip())
    if isinstance(given, list | tuple) and given and all(str(x).strip() for x in given):
        return tuple(str(x).strip() for x in given)
    if "node" not in task.meta:
        raise pl.UserError(
            f"row {task.id!r} says no path: give it `path`, from the root to what is asked about "
            '(["A", "A01", "A01B"] or "A > A01 > A01B"), or its `node` and `parent`'
        )
    way = [str(task.meta["node"])]
    while parent := parents.get(way[-1], ""):
        if parent in way:
            raise pl.UserError(f"row {task.id!r}: the parents of {way[0]!r} lead in a circle")
        way.append(parent)
    return tuple(reversed(way))


def options_of(
    ctx: pl.Context,
    task: pl.Task,
    number: int,
    answers: Sequence[str],
    paths: Sequence[tuple[str, ...]],
    choices: int,
) -> tuple[tuple[str, ...], int] | None:
    """The options of a question and the place of the right one: its own, or its answer among those of the
    nearest other nodes. None = it is open.
    """
    own = pl.tasks.option_texts(task.meta)
    if own:
        return tuple(own), own.index(gold_option(task, own))
    if not choices:
        return None
    rng = pl.rng_of(ctx.key("options", number))
    order = rng.permutation(len(answers)).tolist()
    near = sorted(order, key=lambda i: -shared(paths[i], paths[number]))
    texts = different([answers[i] for i in (number, *near)])[:choices]
    places = rng.permutation(len(texts)).tolist()
    return tuple(texts[i] for i in places), places.index(0)


def different(texts: Sequence[str]) -> list[str]:
    """Texts, each once whatever its case, in their order."""
    first = dict[str, str]()
    for text in texts:
        first.setdefault(text.strip().casefold(), text)
    return list(first.values())


def gold_option(task: pl.Task, options: Sequence[str]) -> str:
    """The option that is right: the answer names it by text or letter. Raises UserError for none."""
    gold = str(task.answer).strip()
    letter = LETTERS.find(gold.upper()) if len(gold) == 1 else -1
    if gold in options:
        return gold
    if 0 <= letter < len(options):
        return options[letter]
    raise pl.UserError(f"row {task.id!r}: its answer {gold!r} is none of its options")


def shared(a: Sequence[str], b: Sequence[str]) -> int:
    """How many nodes two paths have in common from the root on."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def with_options(
    task: pl.Task, path: tuple[str, ...], options: tuple[tuple[str, ...], int] | None
) -> HierarchyQuestion:
    texts, right = options or ((), 0)
    return HierarchyQuestion(task, path, texts, right)
