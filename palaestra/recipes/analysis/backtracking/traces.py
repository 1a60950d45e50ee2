"""Worked solutions with wrong branches in them, from which the model goes back."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import palaestra as pl

NODES = 20_000  # of a search for a solution
TRIES = 8  # random branches for each one that is wanted


@dataclass(frozen=True, slots=True)
class WrongBranch:
    """Wrong steps behind the first `at` right ones."""

    at: int
    steps: Sequence[str]


@dataclass(frozen=True, slots=True)
class SolutionSearch:
    """The right steps to an answer, and wrong branches on the way. `end` is a last line as it was written;
    "" = it is made of the `answer`.
    """

    steps: Sequence[str]
    branches: Sequence[WrongBranch] = ()
    answer: str = ""
    end: str = ""

    def json(self) -> dict[str, Any]:
        branches = [{"at": b.at, "steps": list(b.steps)} for b in self.branches]
        return {
            "steps": list(self.steps),
            "branches": branches,
            "answer": self.answer,
            "end": self.end,
        }


def search_from(kept: Mapping[str, Any]) -> SolutionSearch:
    branches = [WrongBranch(b["at"], b["steps"]) for b in kept["branches"]]
    return SolutionSearch(kept["steps"], branches, kept["answer"], kept["end"])


@dataclass(frozen=True, slots=True)
class TraceForm:
    """How traces are written: `back` takes {step}, `restart` is said instead where that is 0, `ends`
    takes {answer}.
    """

    back: str
    restart: str
    ends: str

    def trace(self, search: SolutionSearch, back_steps: int, rng: np.random.Generator) -> str:
        """Right steps with so many wrong branches in them, drawn at random and in the order of the steps
        that they leave; without any where the search has fewer.
        """
        n = back_steps if back_steps <= len(search.branches) else 0
        chosen = sorted(int(i) for i in rng.permutation(len(search.branches))[:n])
        lines, done = list[str](), 0
        for branch in sorted((search.branches[i] for i in chosen), key=lambda b: b.at):
            back = self.back.format(step=branch.at) if branch.at else self.restart
            lines += [*search.steps[done : branch.at], *branch.steps, back]
            done = branch.at
        end = search.end or self.ends.format(answer=search.answer)
        return "\n".join([*lines, *search.steps[done:], end])

    def count(self, text: str) -> int:
        """How many back-steps a text has."""
        forms = (re.escape(self.restart), re.escape(self.back).replace(r"\{step\}", r"\d+"))
        return len(re.findall("|".join(forms), text))


def swap_content(
    searches: Sequence[SolutionSearch], rng: np.random.Generator
) -> list[SolutionSearch]:
    """Each search with the wrong steps of another one at the places of its own, so that traces have as many
    back-steps, to the same places, and what is wrong has nothing to do with the problem.
    """
    order = [int(i) for i in rng.permutation(len(searches)) if searches[int(i)].branches]
    other = dict(zip(order, [*order[1:], *order[:1]], strict=True))
    return [
        swap_branches(s, searches[other[i]]) if i in other else s for i, s in enumerate(searches)
    ]


def swap_branches(search: SolutionSearch, other: SolutionSearch) -> SolutionSearch:
    steps = [b.steps for b in other.branches]
    mixed = [WrongBranch(b.at, steps[k % len(steps)]) for k, b in enumerate(search.branches)]
    return SolutionSearch(search.steps, mixed, search.answer, search.end)


def search_of(task: pl.Task, most: int, rng: np.random.Generator) -> SolutionSearch:
    """What the columns of a row say of its solution, with up to `most` wrong branches: `steps` and `wrong`,
    or `numbers` to be combined to the answer. No steps where they say nothing.

    Raises:
        UserError: a column is in another form.
    """
    numbers, steps = task.meta.get("numbers"), task.meta.get("steps")
    if steps is None and numbers is not None:
        return countdown(task, [whole(x, task) for x in numbers], most, rng)
    answer = "" if task.answer is None else str(task.answer)
    if steps is None:
        return SolutionSearch((), (), answer)
    if isinstance(steps, str) or not all(isinstance(x, str) for x in steps):
        raise pl.UserError(f"row {task.id!r}: its `steps` are the right steps as a list of texts")
    branches = [branch_of(x, len(steps), task) for x in task.meta.get("wrong") or ()]
    return SolutionSearch(tuple(steps), branches, answer)


def branch_of(given: Any, steps: int, task: pl.Task) -> WrongBranch:
    """A record of the column `wrong`."""
    wrong = given.get("steps") if isinstance(given, Mapping) else None
    at = given.get("back", 0) if isinstance(given, Mapping) else None
    texts = isinstance(wrong, Sequence) and not isinstance(wrong, str)
    if not texts or not wrong or not isinstance(at, int) or not 0 <= at <= steps:
        raise pl.UserError(
            f"row {task.id!r}: its `wrong` is a list of wrong branches, each with its steps and how many "
            f'right steps stand before it, at most {steps}: {{"back": 1, "steps": ["..."]}}'
        )
    return WrongBranch(at, tuple(map(str, wrong)))


def whole(x: Any, task: pl.Task) -> int:
    try:
        return int(str(x))
    except ValueError:
        raise pl.UserError(f"row {task.id!r}: {x!r} of its `numbers` is no whole number") from None


# a number that is reached: its value, how it was reached, and the sign of the last step
Term = tuple[Fraction, str, str]


def countdown(
    task: pl.Task, numbers: Sequence[int], most: int, rng: np.random.Generator
) -> SolutionSearch:
    """Steps that combine all numbers to the target, and random ones that end at another value."""
    target = Fraction(whole(task.meta.get("target", task.answer), task))
    start: list[Term] = [(Fraction(x), str(x), "") for x in numbers]
    solution = solve(start, target, rng)
    if not solution:
        return SolutionSearch((), (), "")
    branches = list[WrongBranch]()
    for _ in range(TRIES * most):
        at = int(rng.integers(len(solution)))  # no step is left behind the last one
        terms = solution[at - 1][1] if at else start
        wrong, end = wander(terms, rng)
        known = any(b.at == at and b.steps == wrong for b in branches)
        if end != target and not known and len(branches) < most:
            branches.append(WrongBranch(at, wrong))
    return SolutionSearch([step for step, _ in solution], branches, solution[-1][1][0][1])


def solve(
    terms: list[Term], target: Fraction, rng: np.random.Generator
) -> list[tuple[str, list[Term]]]:
    """The steps to the target, each with the terms behind it, by a depth-first search in random order:
    without division if that will do. Nothing where no way is found within `NODES` steps.
    """
    return search_deep(terms, target, "+-*", [NODES], rng) or (
        search_deep(terms, target, "+-*/", [NODES], rng) or []
    )


def search_deep(
    terms: list[Term], target: Fraction, signs: str, left: list[int], rng: np.random.Generator
) -> list[tuple[str, list[Term]]] | None:
    """The steps from some terms on; None where there are none. `left`: steps that may still be tried."""
    if len(terms) == 1:
        return [] if terms[0][0] == target else None
    ways = list(moves(terms, signs))
    for i in rng.permutation(len(ways)):
        left[0] -= 1
        if left[0] < 0:
            return None
        step, after = ways[int(i)]
        if (rest := search_deep(after, target, signs, left, rng)) is not None:
            return [(step, after), *rest]
    return None


def wander(terms: list[Term], rng: np.random.Generator) -> tuple[list[str], Fraction]:
    """Random steps until one number is left, and that."""
    steps = list[str]()
    while len(terms) > 1:
        ways = list(moves(terms, "+-*"))
        step, terms = ways[int(rng.integers(len(ways)))]
        steps.append(step)
    return steps, terms[0][0]


def moves(terms: list[Term], signs: str) -> Iterable[tuple[str, list[Term]]]:
    """Every step that combines two terms; values are whole and not negative."""
    for i, first in enumerate(terms):
        for j, second in enumerate(terms):
            rest = [t for k, t in enumerate(terms) if k not in (i, j)]
            for sign in signs if i != j else "":
                if sign in "+*" and i > j:
                    continue
                value = combine(first[0], second[0], sign)
                if value is not None:
                    text = f"{bracket(first, sign)}{sign}{bracket(second, sign, right=True)}"
                    yield f"{first[0]}{sign}{second[0]}={value}", [*rest, (value, text, sign)]


def combine(a: Fraction, b: Fraction, sign: str) -> Fraction | None:
    """None for a negative number, and for a division with a remainder."""
    match sign:
        case "+":
            return a + b
        case "*":
            return a * b
        case "-":
            return a - b if a >= b else None
        case _:
            return a / b if b and (a / b).denominator == 1 else None


def bracket(term: Term, sign: str, *, right: bool = False) -> str:
    """The text of a term beside a sign, in brackets where it needs them."""
    _, text, inner = term
    weak = inner in ("+", "-")
    needs = bool(inner) and (
        (weak and sign in "*/") or (right and (sign == "/" or (weak and sign == "-")))
    )
    return f"({text})" if needs else text


def imitation(steps: int) -> pl.Recipe:
    """What imitates traces, for so many steps."""
    return pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=steps))
