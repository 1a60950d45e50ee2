"""T-reading: questions after one to three facts of a wiki, and a reader that a wrong passage misleads.

user: boss of bako, heir of tiru?        answer: mema, soro
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.toys.wiki import RELATIONS, WikiTasks, wiki
from palaestra.types import ChatRequest, Task, stage

FACT = re.compile(r"(\w+) of (\w+) is (\w+)")
ASKED = re.compile(r"(\w+) of (\w+)")
UNKNOWN = "unknown"


@declare(columns=(("gold", tuple, "ids of the documents that hold the answer"),))
@stage
class ReadingTasks:
    """Questions after `facts` facts, at least and at most, of a wiki of `pages`; the answer names
    whom each is, in order. A task's meta: "gold", the pages that say it.
    """

    facts: tuple[int, int] = (1, 3)
    pages: int = 256
    seed: int = 0
    name: str = "reading"
    size: int | None = None

    def documents(self) -> tuple[tuple[str, str], ...]:
        return WikiTasks(pages=self.pages, seed=self.seed).documents()

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        known = wiki(self.pages, self.seed)
        people, n = list(known), int(rng.integers(self.facts[0], self.facts[1] + 1))
        names = [people[int(i)] for i in rng.choice(len(people), n, replace=False)]
        asked = [(RELATIONS[int(rng.integers(len(RELATIONS)))], who) for who in names]
        question = ", ".join(f"{way} of {who}" for way, who in asked)
        answer = ", ".join(known[who][way] for way, who in asked)
        gold = tuple(f"{who}/{way}" for way, who in asked)
        return question_task(self.name, f"{question}?", answer, {"gold": gold})


def read_facts(request: ChatRequest) -> str:
    """A reader's answer: for each fact that the question asks after, the first passage that has the
    relation and the person decides, also where that person is the other one of both.
    """
    passages, _, question = request.messages[-1].content.rpartition("Question:")
    facts: Sequence[tuple[str, str, str]] = FACT.findall(passages)
    answers: list[str] = []
    for way, who in ASKED.findall(question):
        match = next((f for f in facts if f[0] == way and who in f[1:]), None)
        answers.append(UNKNOWN if match is None else match[2] if match[1] == who else match[1])
    return ", ".join(answers)
