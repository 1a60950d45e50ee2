"""The child process of the mathematics verifiers: LaTeX into sympy, and whether two expressions are
equal.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

from palaestra.verifiers.maths.text import (
    bracketed,
    is_loose,
    is_set,
    items_in,
    lhs,
    unname_items,
)
from palaestra.verifiers.worker import serve

POINTS = ("37/100", "81/100", "123/100", "171/100", "239/100", "-53/100", "-117/100", "311/100")
LEAST_POINTS = 5  # points at which both sides must be finite
DIGITS = 60  # of a value; the sides are exact, so nothing but their last digits may differ
TOLERANCE = 1e-30  # relative to the larger side
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


def parse_expression(text: str, other: str = "") -> Any:
    """The expression that a normal text stands for, with the case of its letters; None = it does not
    parse. Its letters are real unless it, or the text it is compared with, looks complex.
    """
    from latex2sympy2_extended.latex2sympy2 import (  # pyright: ignore[reportMissingImports]
        ConversionConfig,
        latex2sympy,
    )
    from math_verify.parser import should_treat_as_complex  # pyright: ignore[reportMissingImports]

    for side in (text, text[text.rfind("=") + 1 :]):  # of a chain that cannot be read, its end
        try:
            return latex2sympy(
                side,
                is_real=not (should_treat_as_complex(side) or should_treat_as_complex(other)),
                normalization_config=None,
                conversion_config=ConversionConfig(lowercase_symbols=False),
            )
        except Exception:
            continue
    return None


def check_equality(request: dict[str, Any]) -> dict[str, Any]:
    """Whether `said` equals `gold`, item by item where they are several, and is not what was
    `asked`. A gold that does not parse is refused by name, a said one is not equal.
    """
    gold, stated = (normalise_formula(request[k]) for k in ("gold", "said"))
    if re.search(r"\\ln(?![a-zA-Z])", gold + stated):
        gold, stated = (
            re.sub(r"\\log(?![a-zA-Z])(?!\s*_)", r"\\ln", text) for text in (gold, stated)
        )
    wanted = parse_expression(gold)
    golds = items_in(gold)
    if wanted is None and any(parse_expression(item) is None for item in golds):
        return {"refused": "gold"}
    if is_loose(stated, gold, request["known"]):
        return {"result": False}
    asked = [normalise_formula(piece) for piece in request["asked"]]
    saids, golds = unname_items(items_in(stated), golds)
    if len(golds) != 1 or len(saids) != 1 or "\\{" in gold:
        return {"result": pair_items(saids, golds)}
    if parse_expression(saids[0]) is None:
        return {"result": None}
    return {"result": is_equal(saids[0], golds[0], asked)}


def pair_items(saids: list[str], golds: list[str]) -> bool:
    """Whether each value is one of the golds, under its name where these have names, and each of
    them once.
    """
    equal = lambda a, b: (lhs(a) == "") == (lhs(b) == "") and is_equal(a, b, [])
    left = list(golds)
    for stated in saids:
        place = next((i for i, gold in enumerate(left) if equal(stated, gold)), None)
        if place is None:
            return False
        left.pop(place)
    return not left


def is_equal(stated: str, gold: str, asked: list[str]) -> bool:
    """Whether one value is another: expressions by math-verify, pairs and intervals part by part."""
    shapes = [bracketed(text) for text in (stated, gold)]
    if is_set(stated) or is_set(gold):
        return is_set(stated) == is_set(gold) and pair_items(items_in(stated), items_in(gold))
    (shape, parts), (wanted, golds) = shapes
    if golds and not parts:
        return False
    if golds:
        return (
            shape == wanted
            and len(parts) == len(golds)
            and all(is_equal(a, b, []) for a, b in zip(parts, golds, strict=True))
        )
    value, wanted = parse_expression(stated, gold), parse_expression(gold, stated)
    if value is None or wanted is None or pending_operations(value) - pending_operations(wanted):
        return False
    if not same_names(value, wanted):
        return False
    if same_equation(value, wanted):
        return not any(repeats_piece(value, wanted, piece) for piece in asked)
    from math_verify import verify  # pyright: ignore[reportMissingImports]

    equal = verify([wanted], [value], float_rounding=9, strict=True, timeout_seconds=None)  # pyright: ignore[reportArgumentType]
    return bool(equal) and not any(repeats_piece(value, wanted, piece) for piece in asked)


def same_equation(a: Any, b: Any) -> bool:
    """Whether two equations are one with its sides exchanged or, of two letters or more, moved and
    scaled: 2x = 10 is x = 5 before it is solved.
    """
    import sympy

    if not (isinstance(a, sympy.Eq) and isinstance(b, sympy.Eq)):
        return False
    if rebuild(a.lhs) == rebuild(b.rhs) and rebuild(a.rhs) == rebuild(b.lhs):
        return True
    if len(b.free_symbols) < 2 or a.free_symbols != b.free_symbols:
        return False
    sides = [sympy.expand(rebuild(e.lhs) - rebuild(e.rhs)) for e in (a, b)]
    ratio = None if 0 in sides else sympy.cancel(sides[0] / sides[1])
    return ratio is not None and bool(ratio.is_number) and bool(ratio.is_nonzero)


def names_by_case(tree: Any) -> set[str]:
    """The names of an expression's variables, functions and of the number e."""
    import sympy
    from sympy.core.function import AppliedUndef

    nodes = list(sympy.preorder_traversal(tree))
    names = {str(node) for node in nodes if isinstance(node, sympy.Symbol)}
    names |= {str(node.func) for node in nodes if isinstance(node, AppliedUndef)}
    return names | {"e" for node in nodes if node is sympy.E}


def same_names(a: Any, b: Any) -> bool:
    """Whether no name of one expression is one of the other in another case."""
    first, second = names_by_case(a), names_by_case(b)
    return not {n.casefold() for n in first - second} & {n.casefold() for n in second - first}


def pending_operations(tree: Any) -> set[str]:
    """The operations of an expression that are left to be done."""
    import sympy

    return PENDING & {type(node).__name__ for node in sympy.preorder_traversal(tree)}


def repeats_piece(stated: Any, gold: Any, piece: str) -> bool:
    """Whether an answer is an expression of the question and not the reference's, as parsed or
    after sympy's own rules.
    """
    asked = parse_expression(piece)
    return asked is not None and any(
        form(stated) == form(asked) and form(stated) != form(gold)
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
    sides = [make_exact(side, sympy) for side in sides]
    slope, known, compared = sympy.diff(sides[1], x), 0, 0
    for point in map(sympy.Rational, POINTS):
        a, b = (side.subs(x, point).evalf(DIGITS) for side in (sides[0], slope))
        known += is_finite(a)
        if is_finite(a) and is_finite(b):
            compared += 1
            if sympy.Abs(a - b) > TOLERANCE * sympy.Max(sympy.Abs(a), sympy.Abs(b)):
                return {"result": False}
    return {"result": compared >= LEAST_POINTS} if known >= LEAST_POINTS else {"refused": "gold"}


def make_exact(side: Any, sympy: Any) -> Any:
    """An expression in variables without assumptions, its decimals as fractions, and |u| as the
    root of its square, which has a derivative.
    """
    side = side.subs({s: sympy.Symbol(str(s)) for s in side.free_symbols})
    side = side.xreplace({f: sympy.Rational(str(f)) for f in side.atoms(sympy.Float)})
    return side.replace(sympy.Abs, lambda u: sympy.sqrt(u**2))


def is_finite(value: Any) -> bool:
    """Whether a value is a number, not too large to be one; False for NaN and infinity."""
    return bool(value.is_number and value.is_finite and abs(complex(value)) < 1e12)


def expression(text: str, sympy: Any) -> Any:
    """A formula written as LaTeX, or plainly (`sin(x**2)*2`)."""
    text = re.sub(PLAIN, r"\\\1", text.replace("**", "^")).replace("*", "\\cdot ")
    text = re.sub(r"\\log(?![a-zA-Z])(?!\s*_)", r"\\ln", text)
    text = re.sub(r"(\\ln)\s*(?:\\left)?\|([^|]+?)(?:\\right)?\|", r"\1(|\2|)", text)
    text = re.sub(r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\^\(([^()]*)\)", r"^{\1}", text)
    text = normalise_formula(text)
    value = None if is_loose(text, "") else parse_expression(text)
    return value if isinstance(value, sympy.Expr) else None


if __name__ == "__main__":
    serve({"equal": check_equality, "antiderivative": antiderivative}, import_libraries)
