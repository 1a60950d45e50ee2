"""The theory of closure, interior and complement of sets in a topological space, and its proof kernel.

    A <= cl int A => A <= int cl int cl A

is a statement: hypotheses, parted by commas, before `=>`, and an inclusion. A proof is a chain of sets from the
left side up to the right one, a line each without the first, and each lies in the next by one of these rules, at
one place of it:

    int X <= X      X <= cl X      cl cl X = cl X     int int X = int X      ~~X = X
    ~cl X = int ~X  ~int X = cl ~X  ~(X & Y) = ~X | ~Y  cl (X | Y) = cl X | cl Y  int (X & Y) = int X & int Y
    X & Y <= X      X <= X | Y      X & X = X          X | X = X             L <= R, a hypothesis

Inside a complement a rule is read backwards. Every rule holds in every space (Kuratowski, Fund. Math. 1922);
with two hypotheses nothing is proven by cases. Finite spaces refute what is false: see `spaces`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from palaestra.errors import UserError
from palaestra.services.proof.base import ProofState, Rejected, match_term
from palaestra.types import stage, value_class

Term: TypeAlias = Any  # "A", ("cl", x), ("int", x), ("~", x), ("&", x, y) or ("|", x, y)
Inclusion: TypeAlias = tuple[Term, Term]
TOKEN = re.compile(r"\s*(<=|=>|[~&|(),]|[A-Za-z]\w*)")
DUAL = {"cl": "int", "int": "cl", "&": "|", "|": "&"}
MOST = 24  # operators of a term
DEEPEST, LONGEST = 64, 2000  # brackets and operators inside each other, and letters, of a text


@value_class
class SetStatement:
    """That an inclusion holds wherever the hypotheses do."""

    hypotheses: tuple[Inclusion, ...]
    conclusion: Inclusion


class _Reader:
    def __init__(self, text: str):
        if len(text) > LONGEST:
            raise UserError(f"{text[:60]!r}...: a statement has at most {LONGEST} letters")
        self.tokens, at = list[str](), 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None:
                raise UserError(
                    f"{text[:60]!r}: {text[at:].strip()[:10]!r} is no part of a statement on sets"
                )
            self.tokens.append(match[1])
            at = match.end()
        self.text, self.at, self.depth = text, 0, 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str) -> None:
        if self.peek() != token:
            token_here = repr(self.peek()) if self.peek() else "its end"
            raise UserError(f"{self.text[:60]!r}: {token!r} is expected, not {token_here}")
        self.at += 1

    def union(self) -> Term:
        return self._joined("|", lambda: self._joined("&", self.unary))

    def _joined(self, sign: str, part: Any) -> Term:
        term = part()
        while self.peek() == sign:
            self.at += 1
            term = (sign, term, part())
        return term

    def unary(self) -> Term:
        if self.depth > DEEPEST:
            raise UserError(f"{self.text[:60]!r}: it is nested deeper than {DEEPEST}")
        self.depth += 1
        token = self.peek()
        self.at += 1
        term: Term = None
        if token in ("cl", "int", "~"):
            term = (token, self.unary())
        elif token == "(":
            term = self.union()
            self.take(")")
        elif re.fullmatch(r"[A-Z]\w*", token):
            term = token
        self.depth -= 1
        if term is not None:
            return term
        raise UserError(
            f"{self.text[:60]!r}: a set is expected: a capital letter, cl, int, ~ or a bracket"
        )

    def inclusion(self) -> Inclusion:
        left = self.union()
        self.take("<=")
        return left, self.union()

    def end(self) -> None:
        if self.peek():
            raise UserError(f"{self.text[:60]!r}: {self.peek()!r} stands behind the end")


@lru_cache(maxsize=16384)
def read_set(text: str) -> Term:
    """A set as a term. Raises UserError."""
    reader = _Reader(text)
    term = reader.union()
    reader.end()
    return _bounded(term, text)


@lru_cache(maxsize=16384)
def read_sets(text: str) -> SetStatement:
    """A statement. Raises UserError where it is none."""
    reader, parts = _Reader(text), list[Inclusion]()
    parts.append(reader.inclusion())
    while reader.peek() == ",":
        reader.take(",")
        parts.append(reader.inclusion())
    hypotheses = tuple(parts)
    if reader.peek() == "=>":
        reader.take("=>")
        parts = [reader.inclusion()]
    elif len(parts) > 1:
        raise UserError(f"{text[:60]!r}: hypotheses stand before `=>`, and one inclusion behind it")
    else:
        hypotheses = ()
    reader.end()
    for pair in (*hypotheses, *parts):
        for term in pair:
            _bounded(term, text)
    return SetStatement(hypotheses=hypotheses, conclusion=parts[0])


def _bounded(term: Term, text: str) -> Term:
    if size(term) > MOST:
        raise UserError(f"{text[:60]!r} has a set of more than {MOST} operators")
    return term


def size(term: Term) -> int:
    """Its operators."""
    return 0 if isinstance(term, str) else 1 + sum(map(size, term[1:]))


def names_of(term: Term) -> list[str]:
    """Its variables, in order, each once."""
    if isinstance(term, str):
        return [term]
    return list(dict.fromkeys(n for x in term[1:] for n in names_of(x)))


@lru_cache(maxsize=65536)
def set_text(term: Term) -> str:
    if isinstance(term, str):
        return term
    if term[0] in ("&", "|"):
        sides = (
            f"({set_text(x)})" if x[0] in ("&", "|") and x[0] != term[0] else set_text(x)
            for x in term[1:]
        )
        first, second = sides
        return f"{first} {term[0]} {f'({second})' if term[2][0] == term[0] else second}"
    inner = set_text(term[1])
    inner = f"({inner})" if term[1][0] in ("&", "|") else inner
    return f"~{inner}" if term[0] == "~" else f"{term[0]} {inner}"


def statement_text(statement: SetStatement) -> str:
    def of(pair: Inclusion) -> str:
        return f"{set_text(pair[0])} <= {set_text(pair[1])}"

    before = ", ".join(map(of, statement.hypotheses))
    return f"{before} => {of(statement.conclusion)}" if before else of(statement.conclusion)


def _renamed(term: Term, names: dict[str, str]) -> Term:
    return (
        names[term] if isinstance(term, str) else (term[0], *(_renamed(x, names) for x in term[1:]))
    )


def canonical(statement: SetStatement) -> SetStatement:
    """The statement with its variables named A, B, ... in the order of the conclusion, then of the hypotheses,
    and these sorted, each once.
    """
    conclusion, hypotheses = statement.conclusion, statement.hypotheses
    terms = [*conclusion, *(x for pair in hypotheses for x in pair)]
    variables = list(dict.fromkeys(n for x in terms for n in names_of(x)))
    names = {n: chr(ord("A") + i) if i < 26 else f"A{i}" for i, n in enumerate(variables)}
    made = {(_renamed(a, names), _renamed(b, names)) for a, b in hypotheses}
    return SetStatement(
        hypotheses=tuple(sorted(made, key=lambda p: (set_text(p[0]), set_text(p[1])))),
        conclusion=(_renamed(conclusion[0], names), _renamed(conclusion[1], names)),
    )


# ---- rules


def _equal(term: Term) -> Iterator[Term]:
    """What a set is equal to by one rule at its root."""
    if isinstance(term, str):
        return
    sign, *inner = term
    x = inner[0]
    if sign in ("cl", "int"):
        if x[0] == sign:
            yield x
        yield (sign, term)
        if x[0] == "~":
            yield ("~", (DUAL[sign], x[1]))
        joins = "|" if sign == "cl" else "&"
        if x[0] == joins:
            yield (joins, (sign, x[1]), (sign, x[2]))
    elif sign == "~":
        if x[0] == "~":
            yield x[1]
        if x[0] in ("cl", "int"):
            yield (DUAL[x[0]], ("~", x[1]))
        if x[0] in ("&", "|"):
            yield (DUAL[x[0]], ("~", x[1]), ("~", x[2]))
    else:
        y = inner[1]
        if x == y:
            yield x
        if x[0] == y[0] == "~":
            yield ("~", (DUAL[sign], x[1], y[1]))
        whole = "cl" if sign == "|" else "int"
        if x[0] == y[0] == whole:
            yield (whole, (sign, x[1], y[1]))


def larger(term: Term, given: Sequence[Inclusion] = (), *, up: bool = True) -> frozenset[Term]:
    """The sets that contain a set by one rule, or, not `up`, that it contains; but for X <= X | Y with a new Y,
    of which there are endless ones, and X <= ~~X.
    """
    return _larger(term, tuple(given), up)


@lru_cache(maxsize=65536)
def _larger(term: Term, given: tuple[Inclusion, ...], up: bool) -> frozenset[Term]:
    made = {*_equal(term), *(b if up else a for a, b in given if (a if up else b) == term)}
    made.add(("cl" if up else "int", term))
    if not isinstance(term, str):
        sign, *inner = term
        if sign == ("int" if up else "cl"):
            made.add(inner[0])
        if sign == ("&" if up else "|"):
            made.update(inner)
        for i, x in enumerate(inner):
            for y in _larger(x, given, up != (sign == "~")):
                made.add((sign, *inner[:i], y, *inner[i + 1 :]))
    return frozenset(made - {term})


def _widens(term: Term, other: Term, *, up: bool = True) -> bool:
    """Whether X = ~~X, or X <= X | Y (X & Y <= X where not `up`) with any Y, leads from one set to the other."""
    if other == ("~", ("~", term)):
        return True
    if not isinstance(other, str) and other[0] == ("|" if up else "&") and term in other[1:]:
        return True
    if isinstance(term, str) or isinstance(other, str) or term[0] != other[0]:
        return False
    places = [i for i in range(1, len(term)) if term[i] != other[i]]
    flips = term[0] == "~"
    return len(places) == 1 and _widens(term[places[0]], other[places[0]], up=up != flips)


def is_step(term: Term, other: Term, given: Sequence[Inclusion] = ()) -> bool:
    """Whether one rule shows that a set lies in another."""
    return other in larger(term, given) or _widens(term, other)


def find_chain(statement: SetStatement, depth: int, slack: int = 1) -> list[Term] | None:
    """The shortest chain of at most `depth` steps through sets of at most `slack` operators more than the sides
    have, without the left side; None where there is none. [] where both sides are the same.
    """
    first, last = statement.conclusion
    most = max(size(first), size(last)) + slack
    before: dict[Term, Term | None] = {first: None}
    layer = [first]
    for _ in range(depth + 1):
        if last in before:
            chain, term = list[Term](), last
            while before[term] is not None:
                chain.append(term)
                term = before[term]
            return chain[::-1]
        following = list[Term]()
        for term in layer:
            made = {*larger(term, statement.hypotheses), *([last] if _widens(term, last) else [])}
            for x in sorted(made, key=set_text):
                if x not in before and size(x) <= most:
                    before[x] = term
                    following.append(x)
        layer = following
    return None


def is_instance(statement: SetStatement, known: SetStatement) -> bool:
    """Whether a known statement says it with sets in the place of its variables: its conclusion becomes this one, and
    each of its hypotheses becomes one of these or relates a set to itself. It is what one lemma of a library closes.
    """
    (left, right), (a, b) = statement.conclusion, known.conclusion
    names = match_term(a, left, {})
    names = None if names is None else match_term(b, right, names)
    return names is not None and _assumed(known.hypotheses, statement.hypotheses, names)


def _assumed(
    wanted: Sequence[Inclusion], given: Sequence[Inclusion], names: dict[str, Term]
) -> bool:
    """Whether sets for the variables that have none yet make all hypotheses that are wanted given ones."""
    if not wanted:
        return True
    (a, b), *others = wanted
    sets = (*names.values(), *(side for pair in given for side in pair))
    for left, right in dict.fromkeys([*given, *((x, x) for x in sets)]):
        first = match_term(a, left, names)
        both = None if first is None else match_term(b, right, first)
        if both is not None and _assumed(others, given, both):
            return True
    return False


# ---- the kernel


@stage
class ClosureAlgebra:
    """The proof kernel of this theory: a tactic is the next set of the chain."""

    @property
    def name(self) -> str:
        return "closure"

    @property
    def rules(self) -> str:
        return (
            "Prove it by a chain of sets, a line each, from the left side (without it) up to the right side; each lies "
            "in the next by one rule."
        )

    @property
    def subgoal_rules(self) -> str:
        return (
            "A statement is an inclusion such as cl int A <= cl A, written with capital letters, cl (closure), int "
            "(interior), ~ (complement), &, | and brackets; hypotheses stand before =>, parted by commas: "
            "A <= cl int A => A <= cl int cl A."
        )

    def start(self, theorem: str) -> ProofState:
        return self._state(theorem, read_sets(theorem.strip()), ())

    def _state(self, theorem: str, at: SetStatement, script: tuple[str, ...]) -> ProofState:
        left, right = at.conclusion
        text = statement_text(at)
        goals = () if left == right else (text,)
        return ProofState(
            theorem=theorem, goals=goals, remains=text if goals else "", script=script
        )

    def step(self, state: ProofState, tactics: Sequence[str]) -> list[ProofState | Rejected]:
        return [self._one(state, tactic) for tactic in tactics]

    def _one(self, state: ProofState, tactic: str) -> ProofState | Rejected:
        if state.whole:
            return Rejected(reason="nothing is left to prove")
        try:
            following = read_set(tactic.strip())
        except UserError as error:
            return Rejected(reason=str(error))
        at = read_sets(state.goals[0])
        left, right = at.conclusion
        if not is_step(left, following, at.hypotheses):
            return Rejected(
                reason=f"no rule shows that {set_text(left)} lies in {set_text(following)}"
            )
        moved = replace(at, conclusion=(following, right))
        return self._state(state.theorem, moved, (*state.script, tactic))

    def tactics(self, state: ProofState) -> tuple[str, ...]:
        if state.whole:
            return ()
        at = read_sets(state.goals[0])
        most = max(map(size, at.conclusion)) + 1
        left, right = at.conclusion
        made = {x for x in larger(left, at.hypotheses) if size(x) <= most}
        made |= {right} if _widens(left, right) else set()
        return tuple(sorted(map(set_text, made)))

    def is_instance(self, statement: str, known: str) -> bool:
        """Whether a known statement, with sets for its variables, is this one: see the function."""
        return is_instance(read_sets(statement), read_sets(known))

    def assume(self, statement: str) -> str:
        raise UserError("the theory of closure has no subgoals: a proof is one chain")

    def normal(self, statement: str) -> str | None:
        try:
            return statement_text(canonical(read_sets(statement.strip())))
        except UserError:
            return None

    def accepts(self, theorem: str, script: Sequence[str]) -> bool:
        state = self.start(theorem)
        for line in script:
            (after,) = self.step(state, [line])
            if isinstance(after, Rejected):
                return False
            state = after
        return state.whole
