"""The text of a mathematical answer: units, lists, work left to be done, and what is copied from
the question.

The process that parses asks the same of the text that math-verify makes of an answer before it
reads it: `$`, `\\!`, quotes and empty `\\text{}` are lost there, and `\\in$t` becomes an integral.
"""

from __future__ import annotations

import re

from palaestra.verifiers.answers.final import parse_number, strip_markup

PENDING_OPERATION = re.compile(
    r"\\(?:o?int|i+nt|sum|prod|lim|partial|[dt]?binom|det|gcd|bmod|pmod|mod|max|min)(?![a-zA-Z])|[!'∫∑∏∂]"
)
SEVERAL_VALUES = re.compile(
    r"\b(?:or|and)\b|\\(?:pm|mp|lor|vee|quad|qquad|cup|neq?|leq?|geq?|approx|sim|f?box(?:ed)?)(?![a-zA-Z])|[;<>≠≤≥≈±&\n]|\\\\"
)
AND = re.compile(r",?\s*(?:\\(?:text|mathrm)\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b)\s*")
SET = re.compile(r"\\(?:\{|lbrace)(?!\s*\()[^|:]*,")
TEXT_COMMAND = r"\\(?:text|mathrm|operatorname|textbf)\s*\{([^{}]*)\}"
GAP = r"(?:\s|~|\\[,;:! ])*"
POWER = r"(?:\s*\^\s*\{?\s*-?[0-9]\s*\}?|[²³])?"
LETTERS = "mm|cm|dm|km|nm|in|ft|yd|mi|ms|sec|min|hrs?|kg|mg|lbs?|oz|mL|ml|kHz|Hz|kPa|Pa|kJ|kW|eV|mol|mph|rad"
PLAIN_UNIT = rf"(?:{LETTERS}){POWER}|(?:{LETTERS}|[msghLNJWVAK]){POWER}(?:\s*/\s*(?:{LETTERS}|[msghLNJWVAK]){POWER})+"
UNIT = re.compile(
    rf"(?:{TEXT_COMMAND}({POWER})|(\^\s*\{{?\s*\\circ\s*\}}?|\\degree|[°$€£])|(?<=[0-9}}]){GAP}({PLAIN_UNIT}))?{GAP}$"
)
SAME_UNIT = {
    "^\\circ": "°", "\\degree": "°", "degree": "°", "deg": "°", "radian": "rad", "foot": "ft",
    "feet": "ft", "inch": "in",
    "inche": "in", "mile": "mi", "yard": "yd", "meter": "m", "metre": "m", "centimeter": "cm",
    "centimetre": "cm",
    "millimeter": "mm", "kilometer": "km", "kilometre": "km", "gram": "g", "kilogram": "kg",
    "second": "s", "sec": "s",
    "minute": "min", "hour": "h", "hr": "h", "pound": "lb", "ounce": "oz", "dollar": "$",
    "unit": "",
}  # fmt: skip
COUNTING = """
or and not no never to times plus minus over by percent pi point base squared cubed factorial dozen score
hundred thousand million billion trillion half halves third thirds quarter quarters fourth fourths fifth fifths sixth
sixths seventh sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth thousandths
zero one two three four five six seven eight nine ten
"""
# words that make another number, or none, of what stands beside them
COUNTS = frozenset(COUNTING.split())
SCIENTIFIC = re.compile(
    r"([-+]?[0-9]+(?:\.[0-9]+)?)\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*([-+]?[0-9]{1,3})\s*\}|([0-9]))"
)
SHORT_FRACTION = re.compile(r"\\[dt]?frac\s*([0-9])\s*([0-9])")
NO_INK = re.compile(r"\s|\$|~|\\(?:left|right|displaystyle|limits)(?![a-zA-Z])|\\[,;:! ()\[\]]")
WORD = (
    r"(?<![\\A-Za-z{])(?:[A-Za-z]{3,}|is|of|to|in|if|at|by|as|be|it|on|or|we|an|do)(?![A-Za-z({])"
)
PIECE_SEPARATOR = re.compile(rf"\\[()\[\]]|\$+|\n|{WORD}|[?!.;:,](?=\s|$)")
MOST_PIECES = 12


def strip_units(text: str) -> str:
    """A number without the units behind it and the name before it; 3 \\times 10^8 as 3e8."""
    if text.count("=") == 1:
        text = (
            text.partition("=")[2]
            if re.fullmatch(r"\s*\\?[A-Za-z]\w*\s*(?:\([a-z]\))?\s*", text.partition("=")[0])
            else text
        )
    text = SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = SCIENTIFIC.sub(lambda m: f"{m[1]}e{m[2] or m[3]}", text)
    return strip_markup(re.sub(rf"^{GAP}", "", split_units(text)[0]))


def split_units(text: str) -> tuple[str, str]:
    """A text without the units behind it, and these, in one spelling: `\\text{ square feet}` is
    ft^2.
    """
    found = ""
    while (
        (unit := UNIT.search(text)) and unit.group() and unit.start() and not counts(unit[1] or "")
    ):
        text = text[: unit.start()]
        found = (
            one_spelling(
                (unit[1] or "").strip() + (unit[2] or "") + (unit[3] or "") + (unit[4] or "")
            )
            + found
        )
    return text, found


def one_spelling(unit: str) -> str:
    unit = re.sub(r"[\s{}.]", " ", unit.replace("²", "^2").replace("³", "^3")).casefold()
    unit = re.sub(r"\b(?:square|sq) +(\w+)", r"\1^2", unit)
    unit = re.sub(r"\bcubic +(\w+)", r"\1^3", unit)
    unit = re.sub(
        r"\\?[a-z]+",
        lambda m: SAME_UNIT.get(singular(m[0]), singular(m[0])),
        "".join(unit.split()).replace("^\\circ", "°"),
    )
    return re.sub(r"^\^[0-9]", "", unit)  # square units


def singular(word: str) -> str:
    return word[:-1] if len(word) > 2 and word.endswith("s") else word


def counts(words: str) -> bool:
    """Whether words beside a number are no unit, so that the number is not the answer: `million`,
    `or 8`, a sentence.
    """
    words = re.sub(r"(?<=[A-Za-z])\^-?[1-3]", "", words)  # cm^2
    found = re.split(r"[\s./-]+", words.strip().casefold().replace("per cent", "percent"))
    return (
        len(found) > 3
        or bool(COUNTS & set(found))
        or re.search(r"[^\w\s./-]|\d", words) is not None
    )


def outside_brackets(text: str) -> str:
    """The text outside brackets, without the commas of numbers."""
    text = re.sub(
        r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))",
        "",
        text.replace("{,}", "").replace("\\,", "").replace(",\\!", ""),
    )
    depth, found = 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        found += c if depth <= 0 else ""
    return found


def is_listing(text: str) -> bool:
    """Whether a text is several values: 1,2 or \\{1,2\\} or `1 and 2`."""
    return (
        "," in outside_brackets(text)
        or SET.match(text.replace("\\left", "").strip()) is not None
        or bool(AND.search(text))
    )


def is_pair(text: str) -> bool:
    """(1,2), in which the order matters."""
    text = text.replace("\\left", "").strip()
    return text.startswith("(") and "," in text and "," not in outside_brackets(text)


def is_loose(said: str, gold: str) -> bool:
    """Whether an answer is of a kind that can equal the reference without answering: undone,
    several, a set for a pair.
    """
    looks = (
        PENDING_OPERATION.search,
        SEVERAL_VALUES.search,
        lambda text: any(map(counts, re.findall(TEXT_COMMAND, text))),
    )
    if any(look(said) and not look(gold) for look in looks) or (
        "," in outside_brackets(said) and not is_listing(gold)
    ):
        return True
    return bool((SET.search(said) and is_pair(gold)) or (SET.search(gold) and is_pair(said)))


def squeeze(text: str) -> str:
    """A text without what leaves no ink, or only shapes it."""
    return NO_INK.sub("", re.sub(r"\\[dtc]frac", r"\\frac", text.casefold()))


def pieces(prompt: str) -> list[str]:
    """The expressions of a question: what stands between its words and marks; of an equation also
    the right-hand side.
    """
    found = dict[str, None]()
    for piece in PIECE_SEPARATOR.split(prompt[-4000:]):
        for part in (piece, piece[piece.rfind("=") + 1 :]):
            text = part.strip()
            if (
                3 <= len(text) <= 200
                and re.search(r"[-+*/^\\=<>(]", text)
                and parse_number(strip_markup(text)) is None
            ):
                found[text] = None
    return list(found)[:MOST_PIECES]
