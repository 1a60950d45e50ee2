"""Signal temporal logic in discrete time: a parser, exact robustness on traces, and rewards for formulas (RESTL).

    G[0,21](velocity > 40 -> F[1,4](RPM < 2500))        ( ) not and or -> <-> U[a,b]; also ! & | globally eventually until

Robustness: Donzé and Maler 2010, with times in steps. A trace is longer than every formula looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from palaestra.reward.verifiers.answers import statement
from palaestra.reward.verifiers.base import Judgement, failed, guarded, needed, reply
from palaestra.reward.verifiers.similarity import cosine, relative_length, rouge_l
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
MADE = 100  # traces on which a formula is made to hold, and as many on which it is made to fail
CUBE = 1_500_000  # values of all traces together
NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}

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
    """[N, T] traces on which two formulas may differ: still ones with one disturbance of any place and width, random ones, and
    ones on which either formula is made to hold, or to fail: of a narrow one the others hold no example.

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
    made = [Made(values, min(n, MADE), steps, rng).traces(h, holds) for h in (f, g) for holds in (True, False)]
    return {name: np.concatenate([x_NT, *(m[name] for m in made)]) for name, x_NT in found.items()}


class Made:
    """Traces on which a formula holds, or fails: every value is drawn from those that its atoms leave.

    Which part of an `or` holds, and when F does, is drawn as well; what contradicts another draw is lost.
    """

    def __init__(self, values: dict[str, list[float]], n: int, steps: int, rng: np.random.Generator) -> None:
        self.values, self.shape, self.rng = values, (n, steps), rng
        self.low = {name: np.zeros(self.shape, int) for name in values}  # of the values, which at least, and at most
        self.high = {name: np.full(self.shape, len(pool) - 1) for name, pool in values.items()}

    def traces(self, f: Formula, holds: bool) -> Traces:
        """One in four with another value somewhere: it holds nearly, or fails nearly."""
        n, steps = self.shape
        start_NT = np.tile(np.arange(steps) == 0, (n, 1))
        self.ask(f, start_NT & holds, start_NT & (not holds))
        other_NT = (self.rng.integers(0, steps, (n, 1)) == np.arange(steps)) & (np.arange(n) % 4 == 0)[:, None]
        found: Traces = {}
        for name, pool in self.values.items():
            span_NT = np.where(other_NT, len(pool), self.high[name] - self.low[name] + 1)
            i_NT = np.where(other_NT, 0, self.low[name]) + (self.rng.random(self.shape) * span_NT).astype(int)
            found[name] = np.asarray(pool)[i_NT.clip(0, len(pool) - 1)]
        return found

    def ask(self, f: Formula, yes: np.ndarray, no: np.ndarray) -> None:
        """Asks that a formula holds at the times `yes` and fails at the times `no`, each [N, T]."""
        match f:
            case ("atom", name, sign, bound):
                i = self.values[name].index(bound)
                self.limit(name, sign, i, yes)
                self.limit(name, NEGATED[sign], i, no)
            case ("not", g):
                self.ask(g, no, yes)
            case ("G" | "F", a, b, g):
                k_NT = self.rng.integers(a, b + 1, self.shape)
                every, once = (lambda j: True), (lambda j: j == k_NT)
                self.ask(g, *(ahead(m, a, b, every if (f[0] == "G") == (m is yes) else once) for m in (yes, no)))
            case ("U", a, b, g, h):  # holds: h at k, g until then; fails: no h up to k, no g at k
                k_NT, l_NT = (self.rng.integers(x, y, self.shape) for x, y in ((a, b + 1), (0, b + 2)))
                self.ask(h, ahead(yes, a, b, lambda j: j == k_NT), ahead(no, a, b, lambda j: j <= l_NT))
                self.ask(g, ahead(yes, 0, b, lambda j: j < k_NT), ahead(no, 0, b, lambda j: j == l_NT))
            case _:
                sign, g, h = f
                heads = self.coin()
                tails = ~heads
                match sign:
                    case "and":
                        sides = (yes, no & heads), (yes, no & tails)
                    case "or" | "->":
                        sides = (yes & heads, no) if sign == "or" else (no, yes & heads), (yes & tails, no)
                    case _:
                        sides = (
                            ((yes | no) & heads, (yes | no) & tails),
                            (np.where(heads, yes, no), np.where(heads, no, yes)),
                        )
                self.ask(g, *sides[0])
                self.ask(h, *sides[1])

    def limit(self, name: str, sign: str, i: int, mask_NT: np.ndarray) -> None:
        """Leaves of a signal's values, at these times, those on this side of value i."""
        low, high = self.low[name], self.high[name]
        if sign == "!=":
            coin_NT = self.coin()
            self.limit(name, "<", i, mask_NT & coin_NT)
            self.limit(name, ">", i, mask_NT & ~coin_NT)
        if sign in (">", ">=", "=="):
            low[mask_NT] = np.maximum(low[mask_NT], i + (sign == ">"))
        if sign in ("<", "<=", "=="):
            high[mask_NT] = np.minimum(high[mask_NT], i - (sign == "<"))

    def coin(self) -> np.ndarray:
        """[N, T] heads or tails, in half of the traces for all times the same."""
        coin_NT = self.rng.random(self.shape) < 0.5
        return np.where(np.arange(self.shape[0])[:, None] % 2 == 0, coin_NT, coin_NT[:, :1])


def ahead(mask_NT: np.ndarray, a: int, b: int, chosen: Callable[[int], Any]) -> np.ndarray:
    """The times that lie j steps, a <= j <= b, after one of the mask for which j is chosen."""
    found = np.zeros_like(mask_NT)
    for j in range(a, b + 1):
        found[:, j:] |= (mask_NT & chosen(j))[:, : mask_NT.shape[1] - j]
    return found


def equivalent(f: Formula, g: Formula) -> bool:
    """Whether two formulas hold on the same traces, of many, and do not on others; equal formulas always do."""
    if f == g:
        return True
    traces = traces_for(f, g)
    truth = holds(g, traces)
    return bool((holds(f, traces) == truth).all() and truth.any() and not truth.all())


def aspects(text: str, gold: str) -> dict[str, float]:
    """RESTL's four metrics of a formula's surface (arXiv:2511.08555): atoms (recall, as it is printed there), template, length,
    ROUGE-L of the tokens; and `paper`, their sum with its weights."""
    pairs = [{" ".join(m) for m in ATOM.findall(t)} for t in (text, gold)]
    recall = len(pairs[0] & pairs[1]) / len(pairs[1]) if pairs[1] else float(not pairs[0])
    lists = [TOKEN.findall(t) for t in (text, gold)]
    found = {
        "atoms": recall,
        "template": cosine(spoken(text), spoken(gold)),
        "length": max(0.0, relative_length(text, gold)),
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
    """1 if the formula means the same as the reference: it holds on the same traces, some 1,900 made to tell the two apart.

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
        near = 0.9 * parts["paper"] * self.surface
        try:
            same = equivalent(parse(text), wanted)
        except Unreadable:
            return Judgement(score=near, parts={**parts, "same": 0.0}, status="unparsable")
        return Judgement(score=1.0 if same else near, parts={**parts, "same": float(same)})
