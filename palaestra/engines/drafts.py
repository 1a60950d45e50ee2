"""Drafts: tokens that a sequence may go on with, guessed from texts that are there already, so that
one pass of the model gives it several tokens (arXiv:2304.04487 and arXiv:2211.17192).

The random number of a token belongs to its sequence and its place. So a token of a draft is kept
exactly if it is the token that is drawn there, and the sample is the one without drafts, to the bit:
nothing is accepted or rejected by chance, as it is where a smaller model drafts. A draft costs rows
in a pass and nothing else.

What is guessed is what followed the last n tokens when they were seen before: in the sequence
itself (`ngram`), in answers to the same prompt under the same weights (`siblings`), or under earlier
ones (`last`: the last visit of a task). A later turn of an episode counts to its first prompt.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from palaestra.errors import UserError

SOURCES = ("ngram", "siblings", "last")  # in the order in which they are asked
ORDERS = (4, 2)  # lengths of the n-grams that are looked for, the longest first
MOST = 16  # tokens of a draft
# what a pass costs beside its rows, in rows: 15 (smollm2) and 29 (tiny) were measured, docs/engines.md
PASS = 16
COLUMNS = 1 << 16  # of the cache that a pass with drafts may copy, over all rows
KEPT = 1 << 20  # tokens of prompts and answers that are remembered
# the share of right guesses before any is judged, the weight of a guess in the engine's share when
# many are, and how many guesses that share is worth in a sequence's own
PRIOR, WEIGHT, WORTH = 0.5, 0.02, 4

Text: TypeAlias = MutableSequence[int]
Kind: TypeAlias = tuple[str, int]  # a source, and the length of an n-gram


def sources_of(drafts: str) -> tuple[str, ...]:
    """The sources that a setting names: "off", "all", or names joined by "+". Raises UserError."""
    if drafts in ("off", "all"):
        return SOURCES if drafts == "all" else ()
    names = [name.strip() for name in str(drafts).split("+")]
    if unknown := [name for name in names if name not in SOURCES]:
        raise UserError(
            f"there are no drafts {unknown[0]!r}; write drafts=off, all, or some of "
            f"{', '.join(SOURCES)} joined by +, as in 'own(drafts=\"ngram+last\")'"
        )
    return tuple(name for name in SOURCES if name in names)


class Grams:
    """Where each n-gram of some texts was seen last."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], tuple[Sequence[int], int]] = {}

    def add(self, text: Sequence[int], start: int) -> None:
        """A text that has grown from `start` tokens on; it is kept, and may grow further."""
        for i in range(start, len(text)):
            for n in ORDERS:
                if i >= n:
                    self._after[tuple(text[i - n : i])] = text, i

    def after(self, text: Sequence[int]) -> tuple[Sequence[int], int]:
        """At most MOST tokens that followed the longest n-gram that ends `text`, and its length;
        none and 0 where none is known.
        """
        for n in ORDERS:
            if len(text) >= n and (place := self._after.get(tuple(text[-n:]))):
                other, i = place
                return other[i : i + MOST], n
        return (), 0


@dataclass(eq=False)
class Task:
    """A prompt, the answers to it under the present weights, and those under earlier ones."""

    visit: int
    answers: list[Sequence[int]] = field(default_factory=list)
    before: list[Sequence[int]] = field(default_factory=list)
    size: int = 0  # tokens that count
    open: int = 0  # sequences under way
    kept: bool = True
    # made when a sequence begins, dropped with the last one
    grams: Grams | None = None
    grams_before: Grams | None = None


@dataclass(eq=False)
class Drafted:
    """A sequence under way, as its drafts see it."""

    text: list[int]  # the end of its prompt, or all of it, and what it said
    own: Grams | None
    task: Task | None
    right: Counter[Kind] = field(default_factory=Counter)  # guesses at its tokens
    judged: Counter[Kind] = field(default_factory=Counter)
    guess: Sequence[int] = ()  # at its next tokens
    kind: Kind = ("", 0)


class Drafts:
    """Guesses of the next tokens of sequences, and how many of them a pass should hold."""

    def __init__(self, sources: Sequence[str], kept: int = KEPT):
        self.sources, self.kept = sources, kept
        self.rates: dict[Kind, float] = {}
        self._judged: Counter[Kind] = Counter()  # guesses that became tokens or did not
        self._visit = 0
        self._tasks: OrderedDict[tuple[int, ...], Task] = OrderedDict()
        self._lengths: Counter[int] = Counter()  # of their prompts
        self._size = 0

    def begin(self, prompt: tuple[int, ...]) -> Drafted:
        """A sequence that begins."""
        own = Grams() if "ngram" in self.sources else None
        task = self._task(prompt) if {"siblings", "last"} & {*self.sources} else None
        text = list(prompt if own else prompt[-ORDERS[0] :])
        if own:
            own.add(text, 0)
        if task:
            task.open += 1
            if "siblings" in self.sources and task.grams is None:
                task.grams = _grams(task.answers)
            if "last" in self.sources and task.grams_before is None:
                task.grams_before = _grams(task.before)
        return Drafted(text, own, task)

    def grow(self, d: Drafted, ids: Sequence[int]) -> None:
        """What the sequence said now; its guess is judged by it."""
        for guessed, token in zip(d.guess, ids, strict=False):
            hit = guessed == token
            d.judged[d.kind] += 1
            d.right[d.kind] += hit
            self._judged[d.kind] += 1
            rate = self.rates.get(d.kind, PRIOR)
            self.rates[d.kind] = rate + max(WEIGHT, 1 / (2 + self._judged[d.kind])) * (hit - rate)
            if not hit:
                break
        d.guess = ()
        start = len(d.text)
        d.text += ids
        if d.own:
            d.own.add(d.text, start)
        if d.task and d.task.grams:
            d.task.grams.add(d.text, start)

    def end(self, d: Drafted, length: int) -> None:
        """The sequence is over, or nobody waits for it; it said `length` tokens."""
        task = d.task
        if task is None:
            return
        task.open -= 1
        if not task.open:
            task.grams = task.grams_before = None
        if task.kept:
            answer = array("q", d.text[max(0, len(d.text) - length - ORDERS[0]) :])
            task.answers.append(answer)
            task.size += len(answer)
            self._size += len(answer)
            while self._size > self.kept:
                self._drop(next(iter(self._tasks)))  # what was asked longest ago

    def forget(self) -> None:
        """The weights moved: what was said is of earlier ones."""
        self._visit += 1
        if "last" not in self.sources:
            for prompt in [*self._tasks]:
                self._drop(prompt)

    def choose(
        self, every: Sequence[Drafted | Sequence[int]], rooms: Sequence[int], columns: int
    ) -> list[list[int]]:
        """A draft for each sequence of a pass, at most rooms[i] tokens.

        A pass costs PASS rows and its own. The likeliest guesses get a row as long as one more
        raises the tokens that are expected for the cost.

        Args:
            every: sequences under way; of one that is only scored, what it says next.
            columns: of the cache, that a row sees.
        """
        guesses, texts = list[tuple[float, int]](), list[Sequence[int]]()
        for i, (d, room) in enumerate(zip(every, rooms, strict=True)):
            if isinstance(d, Drafted):
                self._guess(d)
                text, rate = d.guess, self._rate(d)
            else:
                text, rate = d[:MOST], 1.0
            texts.append(text)
            p = 1.0
            for _ in text[:room]:
                p *= rate
                guesses.append((p, i))
        lengths, rows = [0] * len(every), len(every)
        most, expected = COLUMNS // max(columns, 1), float(rows)
        for p, i in sorted(guesses, key=lambda x: -x[0]):
            if p * (PASS + rows) <= expected or rows >= most:
                break
            lengths[i] += 1
            rows, expected = rows + 1, expected + p
        return [list(text[:n]) for text, n in zip(texts, lengths, strict=True)]

    def _rate(self, d: Drafted) -> float:
        """How likely a guessed token is right where those before it are."""
        prior = WORTH * self.rates.get(d.kind, PRIOR)
        return (prior + d.right[d.kind]) / (WORTH + d.judged[d.kind])

    def _guess(self, d: Drafted) -> None:
        task, best = d.task, 0
        d.guess = ()
        each = (d.own, task and task.grams, task and task.grams_before)
        for source, grams in zip(SOURCES, each, strict=True):
            if grams is None:
                continue
            guess, n = grams.after(d.text)
            if n > best:
                d.guess, d.kind, best = list(guess), (source, n), n

    def _task(self, prompt: tuple[int, ...]) -> Task:
        root = self._root(prompt)
        task = self._tasks.get(root)
        if task is None:
            task = self._tasks[root] = Task(self._visit, size=len(root))
            self._size += task.size
            self._lengths[len(root)] += 1
        elif task.visit != self._visit:
            gone = sum(map(len, task.before))
            task.visit, task.before, task.answers = self._visit, task.answers, []
            task.grams = task.grams_before = None
            task.size -= gone
            self._size -= gone
        self._tasks.move_to_end(root)
        return task

    def _root(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """The first prompt of the episode, where this one goes on from one that is remembered."""
        if prompt in self._tasks:
            return prompt
        lengths = sorted(n for n in self._lengths if n < len(prompt))
        return next((p for n in lengths if (p := prompt[:n]) in self._tasks), prompt)

    def _drop(self, prompt: tuple[int, ...]) -> None:
        task = self._tasks.pop(prompt)
        task.kept = False
        self._size -= task.size
        self._lengths[len(prompt)] -= 1
        if not self._lengths[len(prompt)]:
            del self._lengths[len(prompt)]


def _grams(texts: Iterable[Sequence[int]]) -> Grams:
    grams = Grams()
    for text in texts:
        grams.add(text, min(ORDERS[0], len(text)))
    return grams
