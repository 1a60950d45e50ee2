"""Notations that are no plain number, and the letters of a text that count: numbers in a base,
clock times, ratios; X is not x in a formula, Paris is paris.
"""

from __future__ import annotations

import re

BASE_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16, "bin": 2, "oct": 8, "dec": 10, "hex": 16,
    "b": 2, "o": 8, "d": 10, "h": 16,
}  # fmt: skip
BASE_MARK = (
    r"_\s*(?:\{\s*(?:\\(?:text|mathrm)\s*\{\s*)?\(?([0-9]{1,2}|[a-z]+)\)?(?:\s*\})?\s*\}|([0-9]))"
)
SUBSCRIPTED = re.compile(rf"\(?([-+]?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?\s*{BASE_MARK}")
SPOKEN = re.compile(
    r"([-+]?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)(?:\\text\s*\{)?\s*\(?(?:in )?(?:base[- ]?([0-9]{1,2}|[a-z]+)"
    r"|(binary|octal|decimal|hexadecimal|hex))\)?\}?",
    re.IGNORECASE,
)
PREFIXED = re.compile(r"([-+]?)0([xXbBoO])([0-9a-fA-F]+)")
# a number with a base, anywhere in a formula
BASED = re.compile(rf"(?<![A-Za-z_\\0-9])[0-9][0-9A-Fa-f]*\s*{BASE_MARK}|\b0[xXbBoO][0-9a-fA-F]+\b")
CLOCK = re.compile(
    r"(?:0?([0-9])|([12][0-9])):([0-5][0-9])(?::([0-5][0-9]))?"
    r"(?:[\s~]*(?:\\(?:text|mathrm)\s*\{)?\s*([ap])\.?\s*m\.?\s*\}?)?",
    re.IGNORECASE,
)
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
MONTH = rf"({'|'.join(m[:3] + (f'(?:{m[3:]})?' if m[3:] else '') for m in MONTHS)}|sept)\.?"
DATES = (
    re.compile(
        rf"(?:the\s+)?{MONTH}\s+([0-3]?[0-9])(?:st|nd|rd|th)?(?:(?:,\s*|\s+)([0-9]{{4}}))?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:the\s+)?([0-3]?[0-9])(?:st|nd|rd|th)?(?:\s+of)?\s+{MONTH}(?:,?\s+([0-9]{{4}}))?",
        re.IGNORECASE,
    ),
)
ISO_DATE = re.compile(r"([0-9]{4})-([01][0-9])-([0-3][0-9])")
FORMULA = re.compile(r"(?:[A-Z][a-z]?[0-9]*|\(|\)[0-9]*){2,20}")  # of a substance
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789", "{}_$ ")
RATIO = re.compile(r"[0-9.]+(?:\s*:\s*[0-9.]+)+")
LETTERS = re.compile(r"[^\W\d_]+")
IN_FORMULAS = frozenset("\\^_=+*/'’′{}|<>0123456789")


def read_notation(text: str) -> tuple[object, ...] | None:
    """A number in a base (1010_2, 0x1f, 1f in base 16), a clock time or a ratio; None for any
    other text. Equal ones are the same answer.

    A base is a part of the answer: 5 is not 101_2 where a number was to be written in base 2.
    """
    text = " ".join(text.split())
    if len(text) > 200:
        return None
    if clock := CLOCK.fullmatch(text):
        hours, minutes = clock[1] or clock[2], clock[3]
        return ("time", hours, minutes, clock[4] or "", (clock[5] or "").lower())
    if date := read_date(text):
        return ("date", *date)
    if RATIO.fullmatch(text):
        return ("ratio", *(part.strip() for part in text.split(":")))
    if match := PREFIXED.fullmatch(text):
        base = {"x": 16, "b": 2, "o": 8}[match[2].lower()]
        return digits_in(match[1] + match[3], base)
    if match := SUBSCRIPTED.fullmatch(text):
        return digits_in(match[1], base_of(match[2] or match[3]))
    if match := SPOKEN.fullmatch(text):
        return digits_in(match[1], base_of(match[2] or match[3][:3]))
    return None


def read_date(text: str) -> tuple[int, int, int] | None:
    """The year, month and day of a date with its month by name, or as 1999-12-31."""
    if match := ISO_DATE.fullmatch(text):
        return int(match[1]), int(match[2]), int(match[3])
    for pattern, (month, day) in zip(DATES, ((1, 2), (2, 1)), strict=True):
        if match := pattern.fullmatch(text):
            names = [m[:3] for m in MONTHS]
            return int(match[3] or 0), names.index(match[month][:3].lower()) + 1, int(match[day])
    return None


def same_substance(substance: str, gold: str) -> bool:
    """Whether two chemical formulas are the same but for how their indices are set: H₂O, H_2O."""
    if not FORMULA.fullmatch(gold) or not any(map(str.isdigit, gold)) or len(substance) > 200:
        return False
    return re.sub(r"\\(?:text|mathrm|ce)(?![a-z])", "", substance).translate(LOWERED) == gold


def base_of(text: str) -> int:
    """The base that a mark names; 0 = none."""
    return int(text) if text.isdecimal() else BASE_WORDS.get(text.lower(), 0)


def digits_in(text: str, base: int) -> tuple[object, ...] | None:
    """The digits of a number in a base; None where these are none of it."""
    sign = "-" if text.startswith("-") else ""
    whole, _, part = text.lstrip("+-").partition(".")
    if not 2 <= base <= 36 or (base > 10 and not re.search(r"[0-9]", text) and len(whole) < 2):
        return None
    try:
        value = int(whole, base)
        if part:
            int(part, base)
    except ValueError:
        return None
    return ("base", base, sign, value, part.rstrip("0").lower())


def plain_decimal(text: str) -> str:
    """A number that is marked as one of base 10, without the mark; any other text as it is."""
    match = SUBSCRIPTED.fullmatch(" ".join(text.split()))
    return match[1] if match and base_of(match[2] or match[3]) == 10 else text


def bases_in(text: str) -> list[str]:
    """The numbers with a base within a formula, sorted."""
    return sorted(
        "".join(m.group().split()).replace("{", "").replace("}", "") for m in BASED.finditer(text)
    )


def text_key(text: str, shortest: int = 2) -> str:
    """Equal keys = the same text: words without case, the letters of formulas with it.

    A word has `shortest` letters or more, and is no command, no part of a formula (2XY, x_AB) and
    no mixture as aB; four letters and more are a word wherever they stand.
    """
    text = " ".join(text.split())

    def fold(match: re.Match[str]) -> str:
        word = match[0]
        near = {
            text[max(0, match.start() - 1) : match.start()],
            text[match.end() : match.end() + 1],
        }
        command = text[max(0, match.start() - 1) : match.start()] == "\\"
        if command or (shortest > 2 and word.isupper()):  # a polygon ABCD
            return word
        spelled = word in (word.lower(), word.upper(), word.capitalize())
        spoken = len(word) >= shortest and spelled and not near & IN_FORMULAS
        return word.casefold() if len(word) >= 4 or spoken else word

    return LETTERS.sub(fold, text)
