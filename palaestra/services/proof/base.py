"""What every proof kernel does, and what a proof is on its way.

A proof is a list of tactics, each a line of text. A tactic acts on the first open goal and leaves others
in its place; a proof without open goals is whole. A kernel is trusted, whoever wrote the tactics is not:
`accepts` runs a whole proof again from the statement alone, and nothing else makes a theorem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from palaestra.types import value_class


@value_class
class ProofState:
    """A proof on its way. Two are equal where the same remains to be proven, whatever led there.

    Args:
        theorem: its statement, as the kernel reads it.
        goals: open goals as text, the first with its hypotheses; () = the proof is whole.
        remains: all that is left to prove, in full; what makes two states equal.
        script: the tactics so far.
    """

    theorem: str
    goals: tuple[str, ...] = field(compare=False)
    remains: str
    script: tuple[str, ...] = field(default=(), compare=False)

    @property
    def whole(self) -> bool:
        return not self.goals


@value_class
class Rejected:
    """A tactic that the kernel did not take, and why."""

    reason: str


class ProofKernel(Protocol):
    """Decides proofs. Calls block; from coroutines they are made in threads."""

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> str:
        """How tactics are written, for a model that is asked for one."""
        ...

    @property
    def subgoal_rules(self) -> str:
        """How statements are written, for a model that is asked for subgoals."""
        ...

    def start(self, theorem: str) -> ProofState:
        """The goal of a theorem. Raises UserError where it is no statement, Fault where the kernel
        cannot run.
        """
        ...

    def step(self, state: ProofState, tactics: Sequence[str]) -> list[ProofState | Rejected]:
        """What each tactic makes of a state, in order."""
        ...

    def tactics(self, state: ProofState) -> tuple[str, ...]:
        """All tactics that the first goal allows, but for those that name a formula; () = endless, or
        nobody knows.
        """
        ...

    def assume(self, statement: str) -> str:
        """The tactic that makes a statement the first goal, and a hypothesis of the one after it."""
        ...

    def normal(self, statement: str) -> str | None:
        """One spelling for all of a statement; None where it is none."""
        ...

    def accepts(self, theorem: str, script: Sequence[str]) -> bool:
        """Whether the tactics, run from the statement, leave nothing to prove."""
        ...


def match_term(
    pattern: Any, term: Any, names: Mapping[str, Any], constants: Sequence[str] = ()
) -> dict[str, Any] | None:
    """The terms for the variables of a pattern with which it is the term, those of `names` among them; None where
    it is not. A term is a name, or a tuple of a sign and terms; `constants` are names that stand for themselves.
    """
    if isinstance(pattern, str):
        if pattern in constants:
            return dict(names) if term == pattern else None
        return {**names, pattern: term} if names.get(pattern, term) == term else None
    if isinstance(term, str) or pattern[0] != term[0] or len(pattern) != len(term):
        return None
    matched: dict[str, Any] | None = dict(names)
    for x, y in zip(pattern[1:], term[1:], strict=True):
        matched = match_term(x, y, matched, constants)
        if matched is None:
            return None
    return matched
