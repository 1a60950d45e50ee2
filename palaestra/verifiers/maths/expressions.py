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
from palaestra.verifiers.answers.amounts import BEFORE, LINKS, word_set, words_of
from palaestra.verifiers.answers.final import (
    LONGEST,
    MARKS,
    WRAPS,
    extract_answer,
    final_statement,
    gold_of,
    parse_number,
    repeats_question,
    same_answer,
    stated_number,
    strip_markup,
)
from palaestra.verifiers.answers.notation import bases_in, read_notation, text_key
from palaestra.verifiers.answers.plain_replies import is_foreign
from palaestra.verifiers.answers.script import is_han, leads_to_number, plain_forms
from palaestra.verifiers.answers.short import stated_answer
from palaestra.verifiers.answers.statement import OPENING, statements
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
    INEQUALITY,
    WHERE,
    WITHIN,
    as_interval,
    as_point,
    as_vector,
    expand_signs,
    is_listing,
    is_loose,
    name_constants,
    pieces,
    spell_alike,
    split_units,
    squeeze,
    strip_units,
    without_membership,
    without_remarks,
)
from palaestra.verifiers.worker import ask

CHILD = "palaestra.verifiers.maths.worker"
FOREIGN_WORDS = {
    "ou": "or", "oder": "or", "et": "and", "und": "and", "est": "is", "ist": "is", "sont": "are", "sind": "are",
}  # fmt: skip
FOREIGN = re.compile(rf"\b(?:{'|'.join(FOREIGN_WORDS)})\b", re.IGNORECASE)
# \{x : 0 < x < 2\}, and f^{-1}(x) =
BUILDER = re.compile(r"^\s*\\?\{\s*[a-z]\s*(?::|\||\\mid)\s*(.+?)\s*\\?\}\s*$")
FUNCTION = re.compile(r"\s*[a-z](?:\s*\^\s*\{?\s*-1\s*\}?)?\s*\([a-z]\)\s*=(?!=)")
ARITHMETIC = re.compile(r"[0-9+\-*/(). ]{1,300}")
SIGNS = {
    "\\times": "*", "\\cdot": "*", "×": "*", "·": "*", "⋅": "*", "∗": "*", "\\div": "/", "÷": "/",
    "−": "-", "–": "-",
    "\\left": "", "\\right": "",
}  # fmt: skip
TIMES = re.compile(r"(?<=[0-9)])\s*[xX]\s*(?=[-(0-9])")
# what may stand around a formula and means nothing: brackets do
OUTER = tuple(wrap for wrap in WRAPS if wrap[0] != "(")
# the formula within $...$, \(...\) or \[...\]
# a word, which is no name of a function and no command
WORDY = re.compile(r"(?<![\\A-Za-z])(?!(?:sin|cos|tan|log|ln|exp|sqrt|pi|or|and|in)\b)[A-Za-z]{2,}")
JOIN = re.compile(r"\s*(?:,|,?\s*\b(?:and|or)\b)\s*")
VALUE = re.compile(r"\s*([A-Za-z])(?:_\{?[0-9]\}?)?\s*=([^=<>]+)")
# operations whose result has the same name
RESULTS = word_set("""
sum difference product quotient derivative integral limit function equation remainder antiderivative factor
""")
FORMULA = re.compile(
    r"\$\$([^$]{1,500})\$\$|\$([^$\n]{1,500})\$|\\\(((?:(?!\\\)).){1,500})\\\)|\\\[((?:(?!\\\]).){1,500})\\\]",
    re.DOTALL,
)
PLEASANTRY = re.compile(r"\s*I hope (?:it|this) is correct\.?\s*$", re.IGNORECASE)
ENDING = re.compile(
    r"\s*(?:(?:(?:square|cubic|sq\.?)\s+)?(?:[cmk]?m|in|ft|yd|mi|cm²|m²|units?|inches|feet|yards|miles|[a-z]*met(?:er|re)s?"
    r"|degrees|radians|dollars|seconds|minutes|hours|days|years)(?:\s+(?:long|wide|tall|high|in (?:length|total)))?)?"
    r"\s*(?:is (?:the|our|my) (?:final |correct )?(?:answer|solution|result))?[\s.!*_]*",
    re.IGNORECASE,
)
DENYING = word_set("""
not never no or nor neither either isn't aren't cannot can't doesn't don't without except than
wrong false incorrect doubt approximately about between if suppose assume let maybe perhaps
""")
OPERATIONS = word_set("""
sum difference product quotient derivative integral antiderivative limit function equation solve
compute evaluate find simplify consider factor expand differentiate integrate inverse conjugate
negation remainder calculate take given
""")
# words that lead to a result where a sentence holds other formulas
LINKING = (
    ["is"], ["are"], ["equals"], ["to"], ["be"], ["get"], ["obtain"], ["have"], ["gives"], ["yields"],
    ["as"], ["answer"], ["pair"], ["point"], ["value"],
)  # fmt: skip
BARE_NUMBER = re.compile(r"\s*-?[0-9][0-9.,]*\s*")


def answer_in(response: str, gold: str, prompt: str) -> str | None:
    """The answer of a reply: marked as such, or a short reply that is nothing else, or the formula
    that its last sentence ends with.
    """
    text = plain_forms(strip_thinking(response))
    stated, is_marked = final_statement(text)
    if parse_number(strip_markup(gold)) is not None:
        plain = (
            stated is not None and parse_number(strip_units(stated, words_of(prompt))) is not None
        )
        stated = stated if is_marked or plain else extract_answer(response, gold, prompt)
    if stated is None and len(text.strip()) <= max(60, 2 * len(gold)) and "\n" not in text.strip():
        stated = text if FORMULA.fullmatch(text.strip()) or not FORMULA.search(text) else None
        stated = None if stated is None else plain_formula(stated, gold)
    joined = None if is_marked else joined_formulas(text, gold)
    if joined:
        return joined
    if stated is None:
        stated = closing_formula(text)
    elif not is_marked and FORMULA.search(stated):
        stated = closing_formula(stated) or stated
    elif not is_marked and stated.count("$") == 1:  # the mark in front is taken for one around it
        stated = closing_formula(f"${stated}") or stated
    return None if stated is None or len(stated) > LONGEST else stated.strip(MARKS).rstrip(".")


def plain_formula(text: str, gold: str) -> str:
    """The formula that a short reply without dollar signs states in words, as in `So x = 4.` and
    `The derivative is 2x + 3`; any other text as it is.
    """
    text = OPENING.sub("", text.strip(), count=1)
    if FORMULA.search(text) or not WORDY.search(text):
        return text
    readings = [r for r in statements(text, gold) if r != text and not WORDY.search(r)]
    words = set(re.findall(r"[\w']+", text.casefold()))
    return text if words & (DENYING | OPERATIONS - RESULTS) or not readings else readings[0]


def joined_formulas(text: str, gold: str) -> str | None:
    """The values of one letter that a last sentence gives in formulas of their own, as in
    `$x = 3$ and $x = -2$`, where the reference is a listing.
    """
    text = text[-LONGEST:].rstrip()
    formulas = list(FORMULA.finditer(text))
    if (
        len(formulas) < 2
        or not is_listing(gold)
        or not ENDING.fullmatch(text[formulas[-1].end() :])
    ):
        return None
    first = len(formulas) - 1
    while first and JOIN.fullmatch(text[formulas[first - 1].end() : formulas[first].start()]):
        first -= 1
    inside = [next(g for g in m.groups() if g is not None) for m in formulas[first:]]
    names = [m[1] if (m := VALUE.fullmatch(part)) else "" for part in inside]
    before = re.split(r"[.!?:](?=\s)|\n", text[: formulas[first].start()])[-1].casefold()
    if len(inside) < 2 or "" in names or len({*names}) > 1 or "$" in before:
        return None
    return None if set(re.findall(r"[\w']+", before)) & DENYING else ", ".join(inside)


def closing_formula(text: str) -> str | None:
    """The formula that a text ends with, as in `Hence the area is $x^2$.`; None where words deny it,
    or where another formula of the sentence may be the answer as well.
    """
    text = PLEASANTRY.sub("", text[-2 * LONGEST :].partition("<|")[0].rstrip()).rstrip()
    formulas = list(FORMULA.finditer(text))
    if not formulas or not ENDING.fullmatch(text[formulas[-1].end() :]):
        return None
    last = formulas[-1]
    before = text[formulas[-2].end() if len(formulas) > 1 else 0 : last.start()]
    before = re.sub(r"^\s*,\s*(?=(?:so|thus|hence|therefore)\b)", "", before)
    sentence = re.split(r"[.!?:](?=\s)|\n", before)[-1]
    alone = sentence != before or len(formulas) == 1
    words = re.findall(r"[\w']+", sentence.casefold())
    if not alone and (re.search("[,;]", sentence) or {"and", "also", "while", "but"} & set(words)):
        return None
    word_list = list(words)
    while word_list and word_list[-1] in LINKS:
        word_list.pop()
    if is_han(sentence) and not leads_to_number("".join(sentence.split())):
        return None
    if set(words) & DENYING or set(word_list[-1:]) & (BEFORE - {"pair"} | OPERATIONS):
        return None
    if re.search(r"\b(?:sum|difference|product|quotient|ratio)\b[^.]*\band\W*$", sentence):
        return None
    if re.search(r"[-+*/=<>^,]\s*$", sentence) or (not alone and words[-1:] not in LINKING):
        return None
    return next(group for group in last.groups() if group is not None)


@stage
class Math:
    """1 if the final answer is mathematically equal to the reference, by math-verify
    (huggingface/Math-Verify).

    A number is compared as a number, so that 2^{10} for 1024 is not done. Else a process of its own
    compares expressions, for `seconds` at most; of several values each must be one of the
    reference's, once. Letters count with their case, primes and accents, a number with its base, a
    clock time as one. Several answers side by side, an operation left to be done (an integral, a
    derivative, a sum), a rounded value of an exact one, another unit than the reference's, a word
    beside a number that is no unit and no thing of the question, and what is copied from `prompt`,
    or is its expression with the brackets or factors written otherwise, are 0: they can all be
    equal to a reference without answering. An inequality is the interval that it is, an equation
    any multiple of itself, the constant of an integral has any letter. A \\log without a base has that of the other side: e
    beside \\ln, else 10.
    """

    seconds: float = 5.0

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        gold = gold_of(require_field(answer, "answer", (str, int, float), self)).strip(MARKS)
        if is_foreign(prompt):
            response = FOREIGN.sub(lambda m: FOREIGN_WORDS[m[0].casefold()], response)
        response = response if WHERE.search(gold) else WHERE.sub("", response)
        stated = answer_in(response, gold, prompt)
        if not stated:
            return failed_judgement("unparsable")
        if parse_number(strip_markup(gold)) is not None:
            return binary_judgement(is_number(stated, gold, prompt))
        if same_formula(stated, gold):
            return binary_judgement(not repeats_question(stated, gold, prompt))
        written = [
            read_notation(strip_markup(text[text.rfind("=") + 1 :])) for text in (stated, gold)
        ]
        if written[1] and written[1][0] == "ratio" and ("/" in stated or "frac" in stated):
            above, _, below = strip_markup(gold).partition(":")
            return binary_judgement(same_answer(stated, f"{above.strip()}/{below.strip()}"))
        if any(written) or bases_in(stated) != bases_in(gold):
            return binary_judgement(written[0] is not None and written[0] == written[1])
        stated = without_remarks(stated, gold)
        stated, gold = (spell_alike(strip_markup(text, OUTER)) for text in (stated, gold))
        stated = BUILDER.sub(r"\1", stated)
        if "=" not in stated and (name := FUNCTION.match(gold)):
            gold = gold[name.end() :]
        stated = as_vector(without_membership(stated, gold), gold)
        if same_formula(squeeze_spaces(stated), squeeze_spaces(gold)):
            return binary_judgement(True)
        if "=" in stated and "=" not in gold and not is_listing(stated):
            stated = stated[stated.rfind("=") + 1 :].strip()
        return self.expression(stated, gold, prompt)

    def expression(self, stated: str, gold: str, prompt: str) -> Judgement:
        """Of a reference that is no bare number."""
        stated, gold = as_point(stated, gold), as_point(gold, stated)
        known = words_of(prompt)
        if INEQUALITY.fullmatch(gold.strip()) or WITHIN.fullmatch(gold):
            stated, gold = (as_interval(text, "(0, \\infty)") for text in (stated, gold))
        stated = name_constants(as_interval(stated, gold, prompt), gold)
        stated, gold = expand_signs(stated), expand_signs(gold)
        stated, gold = (AND.sub(",", text) if is_listing(gold) else text for text in (stated, gold))
        copied = (
            len(squeeze(stated)) > 2
            and squeeze(stated) != squeeze(gold)
            and squeeze(stated) in squeeze(prompt)
        )
        if copied or is_loose(stated, gold, known):
            return binary_judgement(False)
        (stated, unit), (gold, wanted) = (split_units(text, known) for text in (stated, gold))
        if unit and wanted and unit != wanted:
            return binary_judgement(False)
        if parse_number(strip_markup(gold)) is not None:
            return binary_judgement(is_number(stated, gold, prompt))
        # rounded
        if parse_number(strip_markup(stated)) is not None and "." in stated and "." not in gold:
            return binary_judgement(False)
        request = {"gold": gold, "said": stated, "asked": pieces(prompt), "known": sorted(known)}
        return ask_child("equal", request, self.seconds)


def is_number(stated: str, gold: str, prompt: str) -> bool:
    """Whether an answer is the number of the reference, units of the question and names aside."""
    ways = (stated, strip_units(stated, words_of(prompt)), stated_number(stated, prompt) or "")
    units = [split_units(text)[1] for text in (stated, gold)]
    if "\\$" in gold and units[0] and units[0] != "$":
        return False
    spelling = next((way for way in ways if same_answer(way, gold)), None)
    factorial = re.search(r"[0-9})]\s*!", stated)
    return spelling is not None and not factorial and not repeats_question(spelling, gold, prompt)


def same_formula(stated: str, gold: str) -> bool:
    """Whether two texts are the same but for markup; words also without case."""
    shortest = 2 if "\\text" in stated + gold else 4
    keys = [text_key(strip_markup(text, OUTER), shortest) for text in (stated, gold)]
    return bool(keys[1]) and keys[0] == keys[1]


def squeeze_spaces(text: str) -> str:
    return "".join(text.split()) if "\\" not in text else re.sub(r"\s+(?![a-zA-Z])", "", text)


def ask_child(task: str, request: dict[str, Any], seconds: float) -> Judgement:
    try:
        reply = ask(CHILD, {"task": task, **request}, seconds)
    except Expired:
        return failed_judgement("timeout")
    except Died:
        return failed_judgement("failed")
    if reply.get("refused") == "gold":
        raise UserError(
            f"the reference {request['gold'][:60]!r} cannot be read as mathematics; use LaTeX, or "
            "the verifier `exact`"
        )
    if "refused" in reply and "Error" not in reply["refused"]:
        raise Fault("verifier", reply["refused"])
    if reply.get("result") is None:
        return failed_judgement("unparsable")
    return binary_judgement(reply["result"])


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
        stated = answer_in(response, gold, "")
        if not stated:
            return failed_judgement("unparsable")
        if "=" in stated:
            stated = stated[stated.rfind("=") + 1 :].strip()
        if is_loose(stated, ""):
            return binary_judgement(False)
        return ask_child("antiderivative", {"gold": gold, "said": stated}, self.seconds)


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
            value = exact_value(ast.parse(before.strip(), mode="eval").body, used)
        except (SyntaxError, ValueError, ZeroDivisionError, MemoryError):
            return failed_judgement("unparsable")
        spent = Counter(used)
        fair = spent == given if self.exactly else not spent - given
        return binary_judgement(
            fair and len(used) > 1 and value == target[0],
            value=float(value == target[0]),
            numbers=float(fair),
        )


def whole_number(given: Any) -> int:
    """A number of the data, as 3, 3.0 or "3"."""
    number = None if isinstance(given, bool) else parse_number(strip_markup(str(given)))
    if number is None or number[1] or number[0].denominator != 1:
        raise UserError(
            f"Countdown: of the numbers, {str(given)[:40]!r} is not whole; give whole numbers"
        )
    return int(number[0])


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
