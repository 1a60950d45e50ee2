"""Theorems as a user's file has them, with proofs in the built-in kernel."""

import palaestra as pl

SHAPES = (
    "p & q -> q & p",
    "p -> p | q",
    "(p -> q) -> (q -> r) -> p -> r",
    "p | q -> q | p",
    "~~p -> p",
    "p & (p -> q) -> q",
    "(p -> q) -> ~q -> ~p",
    "p -> q -> p & q",
    "p & q -> p",
    "p & q -> p | q",
    "p -> ~~p",
    "false -> p",
    "(p -> q -> r) -> p & q -> r",
    "(p & q -> r) -> p -> q -> r",
    "~(p | q) -> ~p & ~q",
    "~p | ~q -> ~(p & q)",
    "~p | q -> p -> q",
    "p | ~p",
    "((p -> q) -> p) -> p",
    "~p & (p | q) -> q",
    "(p -> q) & (p -> r) -> p -> q & r",
    "(p -> r) & (q -> r) -> p | q -> r",
    "p & ~p -> q",
    "p -> (p -> q) -> q",
)
NAMES = ("pqr", "abc", "xyz", "stu", "klm", "ghi", "def", "mno", "vwx", "bcd")


def proof_of(theorem: str) -> str:
    """A tactic a line."""
    return "\n".join(pl.services.find_proof(theorem) or ())


THEOREMS = tuple(s.translate(str.maketrans("pqr", names)) for names in NAMES for s in SHAPES)
PROOFS = tuple(map(proof_of, THEOREMS))
