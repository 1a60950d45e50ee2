"""The child process of `proofs`: z3 reads a statement, checks a witness, and looks for one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from palaestra.verifiers.smt.statements import ANSWER
from palaestra.verifiers.worker import serve

Found = dict[str, Any]
OTHER = {"": "!=", "minimize": "<", "maximize": ">"}  # what must not be possible beside a witness


def import_libraries() -> Found:
    import z3  # pyright: ignore[reportMissingTypeStubs]

    return {"result": z3.get_version_string()}


def prove(request: Found) -> Found:
    """{"status", "witness", "claimed"} of {"text", "bound", "claim", "milliseconds"}; see
    `proofs.Proof`.
    """
    import z3  # pyright: ignore[reportMissingTypeStubs]

    solver: Any = z3.Solver()
    try:
        solver.from_string(request["text"])
        parsed: Any = z3.parse_smt2_string(f"{request['text']}\n(assert (= {ANSWER} {ANSWER}))")
        answer: Any = parsed[len(parsed) - 1].arg(0)
    except z3.Z3Exception as error:
        return {"result": {"status": "unreadable", "why": " ".join(str(error).split())[:200]}}
    if not z3.is_arith(answer):
        return {"result": {"status": "unreadable", "why": f"{ANSWER} is no number"}}
    solver.set("timeout", request["milliseconds"])
    try:
        return {"result": _proof(z3, solver, answer, request)}
    except (z3.Z3Exception, ValueError) as error:  # a number of more digits than Python reads
        return {"result": {"status": "unknown", "why": str(error)[:200]}}


def _proof(z3: Any, solver: Any, answer: Any, request: Found) -> Found:
    sort = z3.RatVal if answer.is_real() else lambda a, b: z3.IntVal(a)
    number = lambda f: sort(f.numerator, f.denominator)
    claim = Fraction(request["claim"]) if request["claim"] else None
    refuted = False
    if claim is not None and (answer.is_real() or claim.denominator == 1):
        outcome = _check(solver, answer == number(claim))
        if outcome == z3.sat:
            status = _only(z3, solver, answer, number(claim), request["bound"])
            if status == "proved" or not request["search"]:
                return {"status": status, "witness": str(claim), "claimed": True}
        refuted = outcome == z3.unsat
    if not request["search"]:
        return {"status": "refuted" if refuted else "unknown"}
    outcome, model = _find(z3, solver, answer, request)
    if outcome != z3.sat:
        return {"status": "empty" if outcome == z3.unsat else "unknown"}
    value = model.eval(answer, model_completion=True)
    if not (z3.is_int_value(value) or z3.is_rational_value(value)):
        return {"status": "unknown", "why": "the number is no fraction"}
    witness = Fraction(value.as_string())
    status = _only(z3, solver, answer, number(witness), request["bound"])
    return {"status": status, "witness": str(witness), "claimed": False}


def _check(solver: Any, *more: Any) -> Any:
    solver.push()
    solver.add(*more)
    status = solver.check()
    solver.pop()
    return status


def _find(z3: Any, solver: Any, answer: Any, request: Found) -> tuple[Any, Any]:
    """Whether there is such a number, and a model in which it is one."""
    finder = solver
    if request["bound"]:
        finder = z3.Optimize()
        finder.add(solver.assertions())
        finder.set("timeout", request["milliseconds"])
        (finder.minimize if request["bound"] == "minimize" else finder.maximize)(answer)
    status = finder.check()
    return status, finder.model() if status == z3.sat else None


def _only(z3: Any, solver: Any, answer: Any, value: Any, bound: str) -> str:
    """Whether no other number will do: "proved", "several", "unknown"."""
    other = {"!=": answer != value, "<": answer < value, ">": answer > value}[OTHER[bound]]
    status = _check(solver, other)
    return "proved" if status == z3.unsat else "several" if status == z3.sat else "unknown"


if __name__ == "__main__":
    serve({"prove": prove}, import_libraries)
