"""Mathematics: equality of expressions by math-verify, antiderivatives, and Countdown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from palaestra.reward.answers import LONGEST, MARKS, final, folded, gold_of, number, plain, same, undone
from palaestra.reward.verifiers.answers import statement
from palaestra.reward.verifiers.base import Judgement, binary, failed, guarded, needed, reply
from palaestra.reward.verifiers.worker import Died, Expired, ask
from palaestra.types import Fault, UserError, stage

CHILD = "palaestra.reward.verifiers.math_worker"
UNDONE = re.compile(
    r"\\(?:o?int|i+nt|sum|prod|lim|d?frac\s*\{\s*d\s*\}|partial|binom|det|gcd|bmod|pmod|mod|max|min)(?![a-zA-Z])|[!'∫∑∏]"
)
SEVERAL = re.compile(
    r"\b(?:or|and)\b|\\(?:pm|mp|lor|vee|quad|qquad|cup|neq?|leq?|geq?|approx|sim)(?![a-zA-Z])|[;<>≠≤≥≈±&\n]|\\\\"
)
WRITTEN = r"\\(?:text|mathrm|operatorname|textbf)\s*\{([^{}]*)\}"
GAP = r"(?:\s|\\[,;! ])*"
UNIT = re.compile(rf"(?:{WRITTEN}|\^\s*\{{?\s*\\circ\s*\}}?|[°$€£])?{GAP}$")
COUNTING = """
or and not no never to times plus minus over by percent pi point base squared cubed factorial dozen score
hundred thousand million billion trillion half halves third thirds quarter quarters fourth fourths fifth fifths sixth
sixths seventh sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth thousandths
zero one two three four five six seven eight nine ten
"""
COUNTS = frozenset(COUNTING.split())  # words that make another number, or none, of what stands beside them
SCIENTIFIC = re.compile(
    r"([-+]?[0-9]+(?:\.[0-9]+)?)\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*([-+]?[0-9]{1,3})\s*\}|([0-9]))"
)
SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*([0-9])\s*([0-9])")
ARITHMETIC = re.compile(r"[0-9+\-*/(). ]{1,300}")


def answer_in(response: str, gold: str, prompt: str) -> str | None:
    """The answer of a reply: marked as such, or a short reply that is nothing else."""
    text = reply(response)
    said = statement(text)
    if said is None and number(plain(gold)) is not None:
        said = final(response, gold, prompt)
    if said is None and len(text.strip()) <= max(60, 2 * len(gold)) and "\n" not in text.strip():
        said = text
    return None if said is None or len(said) > LONGEST else said.strip(MARKS).rstrip(".")


@stage
class Math:
    """1 if the final answer is mathematically equal to the reference, by math-verify (huggingface/Math-Verify).

    A number is compared as a number. Else a process of its own compares expressions, for `seconds` at most. Several answers
    side by side, an operation left to be done (an integral, a sum), a rounded value of an exact one, and what is copied
    from `prompt` are 0: they can all be equal to a reference without answering.
    """

    seconds: float = 5.0

    @guarded
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        gold = gold_of(needed(answer, "answer", (str, int, float), self)).strip(MARKS)
        said = answer_in(response, gold, prompt)
        if not said:
            return failed("unparsable")
        if same(said, gold):
            return binary(not undone(said, gold, prompt))
        if number(plain(gold)) is not None:
            said = unitless(said)
            return binary(same(said, gold) and not undone(said, gold, prompt))
        if "=" in said and "=" not in gold:
            said = said[said.rfind("=") + 1 :].strip()
        rounded = number(plain(said)) is not None and "." in said and "." not in gold
        copied = len(said) > 2 and folded(said) in folded(prompt)
        looks = (UNDONE.search, SEVERAL.search, lambda text: any(map(counts, re.findall(WRITTEN, text))))
        loose = any(look(said) and not look(gold) for look in looks)
        listed = "," in outside(said) and "," not in outside(gold)
        if rounded or copied or loose or listed:
            return binary(False)
        return compared("equal", gold, said, self.seconds)


def unitless(text: str) -> str:
    """A number without the units behind it and the name before it; 3 \\times 10^8 as 3e8."""
    if text.count("=") == 1:
        text = (
            text.partition("=")[2]
            if re.fullmatch(r"\s*\\?[A-Za-z]\w*\s*(?:\([a-z]\))?\s*", text.partition("=")[0])
            else text
        )
    text = SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = SCIENTIFIC.sub(lambda m: f"{m[1]}e{m[2] or m[3]}", text)
    while (unit := UNIT.search(text)) and unit.group() and not counts(unit[1] or ""):
        text = text[: unit.start()]
    return plain(re.sub(rf"^{GAP}", "", text))


def counts(words: str) -> bool:
    """Whether words beside a number are no unit, so that the number is not the answer: `million`, `or 8`, a sentence."""
    found = re.split(r"[\s./-]+", words.strip().casefold().replace("per cent", "percent"))
    return len(found) > 3 or bool(COUNTS & set(found)) or re.search(r"[^\w\s./-]|\d", words) is not None


def outside(text: str) -> str:
    """The text outside brackets, without the commas of numbers."""
    text = re.sub(
        r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text.replace("{,}", "").replace("\\,", "").replace(",\\!", "")
    )
    depth, found = 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        found += c if depth <= 0 else ""
    return found


def compared(task: str, gold: str, said: str, seconds: float) -> Judgement:
    try:
        found = ask(CHILD, {"task": task, "gold": gold, "said": said}, seconds)
    except Expired:
        return failed("timeout")
    except Died:
        return failed("failed")
    if found.get("refused") == "gold":
        raise UserError(
            f"the reference {gold[:60]!r} cannot be read as mathematics; use LaTeX, or the verifier `exact`"
        )
    if "refused" in found and "Error" not in found["refused"]:
        raise Fault("verifier", found["refused"])
    if found.get("result") is None:
        return failed("unparsable")
    return binary(found["result"])


@stage
class Antiderivative:
    """1 if the derivative of the final answer is the integrand, the reference, at five points or more (relative 1e-4).

    Self-Rewarding Self-Improving (arXiv:2505.08827). A constant may be added; an integral left standing is 0.
    """

    seconds: float = 5.0

    @guarded
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = plain(needed(answer, "answer", str, self))
        said = answer_in(response, gold, "")
        if not said:
            return failed("unparsable")
        if "=" in said:
            said = said[said.rfind("=") + 1 :].strip()
        if UNDONE.search(said) or SEVERAL.search(said) or "," in outside(said):
            return binary(False)
        return compared("antiderivative", gold, said, self.seconds)


@stage
class Countdown:
    """1 if the last expression makes the target from the numbers, each used at most once (`exactly`: exactly once).

    + - * / and brackets over whole numbers that are given, evaluated as exact fractions: nothing of the text is executed.
    """

    exactly: bool = False

    @guarded
    def __call__(self, response: str, answer: Any, *, numbers: Sequence[int | str]) -> Judgement:
        target = number(plain(str(needed(answer, "answer", (str, int, float), self))))
        given = Counter(int(n) for n in needed(numbers, "numbers", (list, tuple), self))
        if target is None:
            raise UserError(f"Countdown: the target {str(answer)[:40]!r} is no number; give it as one")
        text = statement(response)
        text = plain((reply(response).strip().rsplit("\n", 1)[-1] if text is None else text).strip())
        text = text.replace("\\times", "*").replace("\\cdot", "*").replace("×", "*").replace("÷", "/").replace("−", "-")
        before, equals, after = text.partition("=")
        if not ARITHMETIC.fullmatch(before) or (equals and number(plain(after)) != target):
            return failed("unparsable")
        used: list[int] = []
        try:
            found = evaluated(ast.parse(before.strip(), mode="eval").body, used)
        except (SyntaxError, ValueError, ZeroDivisionError, MemoryError):
            return failed("unparsable")
        spent = Counter(used)
        fair = spent == given if self.exactly else not spent - given
        return binary(
            fair and len(used) > 1 and found == target[0], value=float(found == target[0]), numbers=float(fair)
        )


def evaluated(node: ast.expr, used: list[int]) -> Fraction:
    """The value of an expression over whole numbers; notes those that it uses. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp):
        a, b = evaluated(node.left, used), evaluated(node.right, used)
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
