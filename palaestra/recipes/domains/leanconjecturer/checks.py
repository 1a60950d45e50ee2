"""What a proposed statement goes through before anybody tries to prove it."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import palaestra as pl

KernelName: TypeAlias = Literal["closure", "logic", "coq", "lean"]
# in the order in which they are found out: what cannot be read, what is known, what is easy, what is false
STATUSES = (
    "invalid",
    "duplicate",
    "held out",
    "vacuous",
    "false",
    "already exists",
    "trivial",
    "error",
    "kept",
)
DROPPED = ("vacuous", "false", "already exists", "trivial")  # by filters
STATES = 4096  # of a search for a short proof
HEAD = re.compile(
    r"^\s*(?:@\[[^\]]*\]\s*)*(?:(?:private|protected|noncomputable|local|global)\s+)*"
    r"(?:theorem|lemma|example|fact|corollary|proposition|conjecture)\b\s*[\w'.]*\s*:?\s*(?!=)",
    re.IGNORECASE,
)
ITEM = re.compile(r"^\s*(?:[-*\u2022]|\(?\d+[.)])\s+")
PROOF = re.compile(r"\s*(?::=.*|\bby\b\s+(?:sorry|admit).*|\bProof\b.*)$", re.DOTALL)
FENCE = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
# one tactic each: what a lemma of the library closes, and what automation does
LIBRARY = {"coq": ("trivial.", "easy.", "reflexivity."), "lean": ("exact?",)}
AUTOMATION = {"coq": ("auto.", "firstorder.", "intuition.", "tauto."), "lean": ("aesop",)}


open_kernel = partial(
    pl.services.open_kernel,
    {"closure": pl.services.ClosureAlgebra, "logic": pl.services.NaturalDeduction},
)


def proposed_statements(text: str) -> list[str]:
    """The statements of a reply, one a line, without list marks, attributes, modifiers, names and proofs: what
    a model may write around a statement cannot change what is asked.
    """
    lines = FENCE.sub("", pl.verifiers.strip_thinking(text)).replace("`", "").splitlines()
    bare = (PROOF.sub("", HEAD.sub("", ITEM.sub("", line))).strip() for line in lines)
    return [x for x in bare if x]


def closes(kernel: Any, start: Any, depth: int, tactics: Sequence[str] = ()) -> bool:
    """Whether a proof of at most `depth` tactics exists, of those given or of all that the kernel knows, in
    a search of at most 4,096 states.
    """
    layer, known = [start], {start.remains}
    for _ in range(depth):
        following = list[Any]()
        for state in layer:
            for after in kernel.step(state, tactics or kernel.tactics(state)):
                if isinstance(after, pl.services.Rejected):
                    continue
                if after.whole:
                    return True
                if after.remains not in known and len(known) < STATES:
                    known.add(after.remains)
                    following.append(after)
        layer = following
    return False


@pl.stage
class ConjectureChecks:
    """Says what becomes of a proposed statement; see `STATUSES`.

    Args:
        kernel: proves.
        novelty: a proof of so many tactics, or a known statement of which it is an instance, means that the library
            has it already; 0 = not looked at.
        triviality: a proof of so many tactics is what automation finds; 0 = not looked at.
        points: spaces of at most so many points refute statements on closures, of three points at most where
            these have four variables, and of two where they have seven; 0 = none do. Formulas are decided by truth
            tables.
    """

    kernel: Any
    novelty: int = 1
    triviality: int = 2
    points: int = 3

    def __post_init__(self) -> None:
        pl.check_bounds("novelty", self.novelty, least=0)
        pl.check_bounds("triviality", self.triviality, least=0)
        pl.check_bounds("points", self.points, least=0, most=4)

    @property
    def record(self) -> dict[str, Any]:
        """What the verdicts depend on."""
        name = self.kernel.name
        return {
            "kernel": name,
            "novelty": list(LIBRARY.get(name, ())) or self.novelty,
            "triviality": list(AUTOMATION.get(name, ())) or self.triviality,
            "points": self.points if name == "closure" else 0,
            "seconds": getattr(self.kernel, "seconds", 0.0),
            "states": STATES,
        }

    def normal(self, statement: str) -> str | None:
        """One spelling of a statement; None where the kernel does not take it."""
        try:
            text = self.kernel.normal(statement)
            if text is not None:
                self.kernel.start(text)
        except pl.UserError:
            return None
        return text

    def verdict(self, statement: str, library: Sequence[str] = ()) -> str:
        """The status of a statement in its normal spelling, which is not known already. One that a statement of the
        `library` says of all sets exists already, unless `novelty` is 0. A kernel that cannot run says nothing of a
        statement: "error".
        """
        try:
            return self._refuted(statement) or self._proven(statement, library) or "kept"
        except pl.Fault:
            return "error"

    def _refuted(self, statement: str) -> str:
        if self.kernel.name == "closure" and self.points:
            return pl.services.refute_sets(statement, self.points)
        if self.kernel.name == "own" and not pl.services.is_tautology(
            pl.services.read_formula(statement)
        ):
            return "false"
        return ""

    def _proven(self, statement: str, library: Sequence[str]) -> str:
        start, name = self.kernel.start(statement), self.kernel.name
        if start.whole or (self.novelty and self._in_library(statement, library)):
            return "already exists"
        if self.novelty and closes(
            self.kernel, start, 1 if name in LIBRARY else self.novelty, LIBRARY.get(name, ())
        ):
            return "already exists"
        depth = 1 if name in AUTOMATION else self.triviality
        if self.triviality and closes(self.kernel, start, depth, AUTOMATION.get(name, ())):
            return "trivial"
        return ""

    def _in_library(self, statement: str, library: Sequence[str]) -> bool:
        """Whether one known statement closes it, with terms in the place of its variables."""
        if self.kernel.name in LIBRARY:
            return False
        return any(self.kernel.is_instance(statement, known) for known in library)


# ---- proofs


def script_of(text: str) -> list[str]:
    """The tactics of an answer, one a line, without thoughts, fences and list marks."""
    lines = FENCE.sub("", pl.verifiers.strip_thinking(text)).replace("`", "").splitlines()
    return [bare for line in lines if (bare := ITEM.sub("", line).strip())]


def theorem_of(task: pl.Task) -> str:
    """The theorem that a task asks to prove: its column `theorem`, else its prompt."""
    return str(task.meta.get("theorem") or pl.tasks.plain_question(task)).strip()


@pl.stage
class ProofVerdict:
    """1 if the kernel accepts the answer, a tactic a line, as a proof of the task's theorem, else 0. The statement is
    that of the data, whatever the answer calls its goal; a kernel that cannot run is a fault, not a 0.
    """

    kernel: Any

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        return await pl.rewards.judge_each(self.judge, group)

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        lean = self.kernel.name == "lean"
        script = pl.services.lean_script(text) if lean else script_of(text)
        right = bool(script) and bool(self.kernel.accepts(theorem_of(task), script))
        return pl.Reward(total=float(right), solved=right)
