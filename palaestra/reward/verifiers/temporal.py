"""Signal temporal logic in discrete time: a parser, exact robustness on traces, and rewards for formulas (RESTL).

    G[0,21](velocity > 40 -> F[1,4](RPM < 2500))        ( ) not and or -> <-> U[a,b]; also ! & | globally eventually until

Robustness: Donzé and Maler 2010, with times in steps. A trace is longer than every formula looks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from palaestra.reward.verifiers.answers import statement
from palaestra.reward.verifiers.base import Judgement, failed, guarded, needed, reply
from palaestra.reward.verifiers.similarity import cosine, rouge_l
from palaestra.types import UserError, rng_of, stage

TOKEN = re.compile(r"\s*(<->|->|<=|>=|==|!=|&&|\|\||[<>=!&|()\[\],]|[-+]?[0-9]+(?:\.[0-9]+)?|[A-Za-z_]\w*)")
ALIASES = {
    "globally": "G", "always": "G", "eventually": "F", "finally": "F", "until": "U", "&": "and", "&&": "and", "|": "or",
    "||": "or", "!": "not", "AND": "and", "OR": "or", "NOT": "not", "=": "==",
}  # fmt: skip
ATOM = re.compile(r"([A-Za-z_]\w*)\s*(<=|>=|==|!=|<|>|=)\s*([-+]?[0-9]+(?:\.[0-9]+)?)")
MOST_TOKENS = 400
FARTHEST = 300  # steps that a formula looks ahead
WIDEST = 20_000  # steps of all intervals together
TRACES = 1500
CUBE = 1_500_000  # values of all traces together

Formula: TypeAlias = tuple[Any, ...]
Traces: TypeAlias = dict[str, np.ndarray]  # [N, T] by signal


class Unreadable(ValueError):
    """No formula."""


def tokens_of(text: str) -> list[str]:
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or len(found) == MOST_TOKENS:
            raise Unreadable(text[at : at + 20])
        found.append(ALIASES.get(match[1], match[1]))
        at = match.end()
    return found


class Parser:
    """Recursive descent; from loose to tight: <->, ->, or, and, U, not G F, atoms."""

    def __init__(self, text: str) -> None:
        self.tokens, self.at, self.steps = [*tokens_of(text), ""], 0, 0

    def whole(self) -> Formula:
        found = self.implied()
        if self.tokens[self.at]:
            raise Unreadable(self.tokens[self.at])
        return found

    def took(self, *wanted: str) -> str:
        token = self.tokens[self.at]
        if token in wanted:
            self.at += 1
            return token
        return ""

    def expect(self, token: str) -> None:
        if not self.took(token):
            raise Unreadable(f"{token} for {self.tokens[self.at]!r}")

    def implied(self) -> Formula:
        left = self.joined("or", "and")
        if sign := self.took("->", "<->"):
            return (sign, left, self.implied())
        return left

    def joined(self, sign: str, tighter: str = "") -> Formula:
        inner = (lambda: self.joined(tighter)) if tighter else self.until
        found = inner()
        while self.took(sign):
            found = (sign, found, inner())
        return found

    def until(self) -> Formula:
        left = self.unary()
        if self.took("U"):
            a, b = self.interval()
            return ("U", a, b, left, self.unary())
        return left

    def unary(self) -> Formula:
        if self.took("not"):
            return ("not", self.unary())
        if sign := self.took("G", "F"):
            a, b = self.interval()
            return (sign, a, b, self.unary())
        if self.took("("):
            found = self.implied()
            self.expect(")")
            return found
        name, sign, bound = (self.tokens[self.at + k] if self.at + k < len(self.tokens) else "" for k in range(3))
        if not ATOM.fullmatch(f"{name} {sign} {bound}") or name in ("G", "F", "U", "and", "or", "not"):
            raise Unreadable(name)
        self.at += 3
        return ("atom", name, sign, float(bound))

    def interval(self) -> tuple[int, int]:
        self.expect("[")
        low = self.tokens[self.at]
        self.at += 1
        self.expect(",")
        high = self.tokens[self.at]
        self.at += 1
        self.expect("]")
        if not (low.isdigit() and high.isdigit() and int(low) <= int(high) <= FARTHEST):
            raise Unreadable(f"[{low},{high}]")
        self.steps += int(high) - int(low) + 1
        if self.steps > WIDEST:
            raise Unreadable("wide")
        return int(low), int(high)


@lru_cache(maxsize=4096)
def parse(text: str) -> Formula:
    """The formula of a text. Raises Unreadable."""
    try:
        found = Parser(text).whole()
    except IndexError:
        raise Unreadable("the end") from None
    if horizon(found) > FARTHEST:
        raise Unreadable("far")
    return found


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
    """[N, T - horizon]: by how much the formula holds (> 0) or fails (< 0) at each time."""
    match f:
        case ("atom", name, sign, bound):
            x = traces[name]
            gap = {"<": bound - x, "<=": bound - x, ">": x - bound, ">=": x - bound, "==": -abs(x - bound)}
            return abs(x - bound) if sign == "!=" else gap[sign]
        case ("not", g):
            return -robustness(g, traces)
        case ("G" | "F", a, b, g):
            inner = robustness(g, traces)
            n = inner.shape[1] - b
            windows = np.lib.stride_tricks.sliding_window_view(inner, b - a + 1, axis=1)[:, a : a + n]
            return windows.min(-1) if f[0] == "G" else windows.max(-1)
        case ("U", a, b, g, h):
            return until(a, b, *aligned(robustness(g, traces), robustness(h, traces)))
        case (sign, g, h):
            x, y = aligned(robustness(g, traces), robustness(h, traces))
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


def aligned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = min(x.shape[1], y.shape[1])
    return x[:, :n], y[:, :n]


def holds(f: Formula, traces: Traces) -> np.ndarray:
    """[N] whether it holds at time 0, with < and <= told apart: thresholds are half steps away from every value but theirs."""
    return robustness(strict(f), traces)[:, 0] > 0


def strict(f: Formula) -> Formula:
    """The formula with every comparison decided by a margin, so that its robustness is never 0."""
    if f[0] != "atom":
        return tuple(strict(g) if isinstance(g, tuple) else g for g in f)
    name, sign, bound = f[1:]
    tiny = 1e-6 * max(1.0, abs(bound))
    match sign:
        case ">=":
            return ("atom", name, ">", bound - tiny)
        case ">":
            return ("atom", name, ">", bound + tiny)
        case "<=":
            return ("atom", name, "<", bound + tiny)
        case "<":
            return ("atom", name, "<", bound - tiny)
        case _:
            inside = ("and", ("atom", name, ">", bound - tiny), ("atom", name, "<", bound + tiny))
            return inside if sign == "==" else ("not", inside)


def atoms(f: Formula) -> set[tuple[str, str, float]]:
    return {f[1:]} if f[0] == "atom" else {a for g in f if isinstance(g, tuple) for a in atoms(g)}


def traces_for(f: Formula, g: Formula) -> Traces:
    """[N, T] traces on which two formulas may differ: still ones with one disturbance of any place and width, and random ones.

    Values are the thresholds, and what lies between and beyond them.
    """
    values: dict[str, list[float]] = {}
    for name in sorted({a[0] for h in (f, g) for a in atoms(h)}):
        bounds = sorted({a[2] for h in (f, g) for a in atoms(h) if a[0] == name})
        middles = [(a + b) / 2 for a, b in pairwise(bounds)]
        values[name] = sorted({*bounds, *middles, bounds[0] - 1, bounds[-1] + 1})
    steps = max(horizon(f), horizon(g)) + 1
    n = max(64, min(TRACES, CUBE // (steps * max(1, len(values)))))
    rng = rng_of(("stl", repr(f), repr(g)))
    start_N = np.resize(np.arange(steps), n)
    width_N = np.where(rng.random(n) < 0.6, 1, rng.integers(1, steps + 1, n))
    at_T = np.arange(steps)
    disturbed_NT = (at_T >= start_N[:, None]) & (at_T < (start_N + width_N)[:, None])
    found: Traces = {}
    for name, pool in values.items():
        still_N1, other_N1 = rng.choice(pool, (n, 1)), rng.choice(pool, (n, 1))
        x_NT = np.where(disturbed_NT, other_N1, still_N1)
        noisy_N = rng.random(n) < 0.2
        found[name] = np.where(noisy_N[:, None], rng.choice(pool, (n, steps)), x_NT)
    return found


def equivalent(f: Formula, g: Formula) -> bool:
    """Whether two formulas hold on the same traces, of many; equal formulas always do."""
    if f == g:
        return True
    traces = traces_for(f, g)
    return bool((holds(f, traces) == holds(g, traces)).all())


def aspects(text: str, gold: str) -> dict[str, float]:
    """RESTL's four metrics of a formula's surface (arXiv:2511.08555): atoms (recall, as it is printed there), template, length,
    ROUGE-L of the tokens; and `paper`, their sum with its weights."""
    pairs = [{" ".join(m) for m in ATOM.findall(t)} for t in (text, gold)]
    recall = len(pairs[0] & pairs[1]) / len(pairs[1]) if pairs[1] else float(not pairs[0])
    lists = [TOKEN.findall(t) for t in (text, gold)]
    found = {
        "atoms": recall,
        "template": cosine(spoken(text), spoken(gold)),
        "length": max(0.0, 1 - abs(len(gold) - len(text)) / max(1, len(gold))),
        "tokens": rouge_l(*lists),
    }
    weights = {"atoms": 0.2, "template": 0.25, "length": 0.35, "tokens": 0.2}
    return {**found, "paper": sum(w * found[k] for k, w in weights.items())}


def spoken(text: str) -> str:
    """A formula in words."""
    said = {"G": "always", "F": "eventually", "U": "until", "->": "implies", ">": "over", "<": "under"}
    return " ".join(said.get(str(t), str(t)) for t in TOKEN.findall(text))


@stage
class Temporal:
    """1 if the formula means the same as the reference: it holds on the same traces, 1,500 made to tell the two apart.

    With `surface`, a formula that means something else is worth 0.9 of RESTL's four metrics (parts `atoms`, `template`,
    `length`, `tokens`; `paper` is their weighted sum, which by itself pays a wrong time bound 0.97).
    """

    surface: bool = False

    @guarded
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = str(needed(answer, "answer", str, self)).strip()
        try:
            wanted = parse(gold)
        except Unreadable as error:
            raise UserError(
                f"Temporal: the answer {gold[:60]!r} is no formula (at {error}); see the module's grammar"
            ) from None
        said = statement(response)
        text = (reply(response) if said is None else said).strip().strip("`$").strip()
        if len(text) > 10 * len(gold) + 200:
            return failed("unparsable")
        parts = aspects(text, gold)
        try:
            same = equivalent(parse(text), wanted)
        except Unreadable:
            return Judgement(
                score=0.9 * parts["paper"] * self.surface, parts={**parts, "same": 0.0}, status="unparsable"
            )
        score = 1.0 if same else 0.9 * parts["paper"] * self.surface
        return Judgement(score=score, parts={**parts, "same": float(same)})
