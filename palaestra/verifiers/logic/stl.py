"""Signal temporal logic in discrete time: a parser, and exact robustness on traces.

    G[0,21](velocity > 40 -> F[1,4](RPM < 2500))        ( ) not and or -> <-> U[a,b]

The same is written with ! & |, with globally always eventually finally until, with the signs of
logic (¬ ∧ ∨ → ↔ □ ◇ ≤ ≥ ≠) or LaTeX's names of them, as G_[0,21] and G[0:21], and as 40 < velocity.

Robustness: Donzé and Maler 2010, with times in steps. A trace is longer than every formula looks.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?"
TOKEN = re.compile(rf"\s*(<->|->|<=|>=|==|!=|&&|\|\||[<>=!&|()\[\],]|{NUMBER}|[A-Za-z_]\w*)")
STL_ATOM = re.compile(rf"([A-Za-z_]\w*)\s*(<=|>=|==|!=|<|>|=)\s*({NUMBER})")
ALIASES = {
    "globally": "G", "always": "G", "eventually": "F", "finally": "F", "until": "U", "&": "and",
    "&&": "and", "|": "or",
    "||": "or", "!": "not", "AND": "and", "OR": "or", "NOT": "not", "=": "==",
}  # fmt: skip
SIGNS = {
    "¬": "not", "∧": "and", "∨": "or", "→": "->", "⇒": "->", "↔": "<->", "⇔": "<->", "□": "G",
    "◻": "G", "◇": "F", "◊": "F",
    "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "≠": "!=",
}  # fmt: skip
COMMANDS = {
    "neg": "not", "lnot": "not", "land": "and", "wedge": "and", "lor": "or", "vee": "or",
    "to": "->", "rightarrow": "->",
    "Rightarrow": "->", "implies": "->", "leftrightarrow": "<->", "Leftrightarrow": "<->",
    "iff": "<->", "Box": "G",
    "square": "G", "Diamond": "F", "lozenge": "F", "leq": "<=", "le": "<=", "geq": ">=", "ge": ">=",
    "neq": "!=", "ne": "!=",
    "left": "", "right": "", "mathcal": "", "mathbf": "", "mathrm": "", "text": "",
}  # fmt: skip
WORDS = re.compile(
    r"\b(?:globally|always|eventually|finally|until)(?=_?\s*\{?\s*\[)", re.IGNORECASE
)
SUBSCRIPT = re.compile(r"(?<=[GFU])\s*_\s*(?:\{\s*(\[[^\[\]{}]*\])\s*\}|(?=\[))")
INTERVAL = re.compile(r"(\[\s*[0-9]+\s*):(\s*[0-9]+\s*\])")
MIRRORED_SIGN = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
OPERATORS = ("G", "F", "U", "and", "or", "not")
MOST_TOKENS = 400
MOST_DIGITS = 100  # of a threshold
FARTHEST = 300  # steps that a formula looks ahead
WIDEST = 20_000  # steps of all intervals together

Formula: TypeAlias = tuple[
    Any, ...
]  # ("atom", signal, sign, threshold), ("G", a, b, f), ("U", a, b, f, g), ("and", f, g), ..
Traces: TypeAlias = dict[str, np.ndarray]  # [N, T] by signal


class NotFormula(ValueError):
    """No formula."""


def normalise_signs(text: str) -> str:
    """The text with the signs, the names and the intervals that the parser knows."""
    text = text.replace("−", "-")
    for sign, name in SIGNS.items():
        text = text.replace(sign, f" {name} ")
    text = re.sub(r"\\([A-Za-z]+)", lambda m: f" {COMMANDS.get(m[1], m[0])} ", text)
    text = re.sub(r"\{\s*([GFU])\s*\}", r" \1", text)
    text = WORDS.sub(lambda m: ALIASES[m[0].lower()], text)
    return INTERVAL.sub(r"\1,\2", SUBSCRIPT.sub(lambda m: m[1] or "", text))


def tokens_of(text: str) -> list[str]:
    tokens, at = [], 0
    text = normalise_signs(text).strip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or len(tokens) == MOST_TOKENS:
            raise NotFormula(text[at : at + 20])
        tokens.append(ALIASES.get(match[1], match[1]))
        at = match.end()
    return tokens


class FormulaParser:
    """Recursive descent; from loose to tight: <->, ->, or, and, U, not G F, atoms."""

    def __init__(self, text: str) -> None:
        self.tokens, self.at, self.steps = [*tokens_of(text), ""], 0, 0

    def whole(self) -> Formula:
        formula = self.implication()
        if self.tokens[self.at]:
            raise NotFormula(self.tokens[self.at])
        return formula

    def accept(self, *wanted: str) -> str:
        token = self.tokens[self.at]
        if token in wanted:
            self.at += 1
            return token
        return ""

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise NotFormula(f"{token} for {self.tokens[self.at]!r}")

    def implication(self) -> Formula:
        left = self.junction("or", "and")
        if sign := self.accept("->", "<->"):
            return (sign, left, self.implication())
        return left

    def junction(self, sign: str, tighter: str = "") -> Formula:
        inner = (lambda: self.junction(tighter)) if tighter else self.until
        formula = inner()
        while self.accept(sign):
            formula = (sign, formula, inner())
        return formula

    def until(self) -> Formula:
        left = self.unary()
        if self.accept("U"):
            a, b = self.interval()
            return ("U", a, b, left, self.unary())
        return left

    def unary(self) -> Formula:
        if self.accept("not"):
            return ("not", self.unary())
        if sign := self.accept("G", "F"):
            a, b = self.interval()
            return (sign, a, b, self.unary())
        if self.accept("("):
            formula = self.implication()
            self.expect(")")
            return formula
        return self.atom()

    def atom(self) -> Formula:
        left, sign, right = (
            self.tokens[self.at + k] if self.at + k < len(self.tokens) else "" for k in range(3)
        )
        name, sign, bound = (
            (left, sign, right)
            if left[:1].isidentifier()
            else (right, MIRRORED_SIGN.get(sign, ""), left)
        )
        if (
            not STL_ATOM.fullmatch(f"{name} {sign} {bound}")
            or name in OPERATORS
            or len(bound) > MOST_DIGITS
        ):
            raise NotFormula(left)
        self.at += 3
        return ("atom", name, sign, Fraction(bound))

    def interval(self) -> tuple[int, int]:
        self.expect("[")
        low = self.tokens[self.at]
        self.at += 1
        self.expect(",")
        high = self.tokens[self.at]
        self.at += 1
        self.expect("]")
        if (
            not all(re.fullmatch(r"[0-9]{1,9}", x) for x in (low, high))
            or not int(low) <= int(high) <= FARTHEST
        ):
            raise NotFormula(f"[{low},{high}]")
        self.steps += int(high) - int(low) + 1
        if self.steps > WIDEST:
            raise NotFormula("wide")
        return int(low), int(high)


@lru_cache(maxsize=4096)
def parse_formula(text: str) -> Formula:
    """The formula of a text. Raises Unreadable."""
    try:
        formula = FormulaParser(text).whole()
    except IndexError:
        raise NotFormula("the end") from None
    if horizon(formula) > FARTHEST:
        raise NotFormula("far")
    return formula


def horizon(f: Formula) -> int:
    """How many steps ahead a formula looks."""
    match f[0]:
        case "atom":
            return 0
        case "G" | "F" | "U":
            return f[2] + max(horizon(g) for g in f[3:])
        case _:
            return max(horizon(g) for g in f[1:])


def robustness(f: Formula, traces: Traces) -> np.ndarray:
    """[N, T - horizon]: by how much the formula holds (> 0) or fails (< 0) at each time; 0 decides
    nothing.
    """
    match f:
        case ("atom", name, sign, threshold):
            x, bound = traces[name], float(threshold)
            gap = {
                "<": bound - x,
                "<=": bound - x,
                ">": x - bound,
                ">=": x - bound,
                "==": -abs(x - bound),
            }
            return abs(x - bound) if sign == "!=" else gap[sign]
        case ("not", g):
            return -robustness(g, traces)
        case ("G" | "F", a, b, g):
            inner = robustness(g, traces)
            n = inner.shape[1] - b
            windows = np.lib.stride_tricks.sliding_window_view(inner, b - a + 1, axis=1)[
                :, a : a + n
            ]
            return windows.min(-1) if f[0] == "G" else windows.max(-1)
        case ("U", a, b, g, h):
            return until(a, b, *align(robustness(g, traces), robustness(h, traces)))
        case (sign, g, h):
            x, y = align(robustness(g, traces), robustness(h, traces))
            if sign == "and":
                return np.minimum(x, y)
            if sign == "<->":
                return np.minimum(np.maximum(-x, y), np.maximum(x, -y))
            return np.maximum(-x if sign == "->" else x, y)
        case _:
            raise ValueError(f)


def until(a: int, b: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """max over t' in [a, b] of min(y(t'), min of x before t')."""
    n = x.shape[1] - b
    held = np.full((x.shape[0], n), np.inf)
    best = np.full((x.shape[0], n), -np.inf)
    for k in range(b + 1):
        if k >= a:
            best = np.maximum(best, np.minimum(y[:, k : k + n], held))
        held = np.minimum(held, x[:, k : k + n])
    return best


def align(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = min(x.shape[1], y.shape[1])
    return x[:, :n], y[:, :n]
