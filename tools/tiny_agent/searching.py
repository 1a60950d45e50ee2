"""Searches over made-up wikis, and what is written down of them.

No wiki here is the one that runs ask about (seed 0), so the model knows how to search and none of
what is found. Demonstrators decide at random, turn by turn: they search, or answer with whom they
found last, search for the whole question, or write no tag at all.
"""

from __future__ import annotations

from functools import lru_cache

from palaestra.services.index import BM25
from palaestra.tasks import phrasing as formats
from palaestra.toys.wiki import WikiTasks
from palaestra.types import Ask, Frame, Message, Task
from palaestra.worlds.search import EMPTY, SPENT, Search, SearchState
from tools.tiny_agent.playing import Rng, played
from tools.tiny_model.mixture import Conversation, Phase, pick, problem, said

WIKIS, FIRST = 48, 1000  # how many there are, and their first seed
PAGES = {100: 1, 400: 1, 1200: 1}
MOST = {1: 0.3, 2: 0.34, 3: 0.28, 4: 0.04, 5: 0.02, 6: 0.02}  # relations of a question
DECISIONS = {"search": 0.72, "hasty": 0.2, "whole": 0.04, "bare": 0.02, "empty": 0.02}


@lru_cache(WIKIS)
def wiki(number: int) -> tuple[WikiTasks, BM25]:
    pages = list(PAGES)[number % len(PAGES)]
    tasks = WikiTasks(hops=(1, 3), pages=pages, seed=FIRST + number)
    return tasks, BM25(tasks.documents())


def question(rng: Rng) -> tuple[WikiTasks, BM25, Task]:
    number, hops = int(rng.integers(WIKIS)), pick(rng, MOST)
    tasks, index = wiki(number)
    asked = WikiTasks(hops=(hops, hops), pages=tasks.pages, seed=tasks.seed)
    return tasks, index, problem(asked, rng)


def thought(state: SearchState, name: str) -> str:
    """What was found last, in words, and what is asked next."""
    return f"{state.task.meta['queries'][len(set(known(state))) - 1]} is {name}"


def known(state: SearchState) -> list[str]:
    """The ids of pages on the way that were found."""
    seen = {i for ids in state.found for i in ids}
    return [i for i in state.task.meta["gold"] if i in seen]


def way(state: SearchState) -> str:
    """Whom the pages that were found lead to so far."""
    return state.task.meta["path"][len(known(state))]


def searching(rng: Rng, phase: Phase) -> Conversation:
    """An episode of `Search`. Some demonstrators think aloud; a diligent one is seldom hasty."""
    _, index, task = question(rng)
    calls = 2 if rng.random() < 0.08 else 0
    world = Search(index, k=int(rng.choice([1, 2, 3, 3, 5])), turns=9, calls=calls)
    thinks = rng.random() < 0.35
    careful = rng.random() < (0.8 if phase.diligent else 0.35)

    def speaks(frame: Frame, ask: Ask) -> str:
        state: SearchState = frame.state
        text = world.oracle(state)
        if ask.say[-1].content == SPENT:
            text = f"<answer>{way(state)}</answer>"
        elif text.startswith("<search>"):
            how = "search" if careful else pick(rng, DECISIONS)
            text = {
                "search": text,
                "hasty": f"<answer>{way(state)}</answer>",
                "whole": f"<search>{task.prompt[0].content.rstrip('?')}</search>",
                "bare": text.removeprefix("<search>").removesuffix("</search>"),
                "empty": "<search></search>",
            }[how]
        if thinks and known(state) and "<" in text and ask.say[-1].content != EMPTY:
            return f"<think>{thought(state, way(state))}</think>{text}"
        return text

    (talk,) = played(world, task, speaks, (int(rng.integers(1 << 40)),))
    return talk


def noting(rng: Rng, phase: Phase) -> Conversation:
    """What was found is written down where that is asked for; and the episode goes on from such
    notes alone. Where they hold the answer there is nothing to search, where they are of others
    everything.
    """
    tasks, index, task = question(rng)
    meta, pages = task.meta, dict(tasks.documents())
    n = int(rng.integers(1, len(meta["gold"]) + 1))
    gold = [pages[i] for i in meta["gold"]]
    if rng.random() < 0.5:
        talk: list[Message] = [*task.prompt]
        for i in range(n):
            lines = [text for _, text, _ in index.search(meta["queries"][i], 3)]
            talk += [
                said(f"<search>{meta['queries'][i]}</search>"),
                Message(role="tool", content="\n".join(lines)),
            ]
        notes = gold[:n] if phase.diligent or rng.random() < 0.6 else gold[: max(0, n - 1)]
        return (*talk, formats.SUMMARISE, said("\n".join(notes) or "nothing"))
    whose = gold[:n] if rng.random() < 0.8 else [pages[i] for i in list(pages)[:n]]
    told = formats.add_summary(task, whose)
    at = n if whose == gold[:n] else 0
    hasty = not phase.diligent and rng.random() < 0.3
    done = hasty or at == len(gold)
    reply = (
        f"<answer>{meta['path'][at]}</answer>"
        if done
        else f"<search>{meta['queries'][at]}</search>"
    )
    return (*told.prompt, said(reply))


def reading(rng: Rng, phase: Phase) -> Conversation:
    """The pages stand in the question, in any order, among others: nothing is to be searched."""
    tasks, _, task = question(rng)
    pages = dict(tasks.documents())
    gold = [pages[i] for i in task.meta["gold"]]
    many = int(rng.integers(10, 50)) if rng.random() < 0.12 else int(rng.integers(0, 5))
    others = [pages[i] for i in rng.choice(list(pages), many, replace=False)]
    shown = [str(x) for x in rng.permutation([*gold, *others])]
    told = formats.add_summary(task, shown)
    works = phase.diligent or rng.random() < 0.4
    told_of = [
        f"{q} is {p}" for q, p in zip(task.meta["queries"], task.meta["path"][1:], strict=True)
    ]
    thought_of = f"<think>{', '.join(told_of)}</think>" if works else ""
    return (*told.prompt, said(f"{thought_of}<answer>{task.answer}</answer>"))
