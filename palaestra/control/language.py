"""Reward programs that a model may write: expression trees over declared quantities, as JSON, which
are checked before they are used. Nothing of a model's text runs.

    1.5                                                     a number
    "distance"                                              a quantity
    {"op": "exp", "args": [{"op": "neg", "args": ["distance"]}]}

An operation of every expression is total, and every quantity is clipped to its declared bounds, so
bounds of the whole follow from those of the parts by interval arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from palaestra.errors import UserError
from palaestra.types import value_class

Span: TypeAlias = tuple[float, float]
Operator = Literal[
    "add", "subtract", "multiply", "minimum", "maximum", "less",
    "neg", "abs", "square", "exp", "tanh",
]  # fmt: skip
LARGEST, MOST_NODES = 1e4, 64  # of a program's values, and of its tree


@value_class
class Quantity:
    """What a program may read: its bounds, and what it is in words."""

    low: float
    high: float
    about: str = ""


class Operation(BaseModel):
    """An operator with its arguments. "less" is 1 where the first is below the second, else 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    op: Operator
    args: tuple[Expression, ...] = Field(min_length=1, max_length=2)


Expression = float | str | Operation
Operation.model_rebuild()
Quantities: TypeAlias = Mapping[str, Quantity]
Columns: TypeAlias = Mapping[str, np.ndarray]

COMPUTE: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "minimum": np.minimum, "maximum": np.maximum,
    "less": lambda a, b: np.less(a, b).astype(float),
    "neg": np.negative, "abs": np.abs, "square": np.square, "exp": np.exp, "tanh": np.tanh,
}  # fmt: skip
TWO = ("add", "subtract", "multiply", "minimum", "maximum", "less")


def compute(expression: Expression, columns: Columns, declared: Quantities) -> np.ndarray:
    """The values of an expression, of the shape of the columns.

    Raises UserError for a quantity that is not declared or not given.
    """
    if isinstance(expression, str):
        if expression not in declared or expression not in columns:
            raise UserError(f"there is no quantity {expression!r}; there are {', '.join(declared)}")
        bounds = declared[expression]
        return np.clip(columns[expression], bounds.low, bounds.high)
    if isinstance(expression, Operation):
        return COMPUTE[expression.op](*(compute(a, columns, declared) for a in expression.args))
    return np.full(next(iter(columns.values())).shape, float(expression))


def bounds_of(expression: Expression, declared: Quantities) -> Span:
    """The least and the largest value that an expression may have, or wider ones.

    Raises ValueError for what cannot be bounded, with the reason.
    """
    if isinstance(expression, str):
        if expression not in declared:
            raise ValueError(
                f"there is no quantity {expression!r}; there are {', '.join(declared)}"
            )
        return declared[expression].low, declared[expression].high
    if not isinstance(expression, Operation):
        if not math.isfinite(expression):
            raise ValueError(f"{expression} is no finite number")
        return float(expression), float(expression)
    op, wanted = expression.op, 2 if expression.op in TWO else 1
    if len(expression.args) != wanted:
        raise ValueError(f"{op!r} takes {wanted} arguments, not {len(expression.args)}")
    spans = [bounds_of(a, declared) for a in expression.args]
    low, high = _span_of_two(op, *spans) if wanted == 2 else _span_of_one(op, spans[0])
    if max(-low, high) > LARGEST:
        raise ValueError(f"{op!r} may reach {max(-low, high):.3g}, above {LARGEST:g} in size")
    return low, high


def _span_of_two(op: str, one: Span, other: Span) -> Span:
    (a, b), (c, d) = one, other
    if op == "add":
        return a + c, b + d
    if op == "subtract":
        return a - d, b - c
    if op == "multiply":
        ends = (a * c, a * d, b * c, b * d)
        return min(ends), max(ends)
    if op == "less":
        return 0.0, 1.0
    best = min if op == "minimum" else max
    return best(a, c), best(b, d)


def _span_of_one(op: str, span: Span) -> Span:
    low, high = span
    if op == "neg":
        return -high, -low
    if op == "exp":
        low, high = (math.exp(x) if x < 700 else math.inf for x in (low, high))
        return low, high
    if op == "tanh":
        return math.tanh(low), math.tanh(high)
    ends, least = (abs(low), abs(high)), 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return (least, max(ends)) if op == "abs" else (least * least, max(ends) * max(ends))


def lint_expression(
    expression: Expression, declared: Quantities, sample: Columns | None = None
) -> list[str]:
    """What is wrong with an expression; nothing = it may be used.

    Its operators have their arguments, it reads declared quantities alone, is of at most 64 parts,
    and by its bounds finite. On a `sample` of columns, all of one shape, it must have values of this
    shape that are finite and not all the same.
    """
    if (n := count_nodes(expression)) > MOST_NODES:
        return [f"it has {n} parts, more than {MOST_NODES}"]
    try:
        bounds_of(expression, declared)
    except ValueError as error:
        return [str(error)]
    if sample is None:
        return []
    shape = next(iter(sample.values())).shape
    value = compute(expression, sample, declared)
    if value.shape != shape:
        return [f"its values have the shape {value.shape}, not {shape}"]
    if not np.isfinite(value).all():
        return ["it has values that are not finite"]
    return ["it is the same in all states"] if np.ptp(value) < 1e-9 else []


def count_nodes(expression: Expression) -> int:
    """Numbers, quantities and operators."""
    parts = expression.args if isinstance(expression, Operation) else ()
    return 1 + sum(map(count_nodes, parts))


class RewardProgram(BaseModel):
    """Expressions, each a column of what is rewarded."""

    expressions: list[Expression]


def checked_list(
    declared: Quantities, sample: Columns | None = None, least: int = 1, most: int = 12
) -> Any:
    """The field of a pydantic model that holds `least` to `most` expressions without fault."""

    def check(expression: Expression) -> Expression:
        if wrong := lint_expression(expression, declared, sample):
            raise ValueError(wrong[0])
        return expression

    checked: Any = Annotated[Expression, AfterValidator(check)]
    return (list[checked], Field(min_length=least, max_length=most))


def checked_program(
    declared: Quantities, sample: Columns | None = None, most: int = 12
) -> type[RewardProgram]:
    """The model of programs of 1 to `most` expressions without fault, for `structured.ask`: who
    writes another hears what is wrong.
    """
    field = checked_list(declared, sample, most=most)
    return create_model("RewardProgram", __base__=RewardProgram, expressions=field)


def spell_quantities(declared: Quantities) -> str:
    """Each in a line, as a question tells them."""
    lines = (f"- {n}, {q.low:g} to {q.high:g}: {q.about}" for n, q in declared.items())
    return "\n".join(lines)


def columns_of(
    expressions: Sequence[Expression], columns: Columns, declared: Quantities
) -> np.ndarray:
    """[..., F] the values of F expressions. Raises UserError for one that `lint_expression` refuses."""
    for expression in expressions:
        if wrong := lint_expression(expression, declared):
            raise UserError(f"{expression}: {wrong[0]}")
    return np.stack([compute(e, columns, declared) for e in expressions], -1)
