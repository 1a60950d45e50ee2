"""T-tastes: an agent finds out what a user likes, by questions that cost something, and recommends.

A user has six tastes, each yes or no, and there are twelve items, one for each taste and its opposite. The
tasks are also recorded talks of agents that ask and recommend at random: nobody in them is good at it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from palaestra.declared import declare
from palaestra.types import Act, Ask, Frame, Key, Message, Task, rng_of, stage, value_class

TASTES = "abcdef"
COST = 0.05  # of a question
HELD_OUT = 8  # every so many users are held out


def answer(tastes: str, what: str) -> str:
    """Of a user with tastes such as "010011" to a question about one."""
    if len(what) != 1 or what not in TASTES:
        return "what?"
    return "yes" if tastes[TASTES.index(what)] == "1" else "no"


def worth(tastes: str, item: str) -> float:
    """1 if a user has the taste that an item is for, such as "b1" of who likes b, else 0."""
    if len(item) != 2 or item[0] not in TASTES:
        return 0.0
    return float(tastes[TASTES.index(item[0])] == item[1])


@declare(
    columns=(
        ("demonstration", str, "a worked answer"),
        ("imitated", tuple, "places of the messages of the prompt that are demonstrated too"),
        ("reward", list, "of each of the agent's messages"),
        ("profile", str, "the user's tastes"),
    )
)
@stage
class TasteTalks:
    """A user, of 64 of whom 8 are held out, and a recorded talk with them: up to three questions
    about random tastes, then an item, which in two of five talks fits an answer that was given, if any, and else is random.
    """

    name: str = "tastes"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((self.name, split, index))
        users = [u for u in range(64) if (u % HELD_OUT == 0) == (split == "test")]
        tastes = format(users[int(rng.integers(len(users)))], "06b")
        prompt, known = [Message(role="user", content="hi")], list[str]()
        for _ in range(int(rng.integers(4))):
            what = TASTES[int(rng.integers(6))]
            reply = answer(tastes, what)
            prompt.append(Message(role="assistant", content=f"ask {what}"))
            prompt.append(Message(role="user", content=reply))
            known.append(what + str(int(reply == "yes")))
        fits = bool(known) and rng.random() < 0.4
        item = known[-1] if fits else f"{TASTES[int(rng.integers(6))]}{int(rng.integers(2))}"
        talk: dict[str, Any] = {
            "demonstration": f"take {item}",
            "imitated": tuple(range(1, len(prompt), 2)),
            "reward": [-COST] * len(known) + [worth(tastes, item)],
            "profile": f"tastes {tastes}",
        }
        identity = f"{self.name}/{split}/{index}"
        return Task(id=identity, prompt=tuple(prompt), answer=tastes, meta=talk)


@value_class
class TasteState:
    """A talk under way."""

    task: Task
    questions: int = 0


@stage
class TasteUser:
    """Answers "ask c" by yes or no, until the agent recommends an item, "take c1", which pays 1 if the
    user's taste is so, else 0. Each question costs 0.05; without an item in `turns` turns nothing else
    is paid.
    """

    turns: int = 4
    seats: tuple[str, ...] = ("policy",)
    bounds: ClassVar[tuple[float, float]] = (-0.2, 1.0)
    max_tokens: int = 16

    def reset(self, task: Task, key: Key) -> Frame:
        ask = Ask(seat="policy", say=task.prompt[:1])
        return Frame(state=TasteState(task=task), asks=(ask,))

    def step(self, state: TasteState, acts: tuple[Act, ...], key: Key) -> Frame:
        word, _, what = acts[0].text.strip().partition(" ")
        tastes, spent = str(state.task.answer), COST * state.questions
        if word == "take":
            return Frame(state=state, pay={("policy", ""): worth(tastes, what) - spent})
        now = replace(state, questions=state.questions + 1)
        if now.questions >= self.turns:
            return Frame(state=now, pay={("policy", ""): -COST * now.questions})
        reply = answer(tastes, what if word == "ask" else "")
        ask = Ask(seat="policy", say=(Message(role="user", content=reply),))
        return Frame(state=now, asks=(ask,))

    def oracle(self, state: TasteState) -> str:
        """The item for the user's first taste."""
        return f"take a{str(state.task.answer)[0]}"
