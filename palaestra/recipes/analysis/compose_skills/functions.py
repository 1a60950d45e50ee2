"""Functions of strings, calls of calls, and problems made of them."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import palaestra as pl

StringFunction: TypeAlias = Callable[[str], str]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 64  # letters of a value; longer ones are drawn again
REDRAWS = 200


def permute(x: str) -> str:
    """Character i is the one at i k modulo the length, k the smallest odd number from 3 on that is coprime to
    the length.
    """
    k = next(k for k in range(3, 2 * len(x) + 5, 2) if math.gcd(k, len(x)) == 1)
    return "".join(x[i * k % len(x)] for i in range(len(x)))


def shift(x: str, by: int = 3) -> str:
    """Each letter is the one `by` places behind it; z is followed by a."""
    return "".join(LETTERS[(LETTERS.index(c) + by) % 26] for c in x)


STRINGS: Mapping[str, StringFunction] = {
    "reverse": lambda x: x[::-1],
    "rotate": lambda x: x[1:] + x[:1],
    "back": lambda x: x[-1:] + x[:-1],
    "swap": lambda x: x[1:2] + x[:1] + x[2:],
    "first": lambda x: x[:1] + x[:-1],
    "last": lambda x: x[1:] + x[-1:],
    "sort": lambda x: "".join(sorted(x)),
    "permute": permute,
    "mirror": lambda x: x + x[::-1],
    "shift": shift,
    "odd": lambda x: x[::2],
    "double": lambda x: "".join(c + c for c in x),
}
# the other task, to which composition may transfer: numbers of two digits
NUMBERS: Mapping[str, StringFunction] = {
    "plus": lambda x: f"{(int(x) + 7) % 100:02d}",
    "minus": lambda x: f"{(int(x) - 4) % 100:02d}",
    "turn": lambda x: x[::-1],
    "ten": lambda x: f"{(int(x) + 10) % 100:02d}",
}


@dataclass(frozen=True, slots=True)
class SkillSet:
    """Functions, what they are called, and what draws an input. Those of the first half are composed in
    training, the others in the test.
    """

    name: str
    functions: Sequence[StringFunction]
    called: Sequence[str]
    draw_input: Callable[[np.random.Generator], str]

    def names(self, trained: bool) -> list[int]:
        half = (len(self.functions) + 1) // 2
        return list(range(half)) if trained else list(range(half, len(self.functions)))

    def call(self, number: int, x: str) -> str:
        """The value. Raises what the function raises, and ValueError for what is no short text."""
        value = self.functions[number](x)
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST or "\n" in value:
            raise ValueError(f"{self.called[number]}({x!r}) is {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Composition:
    """An expression as it is written, its value, and each call on the way with its value, the innermost
    first.
    """

    text: str
    value: str
    calls: Sequence[tuple[str, str]] = ()

    def worked(self) -> str:
        """A line for each call, then the answer."""
        lines = [f"{call} = {value}" for call, value in self.calls]
        return "\n".join([*lines, f"Answer: {self.value}"])


def skill_set(
    name: str,
    given: str,
    alone: Mapping[str, StringFunction],
    draw_input: Callable[[np.random.Generator], str],
    named: bool,
) -> SkillSet:
    """The functions of a file or built-in ones, under their own names or under NAME0, NAME1, ..."""
    functions = read_functions(given, alone)
    called = list(functions) if named else [f"{name}{i}" for i in range(len(functions))]
    return SkillSet(name, list(functions.values()), called, draw_input)


def read_functions(given: str, alone: Mapping[str, StringFunction]) -> dict[str, StringFunction]:
    """The functions of a file, in its order, or built-in ones by name, with commas between them; "" = all.

    Raises:
        UserError: there are fewer than four, or there is no such name.
    """
    if given.endswith(".py"):
        functions = functions_of_file(given)
    else:
        names = pl.studies.listed(given) or list(alone)
        if unknown := [n for n in names if n not in alone]:
            raise pl.UserError(
                f"functions={unknown[0]}: name a file, FILE.py, or some of {', '.join(alone)}"
            )
        functions = {n: alone[n] for n in names}
    if len(functions) < 4:
        raise pl.UserError(
            f"functions={given}: {len(functions)} functions; two are composed in training and two others in the "
            "test, so bring four or more that take a text and return one"
        )
    return functions


def functions_of_file(file: str) -> dict[str, StringFunction]:
    """The public functions that a file defines and that can be called with one text, by name."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise pl.UserError(f"functions={file}: no such file")
    names = [
        line.split("(")[0].removeprefix("def ").strip()
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("def ") and not line.startswith("def _")
    ]
    loaded = {name: pl.tasks.load(f"{file}:{name}", "function") for name in names}
    return {name: f for name, f in loaded.items() if takes_one(f)}


def takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind("x")
    except (TypeError, ValueError):
        return False
    return True


def inputs_of(
    file: str, letters: tuple[int, int], alphabet: str
) -> Callable[[np.random.Generator], str]:
    """What draws inputs: from the list INPUTS of a file that has one, else random letters."""
    texts = list[str]()
    if file.endswith(".py") and "\nINPUTS" in "\n" + Path(file).expanduser().read_text("utf-8"):
        texts = [str(x) for x in pl.tasks.load(f"{file}:INPUTS", "list")]
    if texts:
        return lambda rng: texts[int(rng.integers(len(texts)))]

    def draw(rng: np.random.Generator) -> str:
        n = int(rng.integers(letters[0], letters[1] + 1))
        return "".join(alphabet[int(i)] for i in rng.integers(0, len(alphabet), n))

    return draw


def draw_number(rng: np.random.Generator) -> str:
    return f"{int(rng.integers(100)):02d}"


def compose(
    skills: SkillSet, level: int, some: Sequence[int], binary: float, rng: np.random.Generator
) -> Composition:
    """An expression of so many nested calls of some functions: with a chance of `binary` at each depth from
    the second on two expressions are joined by + instead. Expressions that raise are drawn again.

    Raises:
        UserError: all raise.
    """
    reason = ""
    for _ in range(REDRAWS):
        try:
            return drawn(skills, level, some, binary, rng)
        except Exception as error:  # of a function of the user's, on an input that it does not take
            reason = f"{type(error).__name__}: {error}"
    raise pl.UserError(
        f"no expression of {level} nested calls could be evaluated; the last one ended in {reason}. Give the "
        "file a list INPUTS of texts that its functions take"
    )


def drawn(
    skills: SkillSet, level: int, some: Sequence[int], binary: float, rng: np.random.Generator
) -> Composition:
    if level == 0:
        x = skills.draw_input(rng)
        return Composition(x, x)
    if level > 1 and rng.random() < binary:
        a, b = (drawn(skills, level - 1, some, binary, rng) for _ in range(2))
        text, value = f"{a.text}+{b.text}", a.value + b.value
        if len(value) > LONGEST:
            raise ValueError(f"a text of {len(value)} letters")
        return Composition(text, value, [*a.calls, *b.calls, (f"{a.value}+{b.value}", value)])
    inner = drawn(skills, level - 1, some, binary, rng)
    number = int(some[int(rng.integers(len(some)))])
    name, value = skills.called[number], skills.call(number, inner.value)
    call = (f"{name}({inner.value})", value)
    return Composition(f"{name}({inner.text})", value, [*inner.calls, call])


@dataclass(frozen=True, slots=True)
class ComposedProblem:
    """A composition at a level, as a row of data."""

    composition: Composition
    level: int
    skills: str

    def row(self, number: int, prompt: str) -> dict[str, Any]:
        return {
            "id": f"{self.skills}-{self.level}-{number}",
            "prompt": prompt.replace("{expression}", self.composition.text),
            "answer": self.composition.value,
            "domain": f"{self.skills}-{self.level}",
        }

    def conversation(self, number: int, prompt: str) -> dict[str, Any]:
        asked = self.row(number, prompt)["prompt"]
        replies = [("user", asked), ("assistant", self.composition.worked())]
        return {"messages": [{"role": role, "content": text} for role, text in replies]}


@dataclass(slots=True)
class ProblemDraw:
    """Problems, each expression once; `known` holds those that were drawn."""

    binary: float
    known: set[str] = field(default_factory=set[str])

    def take(
        self, skills: SkillSet, level: int, some: Sequence[int], n: int, rng: np.random.Generator
    ) -> list[ComposedProblem]:
        """Up to n problems that were not drawn before; fewer where there are no more."""
        made = list[ComposedProblem]()
        for _ in range(REDRAWS * max(1, n // 8)):
            if len(made) == n:
                break
            composition = compose(skills, level, some, self.binary, rng)
            if composition.text not in self.known:
                self.known.add(composition.text)
                made.append(ComposedProblem(composition, level, skills.name))
        return made


def imitation(steps: int) -> pl.Recipe:
    """What imitates worked calls, for so many steps."""
    return pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=steps))
