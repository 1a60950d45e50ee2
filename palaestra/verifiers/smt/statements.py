"""Existence statements in SMT-LIB, read from what a model wrote: there is a number `answer` such that
all assertions hold.

    (declare-const answer Int)
    (assert (>= (* answer answer) 10))
    (assert (>= answer 0))
    (minimize answer)

The text is never run. It is read into symbols here, what is no declaration, definition or assertion is
refused (z3 also knows commands that read and write files), and the symbols are written anew for z3's
parser. `minimize answer` and `maximize answer` say that the least or greatest such number is meant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from palaestra.types import value_class
from palaestra.verifiers.base import fences, strip_thinking

Tree: TypeAlias = "str | tuple[Tree, ...]"

ANSWER = "answer"
DEFINES = (
    *("declare-const", "declare-fun", "define-const", "define-fun", "define-fun-rec"),
    *("declare-sort", "define-sort", "declare-datatype", "declare-datatypes"),
)
BOUNDS = ("minimize", "maximize")
SILENT = ("set-logic", "set-info", "check-sat", "get-model", "get-value", "exit")
MOST_CHARACTERS, MOST_DEPTH = 20_000, 200
TOKEN = re.compile(
    r"""\s+|;[^\n]*|(?P<paren>[()])|(?P<word>\|[^|\\]*\||"(?:[^"]|"")*"|[^\s()|";'`\\]+)"""
)
START = re.compile(rf"\(\s*(?:{'|'.join((*DEFINES, *BOUNDS, 'assert', 'set-logic'))})\b")
# an option with a number: (A) 5, B. 7, C: -2.5, D) 1/3; a share such as 50% is none
OPTION = re.compile(
    r"(?<!\w)\(?([A-J])[).:]\s*\$?\s*(-?\s*(?:\d+/[1-9]\d*|\d+(?:,\d{3})*(?:\.\d+)?))(?![\w/%])"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
WORDS = {
    **{word: n for n, word in enumerate(SMALL)},
    **{"twice": 2, "double": 2, "half": 2, "thrice": 3, "triple": 3, "dozen": 12},
}


class Unreadable(ValueError):
    """A text that is no existence statement, and why."""


@value_class
class ExistenceStatement:
    """There is a number `answer` such that all assertions of `text` hold; with `bound` the least
    ("minimize") or greatest ("maximize") one is meant.
    """

    text: str
    bound: str = ""

    @property
    def shown(self) -> str:
        """As a model reads it."""
        return self.text + (f"\n({self.bound} {ANSWER})" if self.bound else "")


def read_statement(reply: str) -> ExistenceStatement:
    """The statement of a reply: its last fence that has an assertion, else all from the first command
    on. Where `answer` is not declared it is an integer.

    Raises:
        Unreadable: it is none, it has a command that is not allowed, or it names the answer.
    """
    text = strip_thinking(reply)
    blocks = [b for b in fences(text, ("smt", "smt2", "smtlib", "lisp", "")) if "assert" in b]
    text = blocks[-1] if blocks else text
    begun = START.search(text)
    if begun is None:
        raise Unreadable("there is no assertion in it")
    trees = read_trees(text[begun.start() :], rest=not blocks)
    lines, bound = list[str](), ""
    for tree in trees:
        command = tree[0] if isinstance(tree, tuple) and tree else tree
        if command in BOUNDS:
            if tree[1:] != (ANSWER,) or bound:
                raise Unreadable("only the answer can be the least or the greatest, and once")
            bound = str(command)
        elif command in DEFINES or command == "assert":
            if names_answer(tree[-1]) or claim_of(tree) is not None:
                raise Unreadable("it names the answer, and should only say what holds of it")
            lines += map(write_tree, _defined_answer(tree))
        elif command not in SILENT:
            raise Unreadable(f"the command {str(command)[:40]!r} is not allowed")
    if not any(line.startswith("(assert ") for line in lines):
        raise Unreadable("there is no assertion in it")
    if not any(t[1:2] == (ANSWER,) and t[0] in DEFINES for t in trees if isinstance(t, tuple)):
        lines.insert(0, f"(declare-const {ANSWER} Int)")
    return ExistenceStatement(text="\n".join(lines), bound=bound)


def _defined_answer(tree: Tree) -> tuple[Tree, ...]:
    """A definition of the answer as a constant and what holds of it, which is how z3 shows it; all else
    as it is.
    """
    if tree[:2] in (("define-fun", ANSWER), ("define-const", ANSWER)):
        return (("declare-const", ANSWER, tree[-2]), ("assert", ("=", ANSWER, tree[-1])))
    return (tree,)


def read_claim(reply: str) -> Fraction | None:
    """The witness that a reply gives: the number of its last `(= answer V)` or `(define-fun answer ()
    Int V)`; None where it gives none. Thoughts are read too.
    """
    claim = None
    for m in re.finditer(rf"\(\s*(?:=|define-fun\s+{ANSWER}\b|define-const\s+{ANSWER}\b)", reply):
        try:
            (tree,) = read_trees(reply[m.start() :], most=1)
        except Unreadable:
            continue
        value = claim_of(tree)
        claim = claim if value is None else value
    return claim


def names_answer(tree: Tree) -> bool:
    """Whether what is asserted, or a part of its conjunction, gives the answer as a literal."""
    if isinstance(tree, str):
        return False
    parts = tree[1:] if tree[:1] == ("and",) else tree[1:2] if tree[:1] == ("!",) else ()
    return claim_of(tree) is not None or any(map(names_answer, parts))


def claim_of(tree: Tree) -> Fraction | None:
    """The number of `(= answer V)`, `(= V answer)` or a definition of the answer; else None."""
    if isinstance(tree, str):
        return None
    if len(tree) == 3 and tree[0] == "=" and ANSWER in tree[1:]:
        return number_of(tree[2] if tree[1] == ANSWER else tree[1])
    if tree[:2] in (("define-fun", ANSWER), ("define-const", ANSWER)):
        return number_of(tree[-1])
    return None


def is_guess(statement: ExistenceStatement, witness: Fraction, question: str) -> bool:
    """Whether the witness stands in the statement as a literal, and not in the question: then the
    statement may have it from a guess. So it may where bounds of the answer by literals, without all else,
    leave the witness alone (6 < answer < 8), and one of these does not stand in the question. Numbers of
    listed options, "(A) 5", do not stand in the question: one of them is the answer.

    Signs do not count, nor do 0 and 1 where they only say that something is not negative or is
    positive. A number that is spelled as a sum of others is not noticed, and a literal that equals the
    answer by accident is taken for a guess.
    """
    trees, asked = read_trees(statement.text), numbers_in(OPTION.sub(" ", question))
    written = set[Fraction]().union(*map(_literals, trees))
    if abs(witness) in written and abs(witness) not in asked:
        return True
    ends = _ends(trees)
    low = max((x for x in ends if x[0] == "low"), key=lambda x: x[1], default=None)
    high = min((x for x in ends if x[0] == "high"), key=lambda x: x[1], default=None)
    needed = {"minimize": (low,), "maximize": (high,)}.get(statement.bound, (low, high))
    tight = all(x is not None and x[1] == witness for x in needed)
    return tight and any(
        x is not None and x[2] is not None and abs(x[2]) not in asked for x in needed
    )


def _ends(trees: Sequence[Tree]) -> list[tuple[str, Fraction, Fraction | None]]:
    """Of all assertions that bound the answer by a literal alone, and of the parts of their conjunctions:
    "low" or "high", the last whole number on this side of it, and the literal, None where
    it only gives a sign.
    """
    ends: list[tuple[str, Fraction, Fraction | None]] = []
    for tree in trees:
        if isinstance(tree, str) or not tree:
            continue
        if tree[0] in ("assert", "and"):
            ends += _ends(tree[1:])
        elif len(tree) == 3 and tree[0] in (">=", ">", "<=", "<") and ANSWER in tree[1:]:
            turned = tree[2] == ANSWER
            value, sign = number_of(tree[1] if turned else tree[2]), str(tree[0])
            if value is not None:
                low, strict = (sign[0] == ">") != turned, len(sign) == 1
                whole = Fraction(math.ceil(value) if low else math.floor(value))
                step = (1 if low else -1) * (strict and whole == value)
                ends.append(
                    ("low" if low else "high", whole + step, None if _gives_sign(tree) else value)
                )
    return ends


def numbers_of_options(question: str) -> dict[str, Fraction]:
    """Of a question that lists options "(A) 5 (B) 7", the number of each that is one, by its letter."""
    return {m[1]: Fraction(re.sub(r"[,\s]", "", m[2])) for m in OPTION.finditer(question)}


def _literals(tree: Tree) -> set[Fraction]:
    """The sizes of all literals of an expression, without the bounds that only give a sign."""
    value = number_of(tree)
    literals = set[Fraction]() if value is None else {abs(value)}
    if isinstance(tree, str) or _gives_sign(tree):
        return literals
    return literals.union(*map(_literals, tree))


def _gives_sign(tree: tuple[Tree, ...]) -> bool:
    """(>= x 0), (> x 0), (>= x 1), or the same the other way round."""
    if len(tree) != 3 or tree[0] not in (">=", ">", "<=", "<"):
        return False
    most, least = tree[1:] if str(tree[0])[0] == ">" else (tree[2], tree[1])
    bounds = ("0", "0.0", "1", "1.0") if str(tree[0])[1:] else ("0", "0.0")
    return isinstance(most, str) and number_of(most) is None and least in bounds


def numbers_in(question: str) -> set[Fraction]:
    """The numbers of a text: in digits, as fractions like 1/3, and the small ones in words."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", question.casefold())
    numbers = {Fraction(m) for m in NUMBER.findall(text)}
    parts = re.findall(r"(\d+)\s*/\s*(\d+)", text)
    numbers |= {Fraction(int(a), int(b)) for a, b in parts if int(b)}
    return numbers | {Fraction(WORDS[w]) for w in re.findall(r"[a-z]+", text) if w in WORDS}


def number_of(tree: Tree) -> Fraction | None:
    """The value of a literal: 3, 2.5, (- 3), (/ 1 3); None where it is none."""
    if isinstance(tree, str):
        return Fraction(tree) if NUMBER.fullmatch(tree) else None
    parts = [number_of(t) for t in tree[1:]]
    match tree[0] if tree else "", parts:
        case "-", [Fraction() as a]:
            return -a
        case "/", [Fraction() as a, Fraction() as b] if b:
            return a / b
        case "to_real", [Fraction() as a]:
            return a
        case _:
            return None


def read_trees(text: str, *, rest: bool = False, most: int = 0) -> list[Tree]:
    """The expressions of a text, or the first `most` of them. With `rest` reading ends where something
    else stands outside of brackets, as prose behind a statement does.

    Raises:
        Unreadable: brackets do not match, it is too long or too deep, or a sign is unknown.
    """
    if len(text) > MOST_CHARACTERS and not most:
        raise Unreadable(f"it has over {MOST_CHARACTERS} characters")
    trees, open_ones, at = list[Tree](), list[list[Tree]](), 0
    while at < len(text) and not (most and len(trees) == most):
        m = TOKEN.match(text, at)
        if m is None or (m["word"] and not open_ones):
            if rest and not open_ones:
                break
            raise Unreadable(f"{text[at : at + 20]!r} cannot be read")
        at = m.end()
        if m["paren"] == "(":
            open_ones.append([])
            if len(open_ones) > MOST_DEPTH:
                raise Unreadable(f"it has over {MOST_DEPTH} brackets in one another")
        elif m["paren"]:
            if not open_ones:
                if rest:
                    break
                raise Unreadable("a bracket is closed that was not opened")
            tree = tuple(open_ones.pop())
            (open_ones[-1] if open_ones else trees).append(tree)
        elif m["word"]:
            open_ones[-1].append(m["word"])
    if open_ones:
        raise Unreadable("a bracket is not closed")
    return trees


def write_tree(tree: Tree) -> str:
    """An expression as text."""
    return tree if isinstance(tree, str) else f"({' '.join(map(write_tree, tree))})"
