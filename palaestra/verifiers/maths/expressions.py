"""Mathematics: equality of expressions by math-verify, antiderivatives, and Countdown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from palaestra.errors import Fault, UserError
from palaestra.services.lines import Died, Expired
from palaestra.types import stage
from palaestra.verifiers.answers.final import (
    LONGEST,
    MARKS,
    extract_answer,
    gold_of,
    parse_number,
    repeats_question,
    same_answer,
    strip_markup,
)
from palaestra.verifiers.answers.short import stated_answer
from palaestra.verifiers.base import (
    Judgement,
    binary_judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.maths.text import (
    AND,
    SHORT_FRACTION,
    is_listing,
    is_loose,
    pieces,
    split_units,
    squeeze,
    strip_units,
)
from palaestra.verifiers.worker import ask

CHILD = "palaestra.verifiers.maths.worker"
ARITHMETIC = re.compile(r"[0-9+\-*/(). ]{1,300}")
SIGNS = {
    "\\times": "*", "\\cdot": "*", "×": "*", "·": "*", "⋅": "*", "∗": "*", "\\div": "/", "÷": "/",
    "−": "-", "–": "-",
    "\\left": "", "\\right": "",
}  # fmt: skip
TIMES = re.compile(r"(?<=[0-9)])\s*[xX]\s*(?=[-(0-9])")
BARE_NUMBER = re.compile(r"\s*-?[0-9][0-9.,]*\s*")


def answer_in(response: str, gold: str, prompt: str) -> str | None:
    """The answer of a reply: marked as such, or a short reply that is nothing else."""
    text = strip_thinking(response)
    said = stated_answer(text)
    if said is None and parse_number(strip_markup(gold)) is not None:
        said = extract_answer(response, gold, prompt)
    if said is None and len(text.strip()) <= max(60, 2 * len(gold)) and "\n" not in text.strip():
        said = text
    return None if said is None or len(said) > LONGEST else said.strip(MARKS).rstrip(".")


@stage
class Math:
    """1 if the final answer is mathematically equal to the reference, by math-verify
    (huggingface/Math-Verify).

    A number is compared as a number, so that 2^{10} for 1024 is not done. Else a process of its own
    compares expressions, for `seconds` at most. Several answers side by side, an operation left to
    be done (an integral, a derivative, a sum), a rounded value of an exact one, another unit than
    the reference's, and what is copied from `prompt`, or is its expression with the brackets or
    factors written otherwise, are 0: they can all be equal to a reference without answering. A
    \\log without a base has that of the other side: e beside \\ln, else 10.
    """

    seconds: float = 5.0

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        gold = gold_of(require_field(answer, "answer", (str, int, float), self)).strip(MARKS)
        said = answer_in(response, gold, prompt)
        if not said:
            return failed_judgement("unparsable")
        if same_answer(said, gold):
            return binary_judgement(not repeats_question(said, gold, prompt))
        if parse_number(strip_markup(gold)) is not None:
            said = strip_units(said)
            return binary_judgement(
                same_answer(said, gold) and not repeats_question(said, gold, prompt)
            )
        if "=" in said and "=" not in gold:
            said = said[said.rfind("=") + 1 :].strip()
        return self.expression(said, gold, prompt)

    def expression(self, said: str, gold: str, prompt: str) -> Judgement:
        """Of a reference that is no bare number."""
        said, gold = (AND.sub(",", text) if is_listing(gold) else text for text in (said, gold))
        copied = (
            len(squeeze(said)) > 2
            and squeeze(said) != squeeze(gold)
            and squeeze(said) in squeeze(prompt)
        )
        if copied or is_loose(said, gold):
            return binary_judgement(False)
        (said, unit), (gold, wanted) = split_units(said), split_units(gold)
        if unit and wanted and unit != wanted:
            return binary_judgement(False)
        if (
            parse_number(strip_markup(value := SHORT_FRACTION.sub(r"\\frac{\1}{\2}", gold)))
            is not None
        ):
            return binary_judgement(same_answer(strip_units(said), value))
        # rounded
        if parse_number(strip_markup(said)) is not None and "." in said and "." not in gold:
            return binary_judgement(False)
        return ask_child(
            "equal", {"gold": gold, "said": said, "asked": pieces(prompt)}, self.seconds
        )


def ask_child(task: str, request: dict[str, Any], seconds: float) -> Judgement:
    try:
        found = ask(CHILD, {"task": task, **request}, seconds)
    except Expired:
        return failed_judgement("timeout")
    except Died:
        return failed_judgement("failed")
    if found.get("refused") == "gold":
        raise UserError(
            f"the reference {request['gold'][:60]!r} cannot be read as mathematics; use LaTeX, or "
            "the verifier `exact`"
        )
    if "refused" in found and "Error" not in found["refused"]:
        raise Fault("verifier", found["refused"])
    if found.get("result") is None:
        return failed_judgement("unparsable")
    return binary_judgement(found["result"])


@stage
class Antiderivative:
    """1 if the derivative of the final answer is the integrand, the reference, at five points or
    more (relative 1e-4).

    Self-Rewarding Self-Improving (arXiv:2505.08827). A constant may be added; an integral left
    standing is 0.
    """

    seconds: float = 5.0

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = strip_markup(require_field(answer, "answer", str, self))
        said = answer_in(response, gold, "")
        if not said:
            return failed_judgement("unparsable")
        if "=" in said:
            said = said[said.rfind("=") + 1 :].strip()
        if is_loose(said, ""):
            return binary_judgement(False)
        return ask_child("antiderivative", {"gold": gold, "said": said}, self.seconds)


@stage
class Countdown:
    """1 if the last expression makes the target from the numbers, each used at most once
    (`exactly`: exactly once).

    + - * / and brackets over whole numbers that are given, evaluated as exact fractions: nothing of
      the text is executed. The
    target may stand on either side of an equals sign.
    """

    exactly: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, numbers: Sequence[Any]) -> Judgement:
        target = parse_number(
            strip_markup(str(require_field(answer, "answer", (str, int, float), self)))
        )
        if target is None or target[1]:
            raise UserError(
                f"Countdown: the target {str(answer)[:40]!r} is no number; give it as one"
            )
        given = Counter(whole_number(n) for n in numbers)
        text = stated_answer(response)
        text = strip_markup(
            (strip_thinking(response).strip().rsplit("\n", 1)[-1] if text is None else text).strip()
        )
        for sign, name in SIGNS.items():
            text = text.replace(sign, name)
        text = TIMES.sub("*", text)
        before, equals, after = text.partition("=")
        if equals and BARE_NUMBER.fullmatch(before):
            before, after = after, before
        if not ARITHMETIC.fullmatch(before) or (
            equals and parse_number(strip_markup(after)) != target
        ):
            return failed_judgement("unparsable")
        used: list[int] = []
        try:
            found = exact_value(ast.parse(before.strip(), mode="eval").body, used)
        except (SyntaxError, ValueError, ZeroDivisionError, MemoryError):
            return failed_judgement("unparsable")
        spent = Counter(used)
        fair = spent == given if self.exactly else not spent - given
        return binary_judgement(
            fair and len(used) > 1 and found == target[0],
            value=float(found == target[0]),
            numbers=float(fair),
        )


def whole_number(given: Any) -> int:
    """A number of the data, as 3, 3.0 or "3"."""
    found = None if isinstance(given, bool) else parse_number(strip_markup(str(given)))
    if found is None or found[1] or found[0].denominator != 1:
        raise UserError(
            f"Countdown: of the numbers, {str(given)[:40]!r} is not whole; give whole numbers"
        )
    return int(found[0])


def exact_value(node: ast.expr, used: list[int]) -> Fraction:
    """The value of an expression over whole numbers; notes those that it uses. Raises ValueError
    for anything else.
    """
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -exact_value(node.operand, used)
    if isinstance(node, ast.BinOp):
        a, b = exact_value(node.left, used), exact_value(node.right, used)
        match node.op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a - b
            case ast.Mult():
                return a * b
            case ast.Div():
                return a / b
            case _:
                pass
    raise ValueError("not arithmetic")
