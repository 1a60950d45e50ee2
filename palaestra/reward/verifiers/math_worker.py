"""The child process of the mathematics verifiers: LaTeX into sympy, and whether two expressions are equal."""

from __future__ import annotations

import re
import warnings
from typing import Any

from palaestra.reward.verifiers.worker import serve

POINTS = (0.37, 0.81, 1.23, 1.71, 2.39, -0.53, -1.17, 3.11)
NEEDED = 5  # points at which both sides must be finite
TOLERANCE = 1e-4  # relative
PLAIN = r"(?<![\\A-Za-z])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|sec|csc|cot|ln|log|exp|sqrt)\b"


def ready() -> dict[str, Any]:
    import math_verify  # pyright: ignore[reportMissingImports, reportUnusedImport]  # the first import takes a second

    warnings.simplefilter("ignore")
    return {"result": math_verify.__name__}


def parsed(text: str) -> list[Any]:
    """Expressions that a LaTeX text stands for; nothing = it does not parse."""
    from math_verify import LatexExtractionConfig, parse

    config = LatexExtractionConfig(try_extract_without_anchor=False)
    found = parse(f"\\boxed{{{text}}}", [config], fallback_mode="no_fallback", parsing_timeout=None)  # pyright: ignore[reportArgumentType]
    return [x for x in found if not isinstance(x, str)]


def equal(request: dict[str, Any]) -> dict[str, Any]:
    """Whether `said` equals `gold`. A gold that does not parse is refused by name, a said one is not equal."""
    from math_verify import verify

    gold = parsed(request["gold"])
    if not gold:
        return {"refused": "gold"}
    said = parsed(request["said"])
    if not said:
        return {"result": None}
    return {"result": bool(verify(gold, said, float_rounding=9, strict=True, timeout_seconds=None))}  # pyright: ignore[reportArgumentType]


def antiderivative(request: dict[str, Any]) -> dict[str, Any]:
    """Whether d said/dx is the integrand, at points where both are finite."""
    import sympy

    x = sympy.Symbol("x")
    sides = [expression(request[k], sympy) for k in ("gold", "said")]
    if sides[0] is None:
        return {"refused": "gold"}
    if sides[1] is None or not {str(s) for s in sides[1].free_symbols} <= {"x", "c", "C", "k", "K"}:
        return {"result": None}
    sides = [side.subs({s: sympy.Symbol(str(s)) for s in side.free_symbols}) for side in sides]  # without assumptions
    slope, known, compared = sympy.diff(sides[1], x), 0, 0
    for point in POINTS:
        a, b = (complex(side.subs(x, point).evalf()) for side in (sides[0], slope))
        known += abs(a) < 1e12  # False for NaN
        if abs(a) < 1e12 and abs(b) < 1e12:
            compared += 1
            if abs(a - b) > TOLERANCE * max(abs(a), 1e-6):
                return {"result": False}
    return {"result": compared >= NEEDED} if known >= NEEDED else {"refused": "gold"}


def expression(text: str, sympy: Any) -> Any:
    """A formula written as LaTeX, or plainly (`sin(x**2)*2`)."""
    text = re.sub(PLAIN, r"\\\1", text.replace("**", "^")).replace("*", "\\cdot ")
    text = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", text)
    found = [f for f in parsed(text) if isinstance(f, sympy.Expr)]
    return found[0] if found else None


if __name__ == "__main__":
    serve({"equal": equal, "antiderivative": antiderivative}, ready)
