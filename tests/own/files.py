"""A user's files, made from what a method's card declares: rows, an environment, tools, a reward."""

import json

import numpy as np
from palaestra.needs.rows import template
from palaestra.toys.chain import ArithmeticChain

ENVIRONMENT = '''"""A corridor: go left or right until the door."""

import random


class Corridor:
    """Five places; the door is at the right end."""

    def reset(self):
        self.at = random.randrange(3)
        return f"You are at {self.at} of 4. Go right."

    def go(self, way: str) -> str:
        """Goes one place.

        Args:
            way: left or right.
        """
        self.at = max(0, min(4, self.at + (1 if way == "right" else -1)))
        return f"You are at {self.at} of 4."

    def get_reward(self):
        return self.at / 4
'''
GAME = '''"""A game of two: each says a number, and the higher one wins."""

import palaestra as pl


class HighNumber:
    seats = ("first", "second")

    def reset(self, task, key):
        return pl.Frame(state=(), asks=(self.ask("first"),))

    def ask(self, seat):
        return pl.Ask(seat=seat, say=(pl.Message(role="user", content=f"{seat}: a number?"),))

    def step(self, state, acts, key):
        said = (*state, len(acts[0].text))
        if len(said) == 1:
            return pl.Frame(state=said, asks=(self.ask("second"),))
        won = (said[0] > said[1]) - (said[0] < said[1])
        return pl.Frame(state=said, pay={("first", ""): float(won), ("second", ""): float(-won)})
'''
TOOLS = '''"""One tool."""


def search(query: str) -> str:
    """Looks something up.

    Args:
        query: what to look for.
    """
    return f"nothing is known of {query}, but the answer may be 4"
'''
REWARD = '''"""A reward of one's own."""


def even(response: str, **_) -> float:
    """1 for an answer of an even length."""
    return float(len(response) % 2 == 0)
'''


def rows_of(needs, arguments, n=24):
    """`n` rows as a user has them. Questions and answers are sums that the small model gets right at times,
    unless the card has examples of its own."""
    rows, sums = template(needs, arguments, n), ArithmeticChain()
    own = {c.name: c for c in needs.columns}
    for i, row in enumerate(rows):
        task = sums.task("train", i)
        if "prompt" in row and own["prompt"].examples[0].startswith("What is 17"):
            row["prompt"] = task.prompt[0].content
            if "answer" in row and own["answer"].examples[0] == "42":
                row["answer"] = task.answer
            for name in ("demonstration", "chosen"):
                if name in row:
                    row[name] = sums.demonstration(task, np.random.default_rng(i), "work")
            if "demonstrations" in row:
                several = (sums.demonstration(task, np.random.default_rng(i), habit) for habit in ("work", "guess"))
                row["demonstrations"] = list(several)
        elif "prompt" in row:
            row["prompt"] = f"{row['prompt']} ({i})"
    return rows


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file
