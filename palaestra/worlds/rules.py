"""Chains of relations that may answer a question, induced from similar questions that are solved.

    boss of bako?  ->  boss        host of boss of bako?  ->  boss -> host

Similar questions are found by BM25 on their words, without the names of their entities. Of each, a
search in breadth lists the chains from its entities to its answers; without the entities they are
bodies of rules, r1(x, z) & r2(z, y), which a language model is shown to write those of the question
(SymAgent, arXiv:2502.03283, section 4.1), or which are taken as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from functools import cached_property
from typing import TypeAlias

from palaestra.services.index import BM25, words_of
from palaestra.services.triples import RelationPath, TripleGraph, plain_name
from palaestra.types import need_at_least, stage

ARROW = " -> "
LOOKED_AT = 16  # similar questions for each example
HEAD = re.compile(r"^.*?(?:<-|:-|←|⟵|⇐)\s*")
ARGUMENTS = re.compile(r"\(\s*\w+\s*,\s*\w+\s*\)")
ARROWS = re.compile(r"\s*(?:->|→)\s*")
BETWEEN = re.compile(r"\s*(?:->|→|&|∧|,|;|>)\s*")
PLAN = (
    "Questions over a graph are answered by following relations. These are solved, with the chains "
    "of relations that lead to the answer:\n\n{examples}\n\nWrite the chains that may answer the next "
    "question, a line each, in the same form and with relations of the graph.\n\nQuestion: {question}"
)
Example: TypeAlias = tuple[str, tuple[RelationPath, ...]]


@stage
class SolvedQuestions:
    """(question, its entities, its answers) of each."""

    rows: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()

    def __repr__(self) -> str:
        digest = hashlib.sha256(repr(self.rows).encode()).hexdigest()[:12]
        return f"SolvedQuestions({len(self.rows)} questions, {digest})"


@stage
class RulePlanner:
    """Finds chains of relations for a question.

    Args:
        graph: that is followed.
        solved: questions with their answers; the same question, in whatever case and punctuation, is
            never an example of itself.
        k: similar questions that are looked at.
        hops: relations of a chain, at most.
        most: chains, at most.
    """

    graph: TripleGraph
    solved: SolvedQuestions = SolvedQuestions()
    k: int = 3
    hops: int = 3
    most: int = 8

    def __post_init__(self) -> None:
        need_at_least(self, k=1, hops=1, most=1)

    def entities_in(self, question: str) -> tuple[str, ...]:
        """The entities whose names stand in a question, the longest names first, and none within
        another.
        """
        words = words_of(question)
        entities, taken = list[str](), set[int]()
        for n in range(min(self._longest, len(words)), 0, -1):
            for i in range(len(words) - n + 1):
                at = set(range(i, i + n))
                name = self._by_words.get(tuple(words[i : i + n]))
                if name and not at & taken:
                    entities.append(name)
                    taken |= at
        return tuple(dict.fromkeys(entities))

    def examples(self, question: str, task: str = "") -> tuple[Example, ...]:
        """Similar questions with their chains, the most similar first; none without a chain.

        Args:
            question: as it is asked, perhaps by a model in words of its own.
            task: the question that is to be answered, which is no example either.
        """
        asked = (question, task)
        if asked not in self._examples:
            self._examples[asked] = self._examples_of(question, task)
        return self._examples[asked]

    def induce(self, question: str, task: str = "") -> tuple[RelationPath, ...]:
        """The chains of the examples: those that most of them have, of equal ones the shorter."""
        chains = [p for _, paths in self.examples(question, task) for p in paths]
        count = Counter(chains)
        order = sorted(count, key=lambda p: (-count[p], len(p), chains.index(p)))
        return tuple(order[: self.most])

    def request(self, question: str, task: str = "") -> str:
        """What a language model is asked to write the chains of a question; "" without examples."""
        example_texts = [
            "\n".join([f"Question: {text}", *map(ARROW.join, paths)])
            for text, paths in self.examples(question, task)
        ]
        return (
            PLAN.format(examples="\n\n".join(example_texts), question=question)
            if example_texts
            else ""
        )

    def read(self, text: str) -> tuple[RelationPath, ...]:
        """The chains in a text, a line each, as "a -> b" or as "r(q) <- a(x, z) & b(z, y)". A line
        with anything that is no relation of the graph is none.
        """
        paths = dict[RelationPath, None]()
        for line in text.splitlines():
            body = ARGUMENTS.sub("", HEAD.sub("", line)).strip().strip("[]-*. ")
            for separator in (ARROWS, BETWEEN):
                names = [plain_name(x.strip("'\"` ")) for x in separator.split(body)]
                known = all(n in self.graph.relations for n in names)
                if known and len(names) <= self.hops:
                    paths[tuple(self.graph.relations[n] for n in names)] = None
        return tuple(paths)[: self.most]

    def masked(self, question: str, entities: tuple[str, ...]) -> str:
        """The question without the names of its entities."""
        for name in sorted(entities, key=len, reverse=True):
            question = re.sub(
                rf"(?<!\w){re.escape(name)}(?!\w)", " ", question, flags=re.IGNORECASE
            )
        return question

    @cached_property
    def index(self) -> BM25 | None:
        """Of the solved questions; None where they have no words."""
        texts = [(str(i), self.masked(q, e)) for i, (q, e, _) in enumerate(self.solved.rows)]
        return BM25(tuple(texts)) if any(words_of(t) for _, t in texts) else None

    @cached_property
    def _by_words(self) -> dict[tuple[str, ...], str]:
        return {tuple(words_of(e)): e for e in self.graph.entities.values() if words_of(e)}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_words), default=0)

    @cached_property
    def _examples(self) -> dict[tuple[str, str], tuple[Example, ...]]:
        """By question and task; a group of episodes asks for the same ones."""
        return {}

    def _examples_of(self, question: str, task: str) -> tuple[Example, ...]:
        index, own = self.index, [words_of(question), words_of(task)]
        if index is None:
            return ()
        bare, examples = self.masked(question, self.entities_in(question)), list[Example]()
        seen = set[str]()  # questions that differ in their entities alone are shown once
        for number, masked, _ in index.search(bare, LOOKED_AT * self.k):
            text, entities, answers = self.solved.rows[int(number)]
            if words_of(text) in own or plain_name(masked) in seen:
                continue
            seen.add(plain_name(masked))
            if paths := self.graph.paths(entities, answers, self.hops, self.most):
                examples.append((text, paths))
        return tuple(examples[: self.k])
