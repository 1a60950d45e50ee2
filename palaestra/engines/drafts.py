"""Drafts: tokens that a sequence may go on with, guessed from texts that are there already, so that
one pass of the model gives it several tokens (arXiv:2304.04487 and arXiv:2211.17192).

The random number of a token belongs to its sequence and its place. So a token of a draft is kept
exactly if it is the token that is drawn there, and the sample is the one without drafts, to the bit:
nothing is accepted or rejected by chance, as it is where a smaller model drafts. A draft costs rows
in a pass and nothing else.

What is guessed is what most often followed the last n tokens when they were seen before: in the
sequence itself (`ngram`), in answers to the same prompt under the same weights (`siblings`), or
under earlier ones (`last`: the last visit of a task). A later turn of an episode counts to its first
prompt. How often such guesses are right is learned from what is drawn, also where a guess had no
row in the pass.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from palaestra.errors import UserError

SOURCES = ("ngram", "siblings", "last")  # in the order in which they are asked
ORDERS = (4, 2)  # lengths of the n-grams that are looked for, the longest first
MOST = 16  # tokens of a draft
# what a pass costs beside its rows, in rows: 15 (smollm2) and 29 (tiny) were measured, docs/engines.md
PASS = 16
ROW = 1.2  # a row's cost where rows copy what they see of the cache, in rows that do not
LARGE = (
    2 * PASS
)  # sequences in a pass from which on its fixed cost is not worth what guessing costs
COLUMNS = 1 << 16  # of the cache that a pass with drafts may copy, over all rows
KEPT = 1 << 20  # tokens of prompts and answers that are remembered
# the weight of a guess in the engine's share of right ones when many are judged, and how many guesses
# that share is worth in a sequence's own
WEIGHT, WORTH = 0.02, 4
ONE, ALL, MOSTLY, SPLIT = range(4)  # what followed an n-gram: seen once, always the same, ...
PRIORS = (0.5, 0.8, 0.7, 0.4)  # the share of right guesses before any is judged

# what a guess is judged with: a source, the length of an n-gram, and how sure it is
Kind: TypeAlias = tuple[str, int, int]


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
    """What followed each n-gram of some texts, and how often."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], dict[int, int]] = {}

    def add(self, text: Sequence[int], start: int) -> None:
        """A text that has grown from `start` tokens on."""
        for i in range(start, len(text)):
            for n in ORDERS:
                if i >= n:
                    counts = self._after.setdefault(tuple(text[i - n : i]), {})
                    counts[text[i]] = counts.pop(text[i], 0) + 1  # the latest stands last

    def after(self, gram: tuple[int, ...]) -> tuple[int, int] | None:
        """The token that followed most often, of equals the latest, and how sure that is."""
        counts = self._after.get(gram)
        if not counts:
            return None
        token = max(reversed(counts), key=counts.__getitem__)
        if len(counts) == 1:
            return token, ALL if counts[token] > 1 else ONE
        return token, MOSTLY if 4 * counts[token] >= 3 * sum(counts.values()) else SPLIT


@dataclass(eq=False)
class DraftedTask:
    """A prompt, the answers to it under the present weights, and those under earlier ones."""

    visit: int
    answers: list[Sequence[int]] = field(default_factory=list)
    before: list[Sequence[int]] = field(default_factory=list)
    size: int = 0  # tokens that count
    under_way: list[Drafted] = field(default_factory=list)
    kept: bool = True
    # made for the first guess, dropped with the last sequence
    grams: Grams | None = None
    grams_before: Grams | None = None


@dataclass(eq=False)
class Drafted:
    """A sequence under way, as its drafts see it."""

    text: list[int]  # the end of its prompt, or all of it, and what it said
    own: Grams | None
    task: DraftedTask | None
    own_upto: int = 0  # tokens of the text that its n-grams have
    task_upto: int = 0  # and those of its task
    right: Counter[Kind] = field(default_factory=Counter)  # guesses at its tokens
    tries: Counter[Kind] = field(default_factory=Counter)
    guess: list[tuple[int, Kind]] = field(default_factory=list)  # at its next tokens


class Drafts:
    """Guesses of the next tokens of sequences, and how many of them a pass should hold."""

    def __init__(self, sources: Sequence[str], kept: int = KEPT):
        self.sources, self.kept = sources, kept
        self.rates: dict[Kind, float] = {}
        self._judged: Counter[Kind] = Counter()  # guesses that became tokens or did not
        self._visit = 0
        self._tasks: OrderedDict[tuple[int, ...], DraftedTask] = OrderedDict()
        self._lengths: Counter[int] = Counter()  # of their prompts
        self._size = 0

    def begin(self, prompt: tuple[int, ...]) -> Drafted:
        """A sequence that begins."""
        own = Grams() if "ngram" in self.sources else None
        task = self._task(prompt) if {"siblings", "last"} & {*self.sources} else None
        text = list(prompt if own else prompt[-ORDERS[0] :])
        drafted = Drafted(text, own, task, task_upto=len(text))
        if task:
            task.under_way.append(drafted)
        return drafted

    def grow(self, d: Drafted, ids: Sequence[int]) -> None:
        """What the sequence said now; its guess is judged by it."""
        for (guessed, kind), token in zip(d.guess, ids, strict=False):
            hit = guessed == token
            d.tries[kind] += 1
            d.right[kind] += hit
            self._judged[kind] += 1
            rate = self.rates.get(kind, PRIORS[kind[2]])
            self.rates[kind] = rate + max(WEIGHT, 1 / (2 + self._judged[kind])) * (hit - rate)
            if not hit:
                break
        d.guess = []
        d.text += ids

    def end(self, d: Drafted, length: int) -> None:
        """The sequence is over, or nobody waits for it; it said `length` tokens."""
        task = d.task
        if task is None:
            return
        if task.grams:
            task.grams.add(d.text, d.task_upto)
        task.under_way.remove(d)
        if not task.under_way:
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
        self, every: Sequence[Drafted | None], rooms: Sequence[int], columns: int
    ) -> list[list[int]]:
        """A draft for each sequence of a pass, at most rooms[i] tokens.

        A pass costs PASS rows and its own. The likeliest guesses get a row as long as one more
        raises the tokens that are expected for the cost; where that is less than a pass without
        drafts gives, there are none.

        Args:
            every: sequences under way; None = one that is only scored, which has no draft.
            columns: of the cache, that a row sees.
        """
        n, rows = len(every), len(every)
        least = n / (PASS + n)  # less likely guesses are not worth a row
        odds, texts = list[tuple[float, int]](), list[list[int]]()
        for i, (d, room) in enumerate(zip(every, rooms, strict=True)):
            likely = self._guess(d, least) if d and n <= LARGE else []
            texts.append([token for token, _ in d.guess] if d else [])
            odds += [(p, i) for p in likely[:room]]
        lengths, expected, most = [0] * n, float(n), COLUMNS // max(columns, 1)
        for p, i in sorted(odds, key=lambda x: -x[0]):
            if p * (PASS + ROW * rows) <= ROW * expected or rows >= most:
                break
            lengths[i] += 1
            rows, expected = rows + 1, expected + p
        if expected * (PASS + n) <= n * (PASS + ROW * rows):
            return [[] for _ in every]
        return [text[:k] for text, k in zip(texts, lengths, strict=True)]

    def _guess(self, d: Drafted, least: float) -> list[float]:
        """Guesses its next tokens, one at least where any is known; how likely each is to be right,
        with all before it.
        """
        self._index(d)
        task, text, p = d.task, d.text[-ORDERS[0] :], 1.0
        each = (d.own, task and task.grams, task and task.grams_before)
        known = [(source, grams) for source, grams in zip(SOURCES, each, strict=True) if grams]
        likely = list[float]()
        d.guess = []
        while known and p > least and len(likely) < MOST:
            guess = self._next(known, text)
            if guess is None:
                break
            token, kind = guess
            d.guess.append(guess)
            text = [*text[1:], token]
            right = WORTH * self.rates.get(kind, PRIORS[kind[2]]) + d.right[kind]
            p *= right / (WORTH + d.tries[kind])
            likely.append(p)
        return likely

    def _index(self, d: Drafted) -> None:
        """Brings the n-grams up to what was said."""
        if d.own:
            d.own.add(d.text, d.own_upto)
            d.own_upto = len(d.text)
        task = d.task
        if task and "siblings" in self.sources:
            if task.grams is None:
                task.grams = _grams(task.answers)
            for x in task.under_way:
                task.grams.add(x.text, x.task_upto)
                x.task_upto = len(x.text)
        if task and "last" in self.sources and task.grams_before is None:
            task.grams_before = _grams(task.before)

    @staticmethod
    def _next(known: Iterable[tuple[str, Grams]], text: Sequence[int]) -> tuple[int, Kind] | None:
        for n in ORDERS:
            gram = tuple(text[-n:])
            for source, grams in known:
                if len(gram) == n and (successor := grams.after(gram)):
                    return successor[0], (source, n, successor[1])
        return None

    def _task(self, prompt: tuple[int, ...]) -> DraftedTask:
        root = self._root(prompt)
        task = self._tasks.get(root)
        if task is None:
            task = self._tasks[root] = DraftedTask(self._visit, size=len(root))
            self._size += task.size
            self._lengths[len(root)] += 1
        elif task.visit != self._visit:
            gone = sum(map(len, task.before))
            task.visit, task.before, task.answers = self._visit, task.answers, []
            task.grams = task.grams_before = None
            for x in task.under_way:
                x.task_upto = len(x.text)  # of earlier weights
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
