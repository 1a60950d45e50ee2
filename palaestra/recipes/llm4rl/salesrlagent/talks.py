"""Conversations with an outcome: those of a user's file, and simulated ones.

A simulated customer has a hidden buying state, which moves along four levels with what the seller says;
the customer's words tell it with noise, and the outcome is drawn by the last level.
"""

from collections.abc import Mapping, Sequence

import numpy as np

import palaestra as pl

LEVELS = ("cold", "curious", "interested", "ready")
CONVERTS = (0.03, 0.15, 0.55, 0.92)  # P(outcome | last level)
RIGHT_ACT = ("ask", "explain", "reassure", "close")  # by level
NOISE = 0.3  # of the customer's words are those of a level next to the true one
TRAINED = ("bicycle", "desk lamp", "water filter", "language course")
HELD_OUT = ("hiking tent", "coffee grinder")  # products of held-out conversations alone

SELLER: Mapping[str, Sequence[str]] = {
    "ask": ("What do you need the {p} for?", "How do you do this today?", "Who will use the {p}?"),
    "explain": ("The {p} does that in one step.", "It comes with a guide and a warranty.",
                "The {p} lasts about ten years."),
    "reassure": ("You can return the {p} within a month.", "We repair it free of charge.",
                 "The price stays the same for a year."),
    "close": ("Shall I write the order?", "Do you want the {p} this week?", "Which colour may I send?"),
}  # fmt: skip
CUSTOMER: Mapping[str, Sequence[str]] = {
    "cold": ("I am only looking.", "Not today, thank you.", "I have one already.", "I do not know.",
             "It seems expensive."),
    "curious": ("What is different about it?", "How does it work?", "Maybe, tell me more.",
                "Is the {p} new?"),
    "interested": ("That would help us.", "I like the {p}.", "What if it breaks?",
                   "How much is it with delivery?", "Can I return it?"),
    "ready": ("When can you deliver?", "That sounds right.", "Where do I pay?", "We can start soon.",
              "The price is fine."),
}  # fmt: skip


@pl.value_class
class SalesTalk:
    """A conversation and its outcome. `messages` are pairs of a role, "user" or "assistant", and a text;
    `hidden` is a simulated customer's buying state at each message, 0 to 1.
    """

    messages: tuple[tuple[str, str], ...]
    converted: bool
    hidden: tuple[float, ...] = ()
    name: str = ""


@pl.stage
class SimulatedTalks:
    """Conversations of a simulated customer with a seller; the same key gives the same ones.

    The seller takes the right act of the hidden level with a probability of its own, from 0.2 to 0.9.
    It moves the level up with 0.55, another act down with 0.25 and up with 0.1.
    """

    train: int = 500
    test: int = 250

    def draw(self, split: str, seed: int) -> list[SalesTalk]:
        rng = pl.rng_of(("salesrlagent", "talks", split, seed))
        n, products = (self.train, TRAINED) if split == "train" else (self.test, HELD_OUT)
        return [simulated_talk(rng, str(rng.choice(products)), f"{split}-{i}") for i in range(n)]


def simulated_talk(rng: np.random.Generator, product: str, name: str) -> SalesTalk:
    """One conversation of 3 to 6 exchanges, which the seller begins."""
    level, skill = int(rng.integers(0, 2)), rng.uniform(0.2, 0.9)
    messages, hidden = list[tuple[str, str]](), list[float]()
    for _ in range(int(rng.integers(3, 7))):
        right = RIGHT_ACT[level]
        act = (
            right if rng.random() < skill else str(rng.choice([a for a in RIGHT_ACT if a != right]))
        )
        messages.append(("assistant", str(rng.choice(SELLER[act])).format(p=product)))
        hidden.append(level / 3)
        chance = rng.random()
        up, down = (0.55, 0.05) if act == right else (0.1, 0.25)
        level = (
            min(3, level + 1) if chance < up else max(0, level - 1) if chance > 1 - down else level
        )
        heard = level
        if rng.random() < NOISE:
            heard = int(np.clip(level + rng.choice([-1, 1]), 0, 3))
        messages.append(("user", str(rng.choice(CUSTOMER[LEVELS[heard]])).format(p=product)))
        hidden.append(level / 3)
    converted = bool(rng.random() < CONVERTS[level])
    return SalesTalk(messages=tuple(messages), converted=converted, hidden=tuple(hidden), name=name)


def recorded_talks(bench: pl.Bench, split: str) -> list[SalesTalk]:
    """The conversations of a split of the user's data. Raises UserError for a row that is none."""
    if bench.tasks.size is None:
        raise pl.UserError(
            "salesrlagent learns from a file of conversations with their outcome: --data talks.jsonl"
        )
    numbers = range(bench.tasks.size) if split == "train" else pl.run.chosen_tasks(bench, 1 << 30)
    return [talk_of(bench.tasks.task(split, i)) for i in numbers]


def talk_of(task: pl.Task) -> SalesTalk:
    """A row as a conversation; what the system says, and results of tools, are no part of it."""
    outcome = pl.needs.truth_of(task.meta.get("converted"))
    if outcome is None:
        raise pl.UserError(
            f"task {task.id!r}: converted is {task.meta.get('converted')!r}; write true or false, whether "
            "the conversation reached its goal"
        )
    turns = [(m.role, m.text) for m in task.prompt]
    if isinstance(reply := task.meta.get("demonstration"), str):
        turns.append(("assistant", reply))
    messages = tuple((role, text) for role, text in turns if role in ("user", "assistant"))
    if not messages:
        raise pl.UserError(f"task {task.id!r} has no message of a user or an assistant")
    return SalesTalk(messages=messages, converted=outcome, name=str(task.id))


def script(messages: Sequence[tuple[str, str]]) -> str:
    """A conversation as lines that begin with who speaks; further lines of a message are indented, so that
    none of them looks like another speaker's.
    """
    names = {"user": "Customer", "assistant": "Seller"}
    indented = lambda text: "\n    ".join(text.splitlines())
    return "\n".join(f"{names[role]}: {indented(text)}" for role, text in messages)
