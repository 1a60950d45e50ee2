"""The child process of the mathematics verifiers: LaTeX into sympy, and whether two expressions are
equal.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from palaestra.verifiers.maths.text import is_loose
from palaestra.verifiers.worker import serve

POINTS = (0.37, 0.81, 1.23, 1.71, 2.39, -0.53, -1.17, 3.11)
LEAST_POINTS = 5  # points at which both sides must be finite
TOLERANCE = 1e-4  # relative
PENDING = {"Integral", "Derivative", "Limit", "Sum", "Product", "Subs"}
PLAIN = r"(?<![\\A-Za-z])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|sec|csc|cot|ln|log|exp|sqrt)\b"


def import_libraries() -> dict[str, Any]:
    import math_verify  # pyright: ignore[reportMissingImports, reportUnusedImport]  # the first import takes a second

    warnings.simplefilter("ignore")
    return {"result": math_verify.__name__}


def normalise_formula(text: str) -> str:
    """The text that is parsed: what math-verify makes of it, units aside, which it would also cut
    from `\\frac{a}{b}c`.
    """
    from latex2sympy2_extended.math_normalization import (  # pyright: ignore[reportMissingImports]
        NormalizationConfig,
        normalize_latex,
    )

    config = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none"
    )
    return normalize_latex(text, config)


def parse_expression(text: str) -> Any:
    """The expression that a normal text stands for; None = it does not parse."""
    from math_verify.parser import parse_latex_cached

    try:
        return parse_latex_cached(text)
    except Exception:
        return None


def check_equality(request: dict[str, Any]) -> dict[str, Any]:
    """Whether `said` equals `gold` and is not what was `asked`. A gold that does not parse is
    refused by name, a said one is not equal.
    """
    from math_verify import verify

    texts = [normalise_formula(request[k]) for k in ("gold", "said")]
    if any(re.search(r"\\ln(?![a-zA-Z])", text) for text in texts):
        texts = [re.sub(r"\\log(?![a-zA-Z])(?!\s*_)", r"\\ln", text) for text in texts]
    gold, said = map(parse_expression, texts)
    if gold is None:
        return {"refused": "gold"}
    if said is None:
        return {"result": None}
    if is_loose(texts[1], texts[0]) or pending_operations(said) - pending_operations(gold):
        return {"result": False}
    found = verify([gold], [said], float_rounding=9, strict=True, timeout_seconds=None)  # pyright: ignore[reportArgumentType]
    return {
        "result": bool(found)
        and not any(
            repeats_piece(said, gold, normalise_formula(piece)) for piece in request["asked"]
        )
    }


def pending_operations(tree: Any) -> set[str]:
    """The operations of an expression that are left to be done."""
    import sympy

    return PENDING & {type(node).__name__ for node in sympy.preorder_traversal(tree)}


def repeats_piece(said: Any, gold: Any, piece: str) -> bool:
    """Whether an answer is an expression of the question and not the reference's, as parsed or
    after sympy's own rules.
    """
    asked = parse_expression(piece)
    return asked is not None and any(
        form(said) == form(asked) and form(said) != form(gold)
        for form in (lambda tree: tree, rebuild)
    )


def rebuild(tree: Any) -> Any:
    """(x + 1)(x + 1) as (x + 1)^2, 1 x as x: an unevaluated expression made anew."""
    try:
        return tree.func(*map(rebuild, tree.args)) if tree.args else tree
    except Exception:
        return tree


def antiderivative(request: dict[str, Any]) -> dict[str, Any]:
    """Whether d said/dx is the integrand, at points where both are finite."""
    import sympy

    x = sympy.Symbol("x")
    sides = [expression(request[k], sympy) for k in ("gold", "said")]
    if sides[0] is None:
        return {"refused": "gold"}
    if (
        sides[1] is None
        or pending_operations(sides[1])
        or not {str(s) for s in sides[1].free_symbols} <= {"x", "c", "C", "k", "K"}
    ):
        return {"result": None}
    # without assumptions
    sides = [side.subs({s: sympy.Symbol(str(s)) for s in side.free_symbols}) for side in sides]
    slope, known, compared = sympy.diff(sides[1], x), 0, 0
    for point in POINTS:
        a, b = (complex(side.subs(x, point).evalf()) for side in (sides[0], slope))
        known += abs(a) < 1e12  # False for NaN
        if abs(a) < 1e12 and abs(b) < 1e12:
            compared += 1
            if abs(a - b) > TOLERANCE * max(abs(a), 1e-6):
                return {"result": False}
    return {"result": compared >= LEAST_POINTS} if known >= LEAST_POINTS else {"refused": "gold"}


def expression(text: str, sympy: Any) -> Any:
    """A formula written as LaTeX, or plainly (`sin(x**2)*2`)."""
    text = re.sub(PLAIN, r"\\\1", text.replace("**", "^")).replace("*", "\\cdot ")
    text = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", text)
    text = normalise_formula(text)
    found = None if is_loose(text, "") else parse_expression(text)
    return found if isinstance(found, sympy.Expr) else None


if __name__ == "__main__":
    serve({"equal": check_equality, "antiderivative": antiderivative}, import_libraries)
