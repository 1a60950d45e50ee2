"""Propositional formulas as values and as text.

A formula is a name, "false", or a tuple of a connective and its parts: ("&", a, b), ("|", a, b),
("->", a, b). `~a` is a -> false. In text ~ binds tightest, then &, |, ->; all group to the right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from palaestra.errors import UserError

Formula: TypeAlias = "str | tuple[str, Formula, Formula]"
FALSE = "false"
TOKEN = re.compile(r"\s*(->|<->|[a-z][a-z0-9_]*|[()&|~])")
SPELLINGS = {
    "\u2192": "->", "\u2194": "<->", "\u2227": "&", "/\\": "&", "\u2228": "|", "\\/": "|",
    "\u00ac": "~", "\u22a5": FALSE, "False": FALSE,
}  # fmt: skip
BINDS = {"->": 1, "|": 2, "&": 3}  # how tightly
DEEPEST, LONGEST, LARGEST = 40, 2000, 200  # brackets in one another; characters; connectives


def negation(a: Formula) -> Formula:
    return ("->", a, FALSE)


@lru_cache(maxsize=4096)
def read_formula(text: str) -> Formula:
    """The formula of a text. Raises UserError where it is none, or too large."""
    if len(text) > LONGEST:
        raise _unreadable(text)
    formula = parse_formula(text)
    if connectives(formula) > LARGEST:
        raise _too_large(text)
    return formula


def parse_formula(text: str) -> Formula:
    """As `read_formula`, for a formula that may be a little larger: a goal has negations of others."""
    spelled = text
    for other, own in SPELLINGS.items():
        spelled = spelled.replace(other, own)
    tokens, at = list[str](), 0
    spelled = spelled.strip()
    while at < len(spelled):
        match = TOKEN.match(spelled, at)
        if match is None:
            raise _unreadable(text)
        tokens.append(match[1])
        at = match.end()
    formula, rest = _binary(tokens, text, 0)
    if rest:
        raise _unreadable(text)
    return formula


def connectives(f: Formula) -> int:
    """Their number."""
    return 0 if isinstance(f, str) else 1 + connectives(f[1]) + connectives(f[2])


def _too_large(text: str) -> UserError:
    return UserError(
        f"{text[:80]!r} has more than {LARGEST} connectives, where a <-> b counts as two implications; "
        "the built-in kernel reads no larger formula, so choose kernel=coq"
    )


def _unreadable(text: str) -> UserError:
    return UserError(
        f"{text[:80]!r} is no formula of the built-in kernel; write small letters or words with ~ & | -> "
        "and brackets, such as p & q -> q & p, or choose kernel=coq"
    )


def _binary(tokens: list[str], text: str, depth: int) -> tuple[Formula, list[str]]:
    """By precedence: a list of unary formulas and connectives, the loosest connective first."""
    first, rest = _unary(tokens, text, depth)
    parts, signs = [first], list[str]()
    while rest and rest[0] in ("->", "<->", "&", "|"):
        signs.append(rest[0])
        part, rest = _unary(rest[1:], text, depth)
        parts.append(part)
    if len(signs) > LARGEST:
        raise _too_large(text)
    return _grouped(parts, signs, text), rest


def _grouped(parts: list[Formula], signs: list[str], text: str) -> Formula:
    for sign in ("<->", "->", "|", "&"):
        if sign in signs:
            at = signs.index(sign)
            a = _grouped(parts[: at + 1], signs[:at], text)
            b = _grouped(parts[at + 1 :], signs[at + 1 :], text)
            if max(map(connectives, (a, b))) > 2 * LARGEST:  # before <-> doubles it again
                raise _too_large(text)
            return ("&", ("->", a, b), ("->", b, a)) if sign == "<->" else (sign, a, b)
    return parts[0]


def _unary(tokens: list[str], text: str, depth: int) -> tuple[Formula, list[str]]:
    if not tokens or depth > 2 * DEEPEST:
        raise _unreadable(text)
    head, rest = tokens[0], tokens[1:]
    if head == "~":
        inner, rest = _unary(rest, text, depth + 1)
        return negation(inner), rest
    if head == "(":
        inner, rest = _binary(rest, text, depth + 1)
        if not rest or rest[0] != ")":
            raise _unreadable(text)
        return inner, rest[1:]
    if not head[0].isalpha():
        raise _unreadable(text)
    return head, rest


def formula_text(f: Formula, above: int = 0) -> str:
    """Its one spelling, with no more brackets than it needs."""
    if isinstance(f, str):
        return f
    sign, a, b = f
    if sign == "->" and b == FALSE:
        return f"~{formula_text(a, 4)}"
    binds = BINDS[sign]
    text = f"{formula_text(a, binds + 1)} {sign} {formula_text(b, binds)}"
    return f"({text})" if binds < above else text


def subformulas(f: Formula) -> Iterator[Formula]:
    """All parts, the whole one first."""
    yield f
    if not isinstance(f, str):
        yield from subformulas(f[1])
        yield from subformulas(f[2])


def atoms(f: Formula) -> list[str]:
    """The names in it, sorted."""
    return sorted({x for x in subformulas(f) if isinstance(x, str) and x != FALSE})


def is_true(f: Formula, values: Mapping[str, bool]) -> bool:
    """Its truth value."""
    if isinstance(f, str):
        return f != FALSE and values[f]
    sign, a, b = f
    left = is_true(a, values)
    if sign == "&":
        return left and is_true(b, values)
    return (left or is_true(b, values)) if sign == "|" else (not left or is_true(b, values))


def is_tautology(f: Formula) -> bool:
    """Whether it is true under all values of its names: 2^n of them."""
    names = atoms(f)
    rows = product((False, True), repeat=len(names))
    return all(is_true(f, dict(zip(names, row, strict=True))) for row in rows)
