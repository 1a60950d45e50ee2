"""Instruction following with constraints that a program can check: one sentence about a topic,
written as asked.

In the manner of IFEval (arXiv:2311.07911); topics and constraints are the project's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Task, stage

TOPICS = (
    "the sea", "bread", "winter", "a library", "the moon", "trains", "coffee", "a garden", "music",
    "rain", "bicycles", "honey",
    "mountains", "a bridge", "cats", "the desert", "clocks", "apples", "a river", "chess",
    "the wind", "a market", "snow", "dogs",
    "birds", "a castle", "tea", "the forest", "ships", "summer", "a village", "stars", "horses",
    "a school", "paper", "salt",
)  # fmt: skip
KEYWORDS = (
    "because",
    "always",
    "quiet",
    "bright",
    "people",
    "morning",
    "never",
    "old",
    "together",
    "small",
)
MOST_WORDS = 40  # of a sentence
FILLERS = (
    "and", "talk", "about", "it", "with", "friends", "who", "come", "by", "to", "listen", "for",
    "hours", "every", "day", "here",
    "now",
)  # fmt: skip

Check = Callable[[str, str], bool]  # (response, argument)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


CHECKS: Mapping[str, Check] = {
    "lowercase": lambda text, _: text == text.lower(),
    "capitals": lambda text, _: text == text.upper(),
    "keyword": lambda text, word: word in words(text),
    "first": lambda text, word: words(text)[:1] == [word],
    "end": lambda text, mark: text.rstrip().endswith(mark),
    "no comma": lambda text, _: "," not in text,
    "at most": lambda text, n: len(words(text)) <= int(n),
    "at least": lambda text, n: len(words(text)) >= int(n),
}
WORDING: Mapping[str, str] = {
    "lowercase": "Use only lowercase letters.",
    "capitals": "Use only capital letters.",
    "keyword": 'Use the word "{}".',
    "first": 'Begin with the word "{}".',
    "end": 'End with "{}".',
    "no comma": "Do not use any commas.",
    "at most": "Use at most {} words.",
    "at least": "Use at least {} words.",
}
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "lowercase": ("",), "capitals": ("",), "no comma": ("",), "keyword": KEYWORDS,
    "first": KEYWORDS,
    "end": ("!", "?", "..."), "at most": ("6", "8", "10"), "at least": ("12", "16", "20"),
}  # fmt: skip


@declare(
    columns=(
        ("topic", str, "what the text is about"),
        ("constraints", tuple, "what the text must satisfy"),
    )
)
@stage
class ConstraintTasks:
    """`Write one sentence about rain. Use at most 8 words.`

    A sentence names its topic, has 4 to 40 words, and none five times.
    """

    constraints: int = 1  # asked for together
    name: str = "constraints"
    size: int | None = None
    max_tokens: int = field(default=40, repr=False)  # of an answer

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        topic = TOPICS[int(rng.integers(len(TOPICS)))]
        while True:
            kinds = [str(k) for k in rng.choice(list(CHECKS), self.constraints, replace=False)]
            if not any(
                pair <= set(kinds) for pair in ({"lowercase", "capitals"}, {"at most", "at least"})
            ):
                break
        chosen = tuple((k, OPTIONS[k][int(rng.integers(len(OPTIONS[k])))]) for k in kinds)
        request = " ".join(
            [f"Write one sentence about {topic}.", *(WORDING[k].format(a) for k, a in chosen)]
        )
        return question_task(self.name, request, None, {"topic": topic, "constraints": chosen})

    def check(self, text: str, task: Task) -> float:
        """1 if the text is a sentence about the topic and keeps every constraint, else 0."""
        words_said, kept = self.kept(text, task)
        return float(words_said and all(kept))

    def kept(self, text: str, task: Task) -> tuple[bool, list[bool]]:
        """Whether a text is a sentence about the topic, and which constraints it keeps."""
        text = text.strip() if isinstance(text, str) else ""
        kept = [CHECKS[k](text, a) for k, a in task.meta["constraints"]]
        return sentence(text, task.meta["topic"]), kept

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """A plain sentence that keeps the constraints; there is no working to show."""
        asked_for = dict(task.meta["constraints"])
        sentence_words = ["many", "people", "like", *task.meta["topic"].split()]
        if "first" in asked_for:
            sentence_words = [asked_for["first"], *sentence_words]
        if "keyword" in asked_for and asked_for["keyword"] not in sentence_words:
            sentence_words.append(asked_for["keyword"])
        sentence_words += FILLERS[: max(0, int(asked_for.get("at least", 0)) - len(sentence_words))]
        text = " ".join(sentence_words) + asked_for.get("end", ".")
        return text.upper() if "capitals" in asked_for else text


def sentence(text: str, topic: str) -> bool:
    """One sentence on one line, of 4 to 40 words, that names its topic and does not
    repeat itself.
    """
    tokens = words(text)
    noun = topic.split()[-1]
    named = any(w.rstrip("s") == noun.rstrip("s") for w in tokens)
    one = "\n" not in text and not re.search(r"[.!?]\s+\S", text)
    return one and 4 <= len(tokens) <= MOST_WORDS and named and max(Counter(tokens).values()) < 5
