"""T-lake: a program that writes its rules in a fixed grammar, in place of a model, and what rules in
this grammar predict.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import palaestra as pl
from palaestra.recipes.agents.cel.writing import WorldTexts

DIRECTIONS = {"u": (0, -1), "d": (0, 1), "l": (-1, 0), "r": (1, 0)}
RULE = re.compile(r"\b([udlr])([0-9])\b")
AIM = re.compile(r"\bt([0-9])\b")


@pl.stage
class WriteMoves:
    """A program in place of a model: reads off the steps of an episode which action moved where,
    and from its outcome which thing to go to.

    The grammar: "u4 l7" (4 moves up, 7 left) and "t9" (to 9). What is seen anew corrects what was
    written. A step that changed nothing teaches nothing. Of two things, the one that was not lost
    on is gone to.
    """

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
    ) -> WorldTexts:
        rules = read_rules(known.rules)
        for before, action, after in episode.facts.get("steps", ()):
            if (moved_to := direction(before, after)) is not None:
                rules = {d: name for d, name in rules.items() if name != action} | {
                    moved_to: action
                }
        written = " ".join(f"{d}{rules[d]}" for d in DIRECTIONS if d in rules)
        aim, result = episode.facts.get("thing", ""), episode.facts.get("result", "")
        if result == "lost":
            aim = next(x for x in things_in(task) if x != aim)
        return replace(known, rules=written, playbook=f"t{aim}" if aim else known.playbook)


def read_rules(text: str) -> dict[str, str]:
    """The names of actions by direction, as a text in the grammar gives them."""
    return dict(RULE.findall(text))


def read_aim(text: str) -> str:
    """The thing that a playbook says to go to; "" = none."""
    aim = AIM.search(text)
    return aim[1] if aim else ""


def direction(before: str, after: str) -> str | None:
    """Of a move between two squares as they are named; None = nothing moved."""
    by = (ord(after[0]) - ord(before[0]), int(after[1:]) - int(before[1:]))
    return next((d for d, step in DIRECTIONS.items() if step == by), None)


def things_in(task: pl.Task) -> list[str]:
    """The names of the things on the board of a task, without what is written above it."""
    board = pl.tasks.question_text(task).splitlines()[-1]
    return [part[0] for part in board.split()[1:]]


def rule_quality(rules: str, steps: Sequence[tuple[str, str, str]]) -> float | None:
    """The share of the steps (from, action, to) that moved which rules predict; None where none
    did.
    """
    means = {name: d for d, name in read_rules(rules).items()}
    moves = [(action, d) for a, action, b in steps if (d := direction(a, b)) is not None]
    return sum(means.get(action) == d for action, d in moves) / len(moves) if moves else None
