"""Replies in other notations written out before they are read: shares in words, amounts in cents, decimal commas."""

from __future__ import annotations

import re
from fractions import Fraction

from palaestra.verifiers.answers.amounts import (
    words_of,
)
from palaestra.verifiers.answers.numerals import ONES, TENS, parse_number

LONGEST_STATED = 600  # characters
A_VALUE = r"[-−]?\$?[0-9]+(?:[.,/][0-9]+)*\s?\\?%?"


TENTHS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10, "twelfth": 12, "twentieth": 20, "hundredth": 100,
}  # fmt: skip


SPELLED = rf"(?:{'|'.join((*ONES, *TENS))})"


SHARE = re.compile(
    rf"\b(?:(?P<whole>{SPELLED})\s+and\s+)?(?:(?P<above>an?|{SPELLED})[\s-]+)?(?P<below>{'|'.join(TENTHS)})s?\b",
    re.IGNORECASE,
)


def spelled_fractions(text: str, prompt: str = "") -> str:
    """A text without digits with its one fraction in words as digits: three eighths, two and a half.

    A share of something else than the question names stays as it is: half of a dozen.
    """
    if re.search("[0-9]", text) or len(text) > LONGEST_STATED:
        return text
    shares = list(SHARE.finditer(text))
    if len(shares) != 1:
        return text
    match = shares[0]
    values = {word: n for n, word in enumerate(ONES)} | {
        word: 10 * n for n, word in enumerate(TENS, 2)
    }
    above = (match["above"] or "").casefold()
    if not above and match["below"].casefold() != "half":
        return text
    count = 1 if above in ("", "a", "an") else values[above]
    whole = "" if match["whole"] is None else f"{values[match['whole'].casefold()]} "
    rest = text[match.end() :]
    share = re.match(
        r"\s+(?:past\b|of (?:an?|all|his|her|their|that|it)\b\s*(\w*))", rest, re.IGNORECASE
    )
    if share and not (share[1] and words_of(share[1]) <= words_of(prompt)):
        return text
    return f"{text[: match.start()]}{whole}{count}/{TENTHS[match['below'].casefold()]}{rest}"


def plain_values(text: str, gold: str, prompt: str) -> str:
    """A reply to a question for a number with what its notation hides written out: 48.5k, 1648 AD, a
    percentage where one is asked for, a fraction in words, about (≈) an exact value.
    """
    text = spelled_fractions(text, prompt)
    spaced = re.findall(r"[0-9][0-9 ]*[0-9]|[0-9]", text)
    if len(spaced) == 1 and SPACED.fullmatch(spaced[0]):  # 23 400, with no other digits
        text = text.replace(spaced[0], spaced[0].replace(" ", ""))
    text = ROUNDED.sub(lambda match: exact_form(match, gold), text)
    if CHANCE.search(prompt):
        text = percent_of(text, "%" in gold)
        text = re.sub(r"\b([0-9]+) (?:in|out of) ([0-9]+)\b", r"\1/\2", text)
    text = re.sub(
        r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?)k\b(?!\s*\w+/)",
        lambda m: str(Fraction(m[1]) * 1000),
        text,
    )
    text = re.sub(
        r"\b(?:AD|A\.D\.)\s+([0-9]{1,4})\b|\b([0-9]{3,4}) (?:AD|CE|A\.D\.|C\.E\.)(?!\w)",
        lambda m: m[1] or m[2],
        text,
    )
    if "." in gold or ROUNDING.search(prompt):  # c ≈ 2.998e8; an exact value is not rounded
        text = re.sub(
            r"(?<=[A-Za-z)}])\s*(?:\\approx(?![a-zA-Z])|≈)\s*(?=[-+−]?\$?[0-9])", " = ", text
        )
    if asks_percent(prompt):
        spoken = re.search(r"[0-9]\s*\\?(?:%|percent|per cent)(?! points?)", text, re.IGNORECASE)
        if "%" not in gold and spoken:
            text = re.sub(r"(?<=[0-9])\s*(?:\\?%|per ?cent\b)(?! points?)", "", text)
        elif "%" in gold and not spoken and re.search("[0-9]", text):
            text = re.sub(r"([0-9]+(?:\.[0-9]+)?)(?=[\s.!*`$})]*$)", r"\1%", text)
    return text


def percent_of(text: str, percent: bool) -> str:
    """A probability as a percentage, or as a number, as it is wanted, where it is the only number."""
    numbers = re.findall(r"[0-9]+(?:\.[0-9]+)?", text)
    if len(numbers) != 1:
        return text
    if not percent:
        shown = lambda match: f"{Fraction(match[1])}/100" if "." not in match[1] else match[0]
        return re.sub(r"([0-9]+(?:\.[0-9]+)?)\s*(?:\\?%|per ?cent\b)", shown, text)
    return re.sub(
        r"\b0\.([0-9]+)(?![0-9%\s]*%)", lambda m: f"{float(Fraction('0.' + m[1]) * 100):g}%", text
    )


def exact_form(match: re.Match[str], gold: str) -> str:
    """Of a value and its rounded form, `1/13 ≈ 7.7%`, the one that is wanted; both where the second is
    not the first, rounded.
    """
    exact, rounded = (parse_number(match[name].rstrip(".,")) for name in ("exact", "rounded"))
    if exact is None or rounded is None:
        return match[0]
    digits = re.sub(r"[^0-9.]", "", match["rounded"].rstrip(".,")).partition(".")[2]
    unit = Fraction(1, 10 ** len(digits)) / (100 if rounded[1] else 1)
    values = [number[0] / (100 if number[1] else 1) for number in (exact, rounded)]
    if abs(values[0] - values[1]) > unit / 2:
        return match[0]
    wanted = parse_number(gold)
    return match["rounded" if wanted == rounded else "exact"]


SPACED = re.compile(r"[1-9][0-9]{0,2} [0-9]{3}")


CHANCE = re.compile(r"\b(?:probabilit|chance|likel|odds)", re.IGNORECASE)


ROUNDED = re.compile(
    rf"(?<![\w/.])(?P<exact>{A_VALUE})(?:\s*,?\s*(?:≈|\\approx(?![a-zA-Z])|(?:or |which is |i\.e\. )?"
    rf"(?:about|roughly|approximately|around))\s*|\s*\((?:≈|about|roughly|approximately|around)\s*)(?P<rounded>{A_VALUE})\)?",
    re.IGNORECASE,
)


ROUNDING = re.compile(
    r"\b(?:round|approximat|nearest|decimal place|significant (?:figure|digit)|estimat)",
    re.IGNORECASE,
)


def asks_percent(prompt: str) -> bool:
    return re.search(r"\bper ?cent(?:age)?\b|%", prompt, re.IGNORECASE) is not None


def in_whole_coins(text: str) -> str:
    """A reply with its one amount in cents as dollars: 375 cents is $3.75."""
    numbers = re.findall(r"[0-9][0-9,]*(?:\.[0-9]+)?", text)
    if len(numbers) != 1:
        return text
    return re.sub(
        r"\b([0-9][0-9,]*) (?:euro )?cents\b",
        lambda m: f"{int(m[1].replace(',', '')) / 100:.2f}",
        text,
    )


FOREIGN = re.compile(
    r"[¿¡äöüßàâçéèêëîïôûùœñáíóú]|\s\?|\b(?:wie|was|welche[rsn]?|wann|ist|der|die|das|und|calculer|combien|quel(?:le)?s?|est|les?|des|une"
    r"|cuánto|cuál|el|los|las|qué|quanto|qual|il|che|berechne|löse|donner?)\b",
    re.IGNORECASE,
)


ENGLISH = re.compile(r"\b(?:the|what|how|which|who|is|are|does|find|of|and|many)\b", re.IGNORECASE)


def is_foreign(prompt: str) -> bool:
    """Whether a question is in a language that writes a decimal comma, as far as its words tell."""
    return bool(FOREIGN.search(prompt)) and not ENGLISH.search(prompt)


def point_decimals(text: str) -> str:
    """A text of a language with a decimal comma with its numbers as 1234.56."""
    text = re.sub(
        r"(?<![0-9.,])[0-9]{1,3}(?:,[0-9]{3})+(?=\.[0-9])", lambda m: m[0].replace(",", ""), text
    )
    text = re.sub(
        r"(?<![0-9.,])[0-9]{1,3}(?:[.  \u202f][0-9]{3})+(?![0-9])(?!\.[0-9])",
        lambda m: re.sub(r"\D", "", m[0]),
        text,
    )
    text = re.sub(r"(?<=[0-9]),(?=[0-9])", ".", text)
    scales = {
        "million": "milli[oó]n(?:en|es|s)?|mio",
        "billion": "milliarden?|milliards?",
        "thousand": "tausend|mille|mil",
    }
    for name, words in scales.items():
        text = re.sub(rf"(?<=[0-9])\s(?:{words})\b", f" {name}", text, flags=re.IGNORECASE)
    return text
