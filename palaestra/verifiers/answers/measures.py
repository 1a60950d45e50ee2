"""Units of measure as dimensions: `2500 g` is `2.5 kg`, `2 h 15 min` is `135 minutes`, and `g mol⁻¹` is
`g/mol`. Two quantities are equal if their values are, in the same dimension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from palaestra.verifiers.answers.numerals import join_numbers, parse_number

Dimension = tuple[tuple[str, int], ...]
PREFIXES: Mapping[str, tuple[str, Fraction]] = {
    "n": ("nano", Fraction(1, 10**9)), "µ": ("micro", Fraction(1, 10**6)),
    "m": ("milli", Fraction(1, 1000)), "c": ("centi", Fraction(1, 100)),
    "d": ("deci", Fraction(1, 10)), "": ("", Fraction(1)), "k": ("kilo", Fraction(1000)),
    "M": ("mega", Fraction(10**6)), "G": ("giga", Fraction(10**9)),
}  # fmt: skip
# symbol: (names in the singular, prefixes that are in use)
METRIC: Mapping[str, tuple[str, str]] = {
    "m": ("meter metre mètre metro", "nµmcdk"), "g": ("gram gramme gramo", "nµmk"),
    "L": ("liter litre litro", "µmcd"), "s": ("second seconde sekunde segundo", "nµm"),
    "mol": ("mole", "µmk"), "J": ("joule", "mkMG"), "W": ("watt", "mkMG"), "V": ("volt", "µmk"),
    "A": ("ampere amp ampère", "µmk"), "N": ("newton", "mkM"), "Pa": ("pascal", "kMG"),
    "Hz": ("hertz", "kMG"), "eV": ("electronvolt", "kMG"), "K": ("kelvin", "m"),
    "Ω": ("ohm", "mkM"), "cal": ("calorie", "k"), "T": ("tesla", "µm"),
}  # fmt: skip
FRENCH = {"kilomètre": "km", "kilómetro": "km", "centimètre": "cm", "millimètre": "mm"}
# in one of the units above; a unit that stands for itself has no other
OTHERS: Mapping[str, tuple[str, Fraction]] = {
    "min": ("s", Fraction(60)), "h": ("s", Fraction(3600)), "day": ("s", Fraction(86400)),
    "week": ("s", Fraction(604800)), "t": ("g", Fraction(10**6)), "l": ("L", Fraction(1)),
    "ml": ("L", Fraction(1, 1000)), "cl": ("L", Fraction(1, 100)), "mi": ("mi", Fraction(1)),
    "ft": ("in", Fraction(12)), "in": ("in", Fraction(1)), "yd": ("in", Fraction(36)),
    "lb": ("oz", Fraction(16)), "oz": ("oz", Fraction(1)), "°C": ("°C", Fraction(1)),
    "°F": ("°F", Fraction(1)), "°": ("°", Fraction(1)), "rad": ("rad", Fraction(1)),
    "bar": ("bar", Fraction(1)), "atm": ("atm", Fraction(1)), "beat": ("beat", Fraction(1)),
    "ha": ("ha", Fraction(1)), "acre": ("acre", Fraction(1)), "parsec": ("parsec", Fraction(1)),
    "ly": ("ly", Fraction(1)), "month": ("month", Fraction(1)), "year": ("month", Fraction(12)),
}  # fmt: skip
NAMES = {
    "hectare": "ha", "pc": "parsec", "lightyear": "ly",
    "minute": "min", "minuto": "min", "hour": "h", "hr": "h", "heure": "h", "stunde": "h", "hora": "h", "sec": "s",
    "stunden": "h", "minuten": "min", "sekunden": "s", "tonne": "t", "mile": "mi", "foot": "ft", "feet": "ft",
    "inch": "in", "inche": "in", "yard": "yd", "pound": "lb", "ounce": "oz", "celsius": "°C",
    "fahrenheit": "°F", "℃": "°C", "℉": "°F", "degree": "°", "deg": "°", "radian": "rad", "kelvin": "K",
    "beats": "beat", "d": "day", "jour": "day", "tag": "day", "μg": "µg", "μm": "µm", "mcg": "µg", "yr": "year",
    "kmh": "km/h", "kph": "km/h", "mph": "mi/h", "bpm": "beat/min", "kilo": "kg",
}  # fmt: skip
TOKEN = re.compile(
    r"([°µμΩ]?\s?[^\W\d_]+|[°℃℉Ω])(?:\s*\^?\s*\{?\(?\s*([-−⁻]?[0-9²³¹⁻]+)\s*\)?\}?)?"
)
NUMBER = r"(?:[0-9]+\s+[0-9]+/[0-9]+|[0-9]+/[0-9]+|[0-9][0-9,]*(?:\.[0-9]+)?(?:e[-+]?[0-9]{1,3})?)"
RAISED = str.maketrans("⁻−¹²³", "--123")


@lru_cache(maxsize=1)
def units() -> Mapping[str, tuple[str, Fraction]]:
    """All units by symbol and, in lower case, by name: the unit they are counted in, and how many."""
    table: dict[str, tuple[str, Fraction]] = {}
    for symbol, (names, prefixes) in METRIC.items():
        for prefix in ("", *prefixes):
            word, factor = PREFIXES[prefix]
            table[prefix + symbol] = (symbol, factor)
            table |= {word + name: (symbol, factor) for name in names.split()}
    table |= OTHERS
    table |= {name: table[symbol] for name, symbol in FRENCH.items()}
    table |= {name: table[symbol] for name, symbol in NAMES.items() if symbol in table}
    return table


def read_unit(text: str) -> tuple[Fraction, Dimension] | None:
    """The size and dimension of a unit, `km/h` or `kJ mol^-1`; None of a text that is none."""
    text = re.sub(r"\\(?:Omega|ohm)(?![a-z])", "Ω", re.sub(r"\\mu(?![a-z])", "µ", text))
    text = re.sub(r"\^\s*\{\s*([-−]?[0-9])\s*\}", r"^\1", text)
    text = re.sub(r"\\(?:text|mathrm|operatorname)\s*\{([^{}]*)\}", r" \1 ", text)
    text = (
        re.sub(r"\\[,;:! ]|~|[·⋅*$]|\\cdot", " ", text)
        .replace("^{\\circ}", "°")
        .replace("^\\circ", "°")
    )
    text = re.sub(
        r"\b(?:degrees?|°)\s*(?=celsius|fahrenheit|[CF]\b)", "", text, flags=re.IGNORECASE
    )
    text = re.sub(r"(?:degrees?|°)\s*(C|F)\b", r"°\1", text, flags=re.IGNORECASE)
    text = re.sub(r"\b(?:square|sq\.?)\s+(\w+)", r"\1^2", text)
    text = re.sub(r"\blight[- ]year", "lightyear", text, flags=re.IGNORECASE)
    text = re.sub(r"\bcubic\s+(\w+)", r"\1^3", text)
    text = re.sub(r"^\s*([nµm]?)M\s*$", r"\1mol/L", text)  # molar
    text = re.sub(r"\bper\b|\bpro\b|\bpar\b|\bpor\b", "/", text).strip()
    for name in ("kmh", "kph", "mph", "bpm"):
        text = re.sub(rf"\b{name}\b", NAMES[name], text)
    if not text or len(text) > 60:
        return None
    size, powers, side, at = Fraction(1), dict[str, int](), 1, 0
    while at < len(text):
        if text[at] in " /.":
            side = -1 if text[at] == "/" else side
            at += 1
            continue
        match = TOKEN.match(text, at)
        if match is None:
            return None
        unit = known_unit("".join(match[1].split()))
        try:
            power = int((match[2] or "1").translate(RAISED)) * side
        except ValueError:
            return None
        if unit is None or not 0 < abs(power) <= 4:
            return None
        size *= unit[1] ** power
        powers[unit[0]] = powers.get(unit[0], 0) + power
        at = match.end()
    dimension = tuple(sorted((name, power) for name, power in powers.items() if power))
    return (size, dimension) if dimension else None


def known_unit(word: str) -> tuple[str, Fraction] | None:
    """A unit by its symbol, in its own case, or by its name in any case and number."""
    table, word = units(), word.replace("μ", "µ")
    if word in table:
        return table[word]
    name = word.casefold()
    ways = [name, name[:-1] if name.endswith(("s", "n")) else name]
    unit = next((table[way] for way in ways if way in table and len(way) > 3), None)
    if unit is None and name.rstrip("s") in (
        "hr",
        "sec",
        "min",
        "lb",
        "km",
        "kg",
        "cm",
        "mm",
        "ft",
        "yr",
    ):
        unit = table[NAMES.get(name.rstrip("s"), name.rstrip("s"))]
    if unit is None and name in ("feet", "foot", "inch", "day", "days"):
        unit = table[NAMES.get(name, name.rstrip("s"))]
    return unit


def halves(text: str) -> str:
    """A text with halves of a unit as numbers: half an hour, an hour and a half, 2 hours and a half."""
    one = lambda match: f"1.5 {match[1]}" if known_unit(match[1]) else match[0]
    half = lambda match: f"0.5 {match[1]}" if known_unit(match[1]) else match[0]
    more = lambda match: f"{match[1]}.5 {match[2]}" if known_unit(match[2]) else match[0]
    text = re.sub(r"\b([0-9]+)\s+(\w+) and a half\b", more, text, flags=re.IGNORECASE)
    text = re.sub(r"\b(?:an?|one)\s+(\w+) and a half\b", one, text, flags=re.IGNORECASE)
    return re.sub(r"\bhalf an?\s+(\w+)\b", half, text, flags=re.IGNORECASE)


def read_measure(text: str) -> tuple[Fraction, Dimension] | None:
    """A number with its unit, or several that add up (`2 h 15 min`, `2h15`), in the units in which
    these are counted; None of any other text.
    """
    text = join_numbers(text.replace("−", "-").strip())
    sign = -1 if text.startswith("-") else 1
    text = re.sub(r"^-\s*", "", text)
    text = re.sub(r"^([0-9]{1,3}) ([0-9]{3})(?=\s*[^\W\d])", r"\1\2", text)  # 8 849 m
    text = re.sub(r"^([0-9]{1,2})\s?h\s?([0-5][0-9])$", r"\1 h \2 min", text)
    text = re.sub(r"\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}", r" \1/\2", text)
    parts = re.split(
        rf"(?:^|(?<=[^\W\d_.])(?:\s*,\s*|\s+and\s+|\s+et\s+|\s+und\s+|\s+y\s+|\s+))(?={NUMBER}\s*[^\W\d_°])",
        text,
    )
    total, least, wanted = Fraction(0), None, None
    for part in (p for p in parts if p.strip()):
        match = re.match(rf"({NUMBER})\s*", part)
        value = None if match is None else parse_number(match[1].replace("  ", " "))
        unit = None if match is None else read_unit(part[match.end() :])
        if value is None or value[1] or unit is None or (wanted and unit[1] != wanted):
            return None
        if least is not None and unit[0] >= least:
            return None
        total, least, wanted = total + value[0] * unit[0], unit[0], unit[1]
    return None if wanted is None else (sign * total, wanted)


def same_measure(stated: str, gold: str) -> bool:
    """Whether two quantities are equal; a C or F is a degree where the reference is in degrees."""
    wanted = read_measure(gold)
    if wanted is None:
        return False
    dimension = dict(wanted[1])
    for letter in "CF":
        if f"°{letter}" in dimension:
            stated = re.sub(rf"(?<=[0-9 ]){letter}\b", f"°{letter}", stated)
    return read_measure(stated) == wanted
