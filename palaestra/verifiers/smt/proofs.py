"""Proofs of existence statements by z3, in a child process that is killed at its time limit."""

from __future__ import annotations

from fractions import Fraction
from importlib.util import find_spec
from typing import Literal

from palaestra.errors import Fault, UserError
from palaestra.services.lines import Died, Expired
from palaestra.types import value_class
from palaestra.verifiers.smt.statements import ExistenceStatement
from palaestra.verifiers.worker import ask

CHILD = "palaestra.verifiers.smt.worker"
CHECKS = 4  # questions that z3 is asked for one proof at most
SLACK = 1.0  # seconds that a child may be late

ProofStatus = Literal["proved", "several", "refuted", "empty", "unknown", "unreadable", "guessed"]


@value_class
class ExistenceProof:
    """What z3 says of a statement.

    Args:
        status: "proved": `witness` holds and no other number does; "several": others do too, so the
            statement does not determine the answer; "refuted": the claim does not hold, and nothing
            else was looked for; "empty": there is no such number; "unknown": z3 did not decide within
            its time, or the number is no fraction; "unreadable": it is no statement; "guessed": it was
            proved, and the statement has the number itself, see `statements.is_guess`.
        witness: a number that holds; None = there is none.
        claimed: the witness is the claim.
    """

    status: ProofStatus
    witness: Fraction | None = None
    claimed: bool = False
    why: str = ""

    @property
    def verified(self) -> bool:
        """Whether the witness is the one answer to the statement."""
        return self.status == "proved"


def need_z3() -> None:
    """Raises UserError where z3 is not installed."""
    if find_spec("z3") is None:
        raise UserError(
            "nl-fl-hybrid proves with z3, which is missing: pip install 'palaestra[z3]'"
        )


def prove_existence(
    statement: ExistenceStatement,
    claim: Fraction | None = None,
    *,
    search: bool = True,
    seconds: float = 2.0,
) -> ExistenceProof:
    """Checks a claimed witness, and looks for another one where it does not hold. Blocks.

    Args:
        claim: a number that is said to hold; None = there is none.
        search: whether z3 looks for a witness of its own.
        seconds: of each of up to four questions to z3.

    Raises:
        UserError: z3 is not installed; Fault: its process does not start.
    """
    need_z3()
    request = {
        "task": "prove",
        "text": statement.text,
        "bound": statement.bound,
        "claim": "" if claim is None else str(claim),
        "search": search,
        "milliseconds": int(1000 * seconds),
    }
    try:
        answer = ask(CHILD, request, CHECKS * seconds + SLACK)
    except Expired:
        return ExistenceProof(status="unknown", why="z3 was stopped at its time limit")
    except Died:  # two fresh children died of it
        return ExistenceProof(status="unknown", why="z3 ran out of memory, or broke off")
    if "refused" in answer:
        raise Fault("verifier", f"z3: {answer['refused']}")
    result = answer["result"]
    witness = Fraction(result["witness"]) if result.get("witness") else None
    return ExistenceProof(
        status=result["status"],
        witness=witness,
        claimed=result.get("claimed", False),
        why=result.get("why", ""),
    )
