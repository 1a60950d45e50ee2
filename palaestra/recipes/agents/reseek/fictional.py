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


def invented(word: str, taken: set[str], seed: int) -> str | None:
    """A word in the place of another that is not `taken`: syllables, or of a number as many other
    digits; None where all numbers of that length are taken.
    """
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
    return None


def renaming(
    questions: Sequence[str], answers: Sequence[str], documents: Sequence[str], seed: int
) -> dict[str, str]:
    """What stands in the place of each word of an answer, and of each name of a question that
    documents have, by the word in lower case; a number that no other is left for is not there.
    """
    names, taken = names_in(documents), set[str]()
    for text in (*documents, *questions):
        taken |= {w.casefold() for w in WORD.findall(text)}
    asked = {w.casefold() for text in questions for w in WORD.findall(text)} & names
    gold = words_to_rename(answers)
    made = dict[str, str]()
    for word in sorted(asked | gold):
        if (other := invented(word, taken, seed)) is not None:
            made[word] = other
            taken.add(other)
    return made


def words_to_rename(answers: Sequence[str]) -> set[str]:
    """The words of answers in lower case, without those that every text has."""
    return {w.casefold() for text in answers for w in WORD.findall(text)} - COMMON


def rename(text: str, words: Mapping[str, str]) -> str:
    """The text with other words, which begin with a capital where those did."""

    def other(match: re.Match[str]) -> str:
        word = match[0]
        made = words.get(word.casefold(), word)
        return made.capitalize() if word[0].isupper() else made

    return WORD.sub(other, text)


@pl.stage
class RenamedTasks:
    """Tasks with other words in their questions and answers; system messages and a recipe's
    instruction stay. `numbers`: those of the held-out tasks that there are, None = all.
    """

    tasks: pl.Tasks
    words: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        return self.tasks.name

    @property
    def size(self) -> int | None:
        return self.tasks.size

    @property
    def test_size(self) -> int | None:
        size: int | None = getattr(self.tasks, "test_size", None)
        return size if self.numbers is None else len(self.numbers)

    def task(self, split: str, index: int) -> pl.Task:
        if split == "test" and self.numbers is not None:
            index = self.numbers[index]
        task, words = self.tasks.task(split, index), dict(self.words)
        prompt = tuple(
            replace(m, content=rename(text, words) + m.content[len(text) :])
            for m, text in zip(task.prompt, told(task), strict=True)
        )
        golds = [rename(g, words) for g in golds_of(task)]
        answer: Any = golds if isinstance(task.answer, list | tuple) else golds[0]
        return replace(task, prompt=prompt, answer=answer)


def told(task: pl.Task) -> list[str]:
    """What each message of a prompt says of the question: nothing where it is the system's, and no
    instruction of a recipe.
    """
    return [
        "" if m.role == "system" else m.content.removesuffix(task.instruction) for m in task.prompt
    ]


def golds_of(task: pl.Task) -> list[str]:
    """The right answers of a task."""
    return pl.worlds.right_answers(task)


@pl.stage
class FictionalExam:
    """Greedy answers to up to `n` held-out questions with invented names, where the documents have the
    same; and to these and the real ones without documents. A model that answers the real ones
    from memory, and the invented ones not, knows the benchmark.

    Words of the answers and names in the questions get other words: names are what the documents
    write with a capital inside a sentence only. A question whose answer is a number that no other is
    left for, as the documents have all of its length, is left out. Nobody's training draws anything here.
    """

    n: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise pl.UserError(f"FictionalExam: n is 1 or more, not {self.n}")

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        bench = ctx.bench
        index = bench.world.index if isinstance(bench.world, pl.worlds.Search) else None
        if not isinstance(index, pl.services.BM25):
            raise pl.UserError(
                f"reseek renames documents, and {bench.name} has none; give yours with --docs, or "
                "leave `fictional` out"
            )
        numbers = pl.run.chosen_tasks(bench, self.n)
        tasks = [bench.tasks.task("test", i) for i in numbers]
        docs = index.docs
        words = renaming(
            [text for t in tasks for text in told(t)],
            [g for t in tasks for g in golds_of(t)],
            [text for _, text in docs],
            self.seed,
        )
        chosen = tuple(
            i
            for i, t in zip(numbers, tasks, strict=True)
            if words_to_rename(golds_of(t)) <= {*words}
        )
        if gone := len(tasks) - len(chosen):
            ctx.say(
                f"reseek: {gone} of {len(tasks)} held-out questions are not asked about invented "
                "names, for the documents have every number that could stand for their answer"
            )
        if not chosen:
            return {}
        renamed = tuple((i, rename(text, words)) for i, text in docs)
        world = replace(bench.world, index=replace(index, docs=renamed))
        invented_ones = RenamedTasks(bench.tasks, tuple(words.items()), chosen)
        real_ones = RenamedTasks(bench.tasks, numbers=chosen)
        there = {
            "invented": replace(bench, tasks=invented_ones, world=world),
            "invented from memory": replace(bench, tasks=invented_ones, world=world.closed()),
            "real from memory": replace(bench, tasks=real_ones, world=bench.world.closed()),
        }
        greedy, scores = pl.Sample(n=1, temperature=0.0), dict[str, Any]()
        for label, place in there.items():
            groups = await pl.run.attempt_tasks(
                ctx.with_bench(place), self.n, greedy, label=f"eval {label}"
            )
            scores[label] = pl.run.judge_held_out(groups, (0.0, 1.0)).json()
        return scores
