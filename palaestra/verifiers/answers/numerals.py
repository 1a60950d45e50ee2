"""Numbers as people write them: with a sign apart, in groups of three digits, as fractions and mixed
numbers, in scientific notation and in words.

`parse_number` reads what a reference may be; `read_number` reads more of a response: 07 and `seven`
are names as references, and numbers where the reference is one.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from palaestra.verifiers.answers.amounts import PERCENT, SCALES

LONGEST = 1000  # characters of a number, of a statement, of what is read of a line
WHOLE = r"(?:0|[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]*)"  # no leading zeros: 007 is a name
NUMBER = re.compile(rf"[-+]?(?:{WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,3}})?")
DIGIT = re.compile("[0-9¼-¾⅐-⅞]")
LEADING_ZEROS = re.compile(r"^([-+]?)0+(?=[0-9])")
APART = re.compile(r"^([-+])\s+(?=[0-9.$€£\\½⅓¼¾])")
# thin, no-break and figure spaces, the apostrophe of Switzerland, and what LaTeX has for them
GROUP = r"(?:[\u00a0\u2005-\u200a\u202f'’]|\\,|,\\! *|\{,\})"
# a plain space may part two numbers, but not three groups
GROUPED = re.compile(
    rf"(?<![0-9.,])(?<![0-9] )[0-9]{{1,3}}(?:(?:{GROUP}[0-9]{{3}})+|(?: [0-9]{{3}}){{2,}})(?![0-9]| [0-9])"
)
SCIENTIFIC = re.compile(
    r"([-+−]?(?<![0-9])[0-9]+(?:\.[0-9]+)?)\s*(?:\\times|\\cdot|[×·⋅*]|x(?=\s*10))\s*10\s*"
    r"(?:(?:\^|\*\*)\s*(?:\{\s*([-+−]?\s*[0-9]{1,3})\s*\}|\(([-+−]?[0-9]{1,3})\)|([-−][0-9]{1,3}|[0-9]{1,3}))"
    r"|([⁻⁺]?[⁰¹²³⁴-⁹]{1,3}))(?![0-9^⁰¹²³⁴-⁹])"
)
RAISED = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹−", "-+0123456789-")
# with full stops between groups: two groups or more, or a decimal comma behind one
EUROPEAN = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:(?:\.[0-9]{3}){2,}(?:,[0-9]+)?|\.[0-9]{3},[0-9]+)")
MIXED = re.compile(r"(?<![0-9./,])([0-9]+) ([0-9]+)/([0-9]+)(?![0-9/])")
# {1 \over 2}, alone or within a formula
OVER = re.compile(r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}|^([^{}=]*)\\over(?![a-zA-Z])([^{}=]*)$")
VULGAR = re.compile(r"([0-9]*) ?([¼-¾⅐-⅞])")
# 3\frac{1}{2} is mixed: 7/2
LATEX_FRACTION = re.compile(r"([-+]?)([1-9][0-9]*|) *\\[dtc]?frac *\{([^{}]*)\} *\{([^{}]*)\}")
# \frac12, \frac1{2}, \frac{1}2
SHORT_FRACTION = re.compile(r"\\[dtc]?frac *(?:\{([0-9]+)\}|([0-9])) *(?:\{([0-9]+)\}|([0-9]))")
REPEATING = re.compile(
    r"([-+]?)(0|[1-9][0-9]*|)\.([0-9]*)\\(?:overline|bar|dot) *\{?([0-9]{1,20})\}?"
)
IN_TEXT = r"(?:\\[,;:! ]|~|\s)*(?:\\(?:text|mathrm|textnormal)\s*\{{\s*({0})\s*\}}|\s({0}))$"
SPOKEN_PERCENT = re.compile(IN_TEXT.format(PERCENT), re.IGNORECASE)
SPOKEN_SCALE = re.compile(IN_TEXT.format("|".join(SCALES)), re.IGNORECASE)
SPOKEN_SIGN = re.compile(r"^(?:minus|negative)\s+(?=[0-9.$€£])", re.IGNORECASE)

ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SPELLED = {w: n for n, w in enumerate(ONES)} | {w: 10 * n for n, w in enumerate(TENS, 2)}
SPELLED_WORD = "|".join((*ONES, *TENS, "hundred", "thousand", "million", "billion"))
SPELLED_RUN = re.compile(
    rf"(?<![\w-])(?:(?:{SPELLED_WORD})(?:(?:-|\s+|\s+and\s+)(?={SPELLED_WORD}))?)+(?![\w-])",
    re.IGNORECASE,
)
ONE_SCALE = re.compile(rf"an?\s+({'|'.join(SCALES)})", re.IGNORECASE)
LONG_TAIL = 15  # significant digits, from which on the last ones may come from rounding
SHORT = 12  # significant digits of a number that was meant


@lru_cache(maxsize=4096)
def parse_number(text: str) -> tuple[Fraction, bool] | None:
    """The value of a text that is one number, and whether it is a percentage; None for any other
    text.
    """
    if not text or len(text) > LONGEST or DIGIT.search(text) is None:
        return None
    if NUMBER.fullmatch(text):
        return Fraction(text.replace(",", "")), False
    text = APART.sub(r"\1", re.sub("^[−–]", "-", text.replace("−", "-")))
    text, scale = read_words(join_numbers(over_fractions(text)))
    text = text.removeprefix("\\$").lstrip("$€£¥").rstrip("€£¥")
    value = SHORT_FRACTION.sub(r"\\frac{\g<1>\g<2>}{\g<3>\g<4>}", text.rstrip("%").rstrip(" \\"))
    if repeating := REPEATING.fullmatch(value):
        sign, whole, once, again = repeating.groups()
        above = int((whole or "0") + once + again) - int((whole or "0") + once)
        match = Fraction(above, (10 ** len(again) - 1) * 10 ** len(once))
        return (-match if sign == "-" else match) * scale, text.endswith("%")
    match = LATEX_FRACTION.fullmatch(value)
    sign, whole, *parts = match.groups() if match else ("", "", *value.split("/"))
    parts = [part.strip() for part in parts]
    if (
        len(parts) > 2
        or not all(map(NUMBER.fullmatch, parts))
        or (whole and any(p[0] in "-+" for p in parts))
    ):
        return None
    above, below = (Fraction(part.replace(",", "")) for part in (*parts, "1")[:2])
    if not below:
        return None
    value = (int(whole or 0) + above / below) * scale
    return -value if sign == "-" else value, text.endswith("%")


def read_number(text: str) -> tuple[Fraction, bool] | None:
    """As `parse_number`, of a response: also with leading zeros (07), and in English words."""
    number = parse_number(text)
    if number is None and 0 < len(text) <= LONGEST:
        number = parse_number(LEADING_ZEROS.sub(r"\1", text)) if "/" not in text else None
    if number is None and EUROPEAN.fullmatch(text):
        number = parse_number(text.replace(".", "").replace(",", "."))
    if one := ONE_SCALE.fullmatch(text):
        return Fraction(SCALES[one[1].casefold()]), False
    if number is None and 0 < len(text) <= 100 and not re.search("[0-9]", text):
        digits = spelled_digits(text, alone=True)
        number = None if digits is None else parse_number(digits)
    return number


def join_numbers(text: str) -> str:
    """A text in which each number is one word: groups of three digits joined, 1.2 \\times 10^{-3} as
    1.2e-3, 3 1/2 as 3\\frac{1}{2}.
    """
    text = GROUPED.sub(lambda m: re.sub(f"{GROUP}| ", "", m[0]), text)
    text = SCIENTIFIC.sub(lambda m: f"{m[1]}e{exponent_of(m)}".replace("−", "-"), text)
    text = VULGAR.sub(vulgar_fraction, text)
    return MIXED.sub(
        lambda m: f"{m[1]}\\frac{{{m[2]}}}{{{m[3]}}}" if int(m[2][:9]) < int(m[3][:9]) else m[0],
        text,
    )


def over_fractions(text: str) -> str:
    """A formula with its `{a \\over b}` as `\\frac{a}{b}`."""
    return OVER.sub(
        lambda m: f"\\frac{{{(m[1] or m[3] or '').strip()}}}{{{(m[2] or m[4] or '').strip()}}}",
        text,
    )


def exponent_of(match: re.Match[str]) -> str:
    raised = match[2] or match[3] or match[4] or match[5]
    return "".join(raised.translate(RAISED).split())


def vulgar_fraction(match: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKC", match[2]).partition("\u2044")
    if not below:
        return match[0]
    return f"{match[1]}\\frac{{{above}}}{{{below}}}" if match[1] else f"{above}/{below}"


def read_words(text: str) -> tuple[str, int]:
    """A number with its words as signs, and its scale: `minus 7 million` is -7 and 10^6, `28 per
    cent` is 28%.
    """
    scale = 1
    text = SPOKEN_SIGN.sub("-", text)
    if "%" not in text:
        text = SPOKEN_PERCENT.sub("%", text)
    for _ in range(3):
        if match := SPOKEN_SCALE.search(text):
            scale *= SCALES[(match[1] or match[2]).casefold()]
            text = text[: match.start()]
    return text, scale


def spelled_digits(text: str, alone: bool = False) -> str | None:
    """A text with its one number in words as digits, `forty-two apples` as `42 apples`; None where
    it has none, or several.

    Args:
        text: without digits.
        alone: whether the text is nothing but the number. `one` is a number only there: elsewhere
            it may stand for a thing (`one of them`).
    """
    runs = list(SPELLED_RUN.finditer(text))
    if len(runs) != 1 or (not alone and runs[0][0].casefold() == "one"):
        return None
    value = spelled_value(re.split(r"[\s-]+", runs[0][0].casefold()))
    return None if value is None else text[: runs[0].start()] + str(value) + text[runs[0].end() :]


def spelled_value(words: list[str]) -> int | None:
    """The value of number words; None where they are no one number, as `three four` or
    `twenty ten`.
    """
    total, part, room = 0, 0, 10**9  # room: what the next word must stay below
    for word in words:
        if word == "and":
            continue
        if word in SPELLED:
            value = SPELLED[word]
            if value >= room or (part and not value):
                return None
            part, room = part + value, 10 if value >= 20 else 1
        elif word == "hundred":
            if not 0 < part < 10:
                return None
            part, room = part * 100, 100
        else:
            scale = SCALES[word]
            if not part or (total and total % (scale * 1000)):
                return None
            total, part, room = total + part * scale, 0, 1000
    return total + part


def meant_values(text: str) -> list[Fraction]:
    """The values that a reference may mean by its digits: its own, and without what computing or a
    narrow column left behind them, as in 0.30000000000000004 and 0.10000000149011612.
    """
    number = parse_number(text)
    if number is None:
        return []
    digits = re.sub(r"[eE].*|[^0-9]", "", text).lstrip("0")
    written = "." in text and re.fullmatch(NUMBER, text.strip()) is not None
    if not written or not LONG_TAIL <= len(digits) <= 25 or abs(number[0]) > 10**20:
        return [number[0]]
    return [number[0], *(Fraction(short) for short in shorter_decimals(float(number[0])))]


def shorter_decimals(value: float) -> list[str]:
    """The shortest decimals of a double's 15 digits, and of the float32 or float16 that it is."""
    import numpy as np

    shorts = [f"{value:.{LONG_TAIL}g}"]
    with np.errstate(all="ignore"):
        shorts += [
            str(narrow)
            for kind in (np.float32, np.float16)
            if float(narrow := kind(value)) == value
        ]
    return [s for s in shorts if len(re.sub(r"e.*|[^0-9]", "", s).strip("0")) <= SHORT]


def shortest_decimal(text: str) -> str:
    """A number without what computing or a narrow column left behind its digits; any other text as
    it is.
    """
    values = meant_values(text)
    return str(float(values[-1])) if len(values) > 1 else text
