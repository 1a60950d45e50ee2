"""Held-out questions about names that do not exist, in questions, answers and documents alike, so that no
model knows an answer before it searches (FictionalHot of arXiv:2510.00568, by rule).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import palaestra as pl

WORD = re.compile(r"[^\W_]+")
BEHIND = re.compile(r"(?<=[\w,] )[^\W\d_]\w+")  # not the first word of a sentence
COMMON = {
    *WORD.findall("a an and are at be by for from in is it no not of on or the to was with yes")
}
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def names_in(texts: Iterable[str]) -> set[str]:
    """The words, in lower case, that texts write with a capital inside a sentence and never without."""
    capital, small = set[str](), set[str]()
    for text in texts:
        capital |= {w.casefold() for w in BEHIND.findall(text) if w[0].isupper()}
        small |= {w for w in WORD.findall(text) if w[0].islower()}
    return capital - small


def invented(word: str, taken: set[str], seed: int) -> str:
    """A word in the place of another: syllables, or of a number as many other digits. None that is `taken`."""
    for attempt in range(1000):
        rng = pl.rng_of(("fictional", seed, word, attempt))
        if word.isdigit():
            digits = [str(rng.integers(1, 10)), *map(str, rng.integers(0, 10, len(word) - 1))]
            made = "".join(digits)
        else:
            made = "".join(
                str(rng.choice(list(letters)))
                for letters in (CONSONANTS, VOWELS) * (2 + attempt // 50)
            )
        if made not in taken:
            return made
    raise pl.UserError(f"reseek: no number of {len(word)} digits is left to stand for {word!r}")


def renaming(
    questions: Sequence[str], answers: Sequence[str], documents: Sequence[str], seed: int
) -> dict[str, str]:
    """What stands in the place of each word of an answer, and of each name of a question that
    documents have, by the word in lower case.
    """
    names, taken = names_in(documents), set[str]()
    for text in (*documents, *questions):
        taken |= {w.casefold() for w in WORD.findall(text)}
    asked = {w.casefold() for text in questions for w in WORD.findall(text)} & names
    gold = {w.casefold() for text in answers for w in WORD.findall(text)} - COMMON
    made = dict[str, str]()
    for word in sorted(asked | gold):
        made[word] = invented(word, taken, seed)
        taken.add(made[word])
    return made


def rename(text: str, words: Mapping[str, str]) -> str:
    """The text with other words, which begin with a capital where those did."""

    def other(match: re.Match[str]) -> str:
        word = match[0]
        made = words.get(word.casefold(), word)
        return made.capitalize() if word[0].isupper() else made

    return WORD.sub(other, text)


@pl.stage
class RenamedTasks:
    """Tasks with other words in their prompts and answers."""

    tasks: pl.Tasks
    words: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return self.tasks.name

    @property
    def size(self) -> int | None:
        return self.tasks.size

    @property
    def test_size(self) -> int | None:
        size: int | None = getattr(self.tasks, "test_size", None)
        return size

    def task(self, split: str, index: int) -> pl.Task:
        task, words = self.tasks.task(split, index), dict(self.words)
        prompt = tuple(replace(m, content=rename(m.content, words)) for m in task.prompt)
        golds = [rename(g, words) for g in golds_of(task)]
        answer: Any = golds if isinstance(task.answer, list | tuple) else golds[0]
        return replace(task, prompt=prompt, answer=answer)


def golds_of(task: pl.Task) -> list[str]:
    """The right answers of a task."""
    answers = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
    return [str(a) for a in answers]


@pl.stage
class FictionalExam:
    """Greedy answers to up to `n` held-out questions with invented names, where the documents have the
    same; and to these and the real ones without documents. A model that answers the real ones
    from memory, and the invented ones not, knows the benchmark.

    Words of the answers and names in the questions get other words: names are what the documents
    write with a capital inside a sentence only. Nobody's training draws anything here.
    """

    n: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise pl.UserError(f"FictionalExam: n is 1 or more, not {self.n}")

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        bench = ctx.bench
        if not isinstance(bench.world, pl.worlds.Search):
            raise pl.UserError(
                f"reseek renames documents, and {bench.name} has none; give yours with --docs, or "
                "leave `fictional` out"
            )
        numbers = pl.run.chosen_tasks(bench, self.n)
        tasks = [bench.tasks.task("test", i) for i in numbers]
        docs = bench.world.index.docs
        words = renaming(
            [m.content for t in tasks for m in t.prompt],
            [g for t in tasks for g in golds_of(t)],
            [text for _, text in docs],
            self.seed,
        )
        renamed = tuple((i, rename(text, words)) for i, text in docs)
        world = replace(bench.world, index=replace(bench.world.index, docs=renamed))
        invented_ones = RenamedTasks(bench.tasks, tuple(words.items()))
        there = {
            "invented": replace(bench, tasks=invented_ones, world=world),
            "invented from memory": replace(bench, tasks=invented_ones, world=world.closed()),
            "real from memory": replace(bench, world=bench.world.closed()),
        }
        greedy, scores = pl.Sample(n=1, temperature=0.0), dict[str, Any]()
        for label, place in there.items():
            groups = await pl.run.attempt_tasks(
                ctx.with_bench(place), self.n, greedy, label=f"eval {label}"
            )
            scores[label] = pl.run.judge_held_out(groups, (0.0, 1.0)).json()
        return scores
