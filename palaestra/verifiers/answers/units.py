"""Units of measure behind a number, in one spelling: `12 meters per second` is `12 m/s`."""

from __future__ import annotations

import re
from fractions import Fraction

from palaestra.verifiers.answers.amounts import SCALES, UNITS, is_unit, singular
from palaestra.verifiers.answers.numerals import parse_number, spelled_digits

SAME_UNIT = {
    "^\\circ": "°", "\\degree": "°", "degree": "°", "deg": "°", "radian": "rad", "foot": "ft",
    "feet": "ft", "inch": "in",
    "inche": "in", "mile": "mi", "yard": "yd", "meter": "m", "metre": "m", "centimeter": "cm",
    "centimetre": "cm",
    "millimeter": "mm", "millimetre": "mm", "kilometer": "km", "kilometre": "km", "gram": "g",
    "kilogram": "kg", "milligram": "mg",
    "second": "s", "sec": "s",
    "minute": "min", "hour": "h", "hr": "h", "pound": "lb", "ounce": "oz", "dollar": "$",
    "unit": "", "liter": "l", "litre": "l", "milliliter": "ml", "millilitre": "ml",
    "euro": "€", "eur": "€", "usd": "$", "kmh": "km/h", "kph": "km/h", "mph": "mi/h",
    "joule": "j", "watt": "w", "volt": "v", "newton": "n", "ampere": "a", "amp": "a",
    "pascal": "pa", "kelvin": "k", "hertz": "hz", "ohm": "ω", "percent": "%",
}  # fmt: skip
TEXT_COMMAND = r"\\(?:text|mathrm|operatorname|textbf|textnormal|textit|mbox|hbox)\s*\{([^{}]*)\}"
LETTER_UNITS = frozenset("msghLlNJWVAKCFΩ")
# the sign or the name of a currency
CURRENCY = {
    "$": r"\$|\b(?:dollars?|usd|bucks?)\b", "€": r"€|\b(?:euros?|eur)\b",
    "£": r"£|\b(?:pounds?|gbp|quid)\b", "¥": r"¥|\b(?:yen|yuan|jpy|cny|rmb)\b",
    "₹": r"₹|\b(?:rupees?|inr|rs)\b", "c": r"¢|\b(?:cents?|pence|penn(?:y|ies))\b",
}  # fmt: skip


def one_spelling(unit: str) -> str:
    """A unit in one spelling: `square feet` is `ft^2`, `km per hour` is `km/h`."""
    unit = re.sub(r"[\s{}.]", " ", unit.replace("²", "^2").replace("³", "^3")).casefold()
    unit = re.sub(r"\bdegrees?\s+(?:celsius|c)\b", "°c", unit)
    unit = re.sub(r"\bdegrees?\s+(?:fahrenheit|f)\b", "°f", unit)
    unit = re.sub(r"\b(?:square|sq) +(\w+)", r"\1^2", unit)
    unit = re.sub(r"\bcubic +(\w+)", r"\1^3", unit)
    unit = re.sub(r"\b(\w+) squared\b", r"\1^2", unit)
    unit = re.sub(r"\s+per\s+", "/", unit)
    unit = re.sub(
        r"\\?[a-z]+",
        lambda m: SAME_UNIT.get(singular(m[0]), SAME_UNIT.get(m[0], singular(m[0]))),
        "".join(unit.split()).replace("^\\circ", "°"),
    )
    return re.sub(r"^\^[0-9]", "", unit)  # square units


def read_quantity(text: str) -> tuple[Fraction, str] | None:
    """The value of a number with a unit behind it, and the unit in one spelling; None of any other
    text, also of a number without a unit.
    """
    if len(text) > 100:
        return None
    if not any(map(str.isdigit, text)):  # three hours
        text = spelled_digits(text) or ""
    text = re.sub(TEXT_COMMAND, r" \1 ", text.replace("^\\circ", "°").replace("^{\\circ}", "°"))
    text = re.sub(r"\\[,;:! ]|~|\$(?![0-9])", " ", text).strip()
    start = re.search(r"[^\W\d_]|°", text)
    if start is None or not start.start():
        return None
    number, unit = text[: start.start()].strip(), text[start.start() :].strip()
    value = parse_number(number)
    words = [w for w in re.split(r"[\s/·*-]+", re.sub(r"\^?\{?-?[1-3²³]\}?", "", unit)) if w]
    words = [w.strip("°.") for w in words]
    known = [w for w in words if w not in LETTER_UNITS and w and w.casefold() != "per"]
    if value is None or value[1] or not words or words[0].casefold() in SCALES:
        return None
    if re.search(r"[^\w\s/·*°^{}.²³-]", unit) or len(words) > 5:
        return None
    lowered = [w.casefold() if w not in UNITS else w for w in known]
    if known and not all(w in {"squared", "cubic"} or is_unit([w]) for w in lowered):
        return None
    return value[0], one_spelling(unit)


def currency_of(text: str) -> set[str]:
    """The currencies that a text names, each by its sign; "c" for cents and pence."""
    return {sign for sign, names in CURRENCY.items() if re.search(names, text, re.IGNORECASE)}
