"""Goals, which a policy is told in words and a simulator's quantities show to be reached, and errands
made of them; the file that says both.

m games, O numbers of an observation, K goals, W words.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.house import PLACES, THINGS

# what System 1 is trained on, what is met in practice first, and what no one sees before the test
Part = Literal["known", "met", "unseen"]
PARTS: tuple[Part, ...] = ("known", "met", "unseen")
LINES = (
    '{"goal": "...", "where": {QUANTITY: [LOW, HIGH]}} or '
    '{"task": "...", "goals": ["...", ...], "part": "known" | "met" | "unseen"}'
)


class ErrandGoal(BaseModel):
    """A goal is reached where each quantity named is within its bounds."""

    model_config = ConfigDict(extra="forbid")
    goal: str = Field(min_length=1)
    where: dict[str, tuple[float, float]] = Field(min_length=1)


class Errand(BaseModel):
    """An errand is done when its goals were reached in their order."""

    model_config = ConfigDict(extra="forbid")
    task: str = Field(min_length=1)
    goals: list[str] = Field(min_length=1)
    part: Part = "known"


@dataclass(frozen=True)
class ErrandBook:
    """Goals and errands, with the quantities that show them."""

    goals: tuple[ErrandGoal, ...]
    errands: tuple[Errand, ...]
    view: pl.control.ViewWords

    def __post_init__(self) -> None:
        names = [g.goal for g in self.goals]
        pl.control.plan_form(names)  # their names differ
        for goal in self.goals:
            if wrong := [q for q in goal.where if q not in self.view.visible]:
                raise pl.UserError(
                    f"goal {goal.goal!r}: there is no quantity {wrong[0]!r}; there are "
                    f"{', '.join(self.view.visible)}"
                )
            if any(low > high for low, high in goal.where.values()):
                raise pl.UserError(f"goal {goal.goal!r}: bounds are [LOW, HIGH]")
        for errand in self.errands:
            if wrong := [g for g in errand.goals if g not in names]:
                raise pl.UserError(
                    f"task {errand.task!r}: no line has the goal {wrong[0]!r}; there are {', '.join(names)}"
                )
        if not self.trained:
            raise pl.UserError('dsadf needs a task with "part": "known", whose goals are trained')
        alike = [tuple(code) for code in self.code_KW]
        if len(set(alike)) < len(alike):
            raise pl.UserError("dsadf: two goals have the same words, so a policy cannot tell them")

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(g.goal for g in self.goals)

    @cached_property
    def trained(self) -> tuple[int, ...]:
        """Numbers of the goals of known errands, in the order of the file: the default curriculum."""
        known = {g for e in self.errands if e.part == "known" for g in e.goals}
        return tuple(k for k, goal in enumerate(self.goals) if goal.goal in known)

    def plan(self, errand: int) -> list[int]:
        return [self.names.index(g) for g in self.errands[errand].goals]

    def holds(self, obs: np.ndarray) -> np.ndarray:
        """[..., K] which goals are reached at observations [..., O]."""
        columns = self.view.compute(obs)
        inside = lambda q, span: (columns[q] >= span[0]) & (columns[q] <= span[1])
        each = [np.all([inside(q, s) for q, s in g.where.items()], 0) for g in self.goals]
        return np.stack(each, -1)

    # ---- words

    def spell_where(self, goal: int) -> str:
        """Where a goal is reached, "x = 3 and y from 0 to 2"."""
        spans = self.goals[goal].where.items()
        return " and ".join(
            f"{q} = {low:g}" if low == high else f"{q} from {low:g} to {high:g}"
            for q, (low, high) in spans
        )

    @cached_property
    def _words(self) -> list[str]:
        return sorted({w for name in self.names for w in words_of(name)})

    @cached_property
    def code_KW(self) -> np.ndarray:
        return np.stack([self.encode(name) for name in self.names])

    def encode(self, text: str) -> np.ndarray:
        """[W] which of the words of all goals a text has; 0 everywhere = none."""
        words = words_of(text)
        return np.array([float(w in words) for w in self._words])

    def spell_seen(self, obs: np.ndarray) -> str:
        """The quantities of an observation [O], one in a line."""
        columns = self.view.compute(obs)
        return "\n".join(
            f"- {name} = {float(columns[name]):.4g} ({q.about})"
            for name, q in self.view.visible.items()
        )


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of two codes; 0 where one is 0."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 0.0


def done_errands(book: ErrandBook, paths: pl.control.Paths, errand_n: np.ndarray) -> np.ndarray:
    """[n] whether the goals of each game's errand were reached in their order; several may be at once."""
    start, after = (book.holds(paths[k][:, 0]) for k in ("obs", "next_obs"))
    seen = np.concatenate([start[:, :1], after & paths["alive"][..., None]], 1)  # [n, 1 + T, K]
    done = np.zeros(len(errand_n), bool)
    for game, errand in enumerate(errand_n):
        plan, at = book.plan(int(errand)), 0
        for holds in seen[game]:
            while at < len(plan) and holds[plan[at]]:
                at += 1
        done[game] = at == len(plan)
    return done


def _reason(error: ValueError) -> str:
    """What does not fit, and where in its line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


def read_errands(file: str) -> tuple[tuple[ErrandGoal, ...], tuple[Errand, ...]]:
    """Goals and errands of a file of lines. Raises UserError with the line that does not fit."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"goals={file}: {error}") from None
    goals, errands = list[ErrandGoal](), list[Errand]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
            if isinstance(record, Mapping) and "goal" in record:
                goals.append(ErrandGoal.model_validate(record))
            else:
                errands.append(Errand.model_validate(record))
        except ValueError as error:
            why = _reason(error)
            raise pl.UserError(f"{file}:{number}: a line is {LINES} ({why})") from None
    if not goals:
        raise pl.UserError(f"goals={file} has no goal; a line is {LINES}")
    if not errands:  # each goal is one
        errands = [Errand(task=g.goal, goals=[g.goal]) for g in goals]
    return tuple(goals), tuple(errands)


# ---- those of the house


def house_goals() -> tuple[ErrandGoal, ...]:
    go = [
        ErrandGoal(goal=f"go to the {name}", where={"x": (x, x), "y": (y, y)})
        for name, (x, y) in PLACES.items()
    ]
    take = [
        ErrandGoal(goal=f"take the {thing}", where={"hands": (i, i)})
        for i, thing in enumerate(THINGS, start=1)
    ]
    carried = (("book", "desk"), ("cup", "shelf"), ("cup", "sink"), ("book", "shelf"))
    put = [put_goal(thing, place) for thing, place in carried]
    return (*go, *take, *put)


def put_goal(thing: str, place: str) -> ErrandGoal:
    x, y = PLACES[place]
    where: dict[str, tuple[float, float]] = {
        f"{thing}_x": (x, x),
        f"{thing}_y": (y, y),
        "hands": (0, 0),
    }
    return ErrandGoal(goal=f"put the {thing} on the {place}", where=where)


def house_errands(goals: Sequence[ErrandGoal]) -> tuple[Errand, ...]:
    known = [Errand(task=g.goal, goals=[g.goal]) for g in goals[: len(PLACES) + len(THINGS)]]
    carry: list[tuple[str, list[str], Part]] = [
        ("bring the book to the desk", ["take the book", "put the book on the desk"], "met"),
        ("tidy the cup away on the shelf", ["take the cup", "put the cup on the shelf"], "met"),
        ("bring the cup to the sink", ["take the cup", "put the cup on the sink"], "unseen"),
        (
            "tidy the book away on the shelf",
            ["take the book", "put the book on the shelf"],
            "unseen",
        ),
        ("read the book in bed", ["take the book", "go to the bed"], "unseen"),
    ]
    return (*known, *(Errand(task=t, goals=g, part=p) for t, g, p in carry))
