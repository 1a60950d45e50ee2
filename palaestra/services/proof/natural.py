"""The built-in kernel: classical natural deduction over propositional formulas, backwards from the goal.

A goal is a list of hypotheses h1, h2, ... and a formula to prove. Its tactics, with the rule that each
one is, read from below:

    intro         G |- a -> b       from  G, a |- b
    split         G |- a & b        from  G |- a   and  G |- b
    left, right   G |- a | b        from  G |- a,  or  G |- b
    cases hN      G |- c            from  G, a, b |- c              where hN is a & b
                                    from  G, a |- c  and  G, b |- c where hN is a | b
                                    from  G |- a     and  G, b |- c where hN is a -> b
    apply hN      G |- b            from  G |- a                    where hN is a -> b
    mp hN hM      G |- c            from  G, b |- c                 where hN is a -> b and hM is a
    contra        G |- a            from  G, ~a |- false
    exfalso       G |- a            from  G |- false
    assumption    G |- a            where a or false is in G
    exact hN      G |- a            where hN is a or false
    have F        G |- c            from  G |- F   and  G, F |- c

Hypotheses keep their numbers, and one that is there already is not added again. Every rule is sound and
together they are complete for classical propositional logic; there are no quantifiers. `find_proof`
decides a formula by an analytic tableau, written in these tactics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from palaestra.errors import UserError
from palaestra.services.proof.base import ProofState, Rejected, match_term
from palaestra.services.proof.formulas import (
    FALSE,
    Formula,
    formula_text,
    negation,
    parse_formula,
    read_formula,
)
from palaestra.types import stage

Goal: TypeAlias = tuple[tuple[Formula, ...], Formula]  # hypotheses, and what follows from them
PLAIN = ("intro", "split", "left", "right", "contra", "exfalso", "assumption")
MOST_GOALS = 64


class InapplicableTactic(Exception):
    """A tactic that a goal does not allow."""


def goal_text(goal: Goal) -> str:
    """A hypothesis a line, then the goal behind |-."""
    hypotheses, target = goal
    lines = [f"h{i}: {formula_text(f)}" for i, f in enumerate(hypotheses, 1)]
    return "\n".join([*lines, f"|- {formula_text(target)}"])


@lru_cache(maxsize=4096)
def read_goal(text: str) -> Goal:
    """The goal of a text that `goal_text` wrote."""
    *lines, last = text.split("\n")
    hypotheses = tuple(parse_formula(line.partition(": ")[2]) for line in lines)
    return hypotheses, parse_formula(last.removeprefix("|- "))


def apply_tactic(goal: Goal, tactic: str) -> tuple[Goal, ...]:
    """The goals from which this one follows. Raises InapplicableTactic."""
    hypotheses, target = goal
    word, _, rest = tactic.strip().partition(" ")
    rest = rest.strip()
    if word == "have":
        try:
            lemma = read_formula(rest)
        except UserError:
            raise InapplicableTactic(f"have needs a formula, not {rest[:40]!r}") from None
        return (hypotheses, lemma), (_with(hypotheses, lemma), target)
    if word in PLAIN:
        if rest:
            raise InapplicableTactic(f"{word} stands alone")
        return _on_target(word, hypotheses, target)
    if word in ("exact", "apply", "cases", "mp"):
        chosen = [_hypothesis(hypotheses, name) for name in rest.split()]
        if len(chosen) != (2 if word == "mp" else 1):
            raise InapplicableTactic(f"{word} needs {'two hypotheses' if word == 'mp' else 'one'}")
        return _on_hypotheses(word, chosen, hypotheses, target)
    raise InapplicableTactic(f"{word[:40]!r} is no tactic")


def _with(hypotheses: tuple[Formula, ...], *more: Formula) -> tuple[Formula, ...]:
    for f in more:
        hypotheses = hypotheses if f in hypotheses else (*hypotheses, f)
    return hypotheses


def _hypothesis(hypotheses: tuple[Formula, ...], name: str) -> Formula:
    number = name[1:]
    if not name.startswith("h") or not number.isdecimal() or len(number) > 3:
        raise InapplicableTactic(f"{name[:40]!r} is no name of a hypothesis")
    if not 1 <= int(number) <= len(hypotheses):
        raise InapplicableTactic(f"there is no hypothesis {name}")
    return hypotheses[int(number) - 1]


def _parts(f: Formula, *signs: str) -> tuple[Formula, Formula]:
    if isinstance(f, str) or f[0] not in signs:
        raise InapplicableTactic(f"{formula_text(f)} has no {' or '.join(signs)} outside")
    return f[1], f[2]


def _on_target(word: str, hypotheses: tuple[Formula, ...], target: Formula) -> tuple[Goal, ...]:
    match word:
        case "intro":
            a, b = _parts(target, "->")
            return ((_with(hypotheses, a), b),)
        case "split":
            a, b = _parts(target, "&")
            return (hypotheses, a), (hypotheses, b)
        case "left" | "right":
            sides = _parts(target, "|")
            return ((hypotheses, sides[word == "right"]),)
        case "contra" | "exfalso":
            if target == FALSE:
                raise InapplicableTactic("the goal is false already")
            more = (negation(target),) if word == "contra" else ()
            return ((_with(hypotheses, *more), FALSE),)
        case _:
            if target not in hypotheses and FALSE not in hypotheses:
                raise InapplicableTactic("no hypothesis is the goal")
            return ()


def _on_hypotheses(
    word: str, chosen: Sequence[Formula], hypotheses: tuple[Formula, ...], target: Formula
) -> tuple[Goal, ...]:
    f = chosen[0]
    if word == "exact":
        if f not in (target, FALSE):
            raise InapplicableTactic(f"{formula_text(f)} is not the goal")
        return ()
    if word == "apply":
        a, b = _parts(f, "->")
        if b != target:
            raise InapplicableTactic(f"{formula_text(f)} does not end in the goal")
        return ((hypotheses, a),)
    if word == "mp":
        a, b = _parts(f, "->")
        if chosen[1] != a:
            raise InapplicableTactic(
                f"{formula_text(chosen[1])} is not what {formula_text(f)} needs"
            )
        return _progress(hypotheses, (_with(hypotheses, b), target))
    a, b = _parts(f, "&", "|", "->")
    if f[0] == "&":
        return _progress(hypotheses, (_with(hypotheses, a, b), target))
    first = (hypotheses, a) if f[0] == "->" else (_with(hypotheses, a), target)
    return (*_progress(hypotheses, first, f[0] == "->"), (_with(hypotheses, b), target))


def _progress(
    hypotheses: tuple[Formula, ...], goal: Goal, changed: bool = False
) -> tuple[Goal, ...]:
    """The goal, unless it has no hypothesis more."""
    if not changed and goal[0] == hypotheses:
        raise InapplicableTactic("its parts are hypotheses already")
    return (goal,)


@stage
class NaturalDeduction:
    """The built-in kernel, see the head of this file. A state shows the first goal alone."""

    @property
    def name(self) -> str:
        return "own"

    @property
    def rules(self) -> str:
        return (
            "Answer with one tactic: intro, split, left, right, contra, exfalso, assumption, exact hN, "
            "apply hN, cases hN, mp hN hM, or have FORMULA."
        )

    @property
    def subgoal_rules(self) -> str:
        return "Formulas are written with names, false, ~, &, |, -> and brackets."

    def start(self, theorem: str) -> ProofState:
        return self._state(theorem, [((), read_formula(theorem.strip()))], ())

    def step(self, state: ProofState, tactics: Sequence[str]) -> list[ProofState | Rejected]:
        return [self._one(state, tactic) for tactic in tactics]

    def _one(self, state: ProofState, tactic: str) -> ProofState | Rejected:
        if not state.goals:
            return Rejected(reason="nothing is left to prove")
        goals = [read_goal(text) for text in state.goals]
        try:
            made = apply_tactic(goals[0], tactic)
        except InapplicableTactic as e:
            return Rejected(reason=str(e))
        if len(made) + len(goals) > MOST_GOALS or goals[0] in made:
            return Rejected(reason="it leaves the same to prove, or too many goals")
        return self._state(state.theorem, [*made, *goals[1:]], (*state.script, tactic.strip()))

    def _state(self, theorem: str, goals: Sequence[Goal], script: tuple[str, ...]) -> ProofState:
        texts = tuple(map(goal_text, goals))
        return ProofState(theorem=theorem, goals=texts, remains="\n\n".join(texts), script=script)

    def tactics(self, state: ProofState) -> tuple[str, ...]:
        if not state.goals:
            return ()
        numbers = range(1, len(read_goal(state.goals[0])[0]) + 1)
        one = [f"{word} h{i}" for word in ("apply", "cases") for i in numbers]
        two = [f"mp h{i} h{j}" for i in numbers for j in numbers]
        tried = [*PLAIN, *one, *two]
        made = self.step(state, tried)
        return tuple(t for t, s in zip(tried, made, strict=True) if isinstance(s, ProofState))

    def assume(self, statement: str) -> str:
        return f"have {statement}"

    def normal(self, statement: str) -> str | None:
        try:
            return formula_text(read_formula(statement.strip()))
        except UserError:
            return None

    def is_instance(self, statement: str, known: str) -> bool:
        """Whether a known formula, with formulas for its names, is this one."""
        return match_term(read_formula(known), read_formula(statement), {}, (FALSE,)) is not None

    def accepts(self, theorem: str, script: Sequence[str]) -> bool:
        goals: list[Goal] = [((), read_formula(theorem.strip()))]
        for tactic in script:
            if not goals:
                return False
            try:
                goals[:1] = apply_tactic(goals[0], tactic)
            except InapplicableTactic:
                return False
        return not goals


def find_proof(theorem: str, kernel: NaturalDeduction = NaturalDeduction()) -> list[str] | None:
    """A proof of a formula; None where it is no theorem."""
    return _prove(kernel.start(theorem), frozenset(), kernel)


def _prove(
    state: ProofState, used: frozenset[Formula], kernel: NaturalDeduction
) -> list[str] | None:
    """Closes the one goal of a state. `used`: hypotheses that this branch has taken apart."""
    hypotheses, target = read_goal(state.goals[0])
    tactic, more = _next_tactic(hypotheses, target, used)
    if not tactic:
        return None
    script = [tactic]
    (after,) = kernel.step(state, [tactic])
    if isinstance(after, Rejected):  # taken apart before: its parts are known
        return _prove(state, used | more, kernel)
    for goal in after.goals:
        rest = _prove(replace(state, goals=(goal,), remains=goal), used | more, kernel)
        if rest is None:
            return None
        script += rest
    return script


def _next_tactic(
    hypotheses: tuple[Formula, ...], target: Formula, used: frozenset[Formula]
) -> tuple[str, frozenset[Formula]]:
    """The next rule of the tableau and what it takes apart; "" where the branch stays open."""
    none, names = frozenset[Formula](), {f: i for i, f in enumerate(hypotheses, 1)}
    if target in names or FALSE in names:
        return "assumption", none
    if not isinstance(target, str) and target[0] == "|" and names.keys() & {*target[1:]}:
        return ("left" if target[1] in names else "right"), none
    implications = [(f, i) for f, i in names.items() if f[0] == "->"]
    for f, i in implications:  # a hypothesis and its negation, or what it leads to
        if f[1] in names and f[2] not in names:
            return f"mp h{i} h{names[f[1]]}", none
    if not isinstance(target, str) and target[0] in ("->", "&"):
        return ("intro" if target[0] == "->" else "split"), none
    for wanted in ("&", "|"):
        for f, i in names.items():
            if f not in used and f[0] == wanted:
                return f"cases h{i}", frozenset({f})
    if target != FALSE:
        return "contra", none
    for f, i in implications:
        if f[2] == FALSE and f[1][0] == "|":  # neither side of a disjunction that does not hold
            if names.keys() & {*f[1][1:]}:
                return f"apply h{i}", none
            for side in map(negation, f[1][1:]):
                if side not in names:
                    return f"have {formula_text(side)}", none
        elif f not in used and not (isinstance(f[1], str) and f[2] == FALSE):
            return f"cases h{i}", frozenset({f})
    return "", none
