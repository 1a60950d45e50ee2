"""Answers of a kind that is written in several ways: times of day, dates, ranges and scores,
quantities, amounts of money.

The reference says which kind is looked for. A reply states it if the one sentence that states its
answer holds exactly one value of that kind and no other digits, and nothing in the sentence denies,
doubts or limits it. What `final` reads is not touched: this only reads more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from palaestra.verifiers.answers.amounts import (
    CHANGES,
    GOING_ON,
    SCALES,
    bare,
    is_plural,
    is_unit,
    sign_before,
    word_set,
    words_of,
)
from palaestra.verifiers.answers.measures import halves, read_measure, read_unit, same_measure
from palaestra.verifiers.answers.notation import MONTH, MONTHS
from palaestra.verifiers.answers.numerals import ONES, join_numbers, parse_number
from palaestra.verifiers.answers.plain_replies import (
    LONGEST_STATED,
    is_foreign,
)
from palaestra.verifiers.answers.statement import UNCERTAIN, concluding_sentence, plain_sentence
from palaestra.verifiers.answers.withdrawal import is_rejected, is_withdrawn

DIGITS = r"[0-9][0-9,]*(?:\.[0-9]+)?"
EMPHASIS = re.compile(r"(?<!\w)(\*\*|__|\*|`)(?=\S)(.{1,200}?)(?<=\S)\1(?!\w)")
HOURS = {word: str(n) for n, word in enumerate(ONES[:13]) if n}
CLOCK = re.compile(
    r"(?<![0-9:.,/-])([0-2]?[0-9]):([0-5][0-9])(?::00)?(?:[\s~]*([ap])\.?\s?m\b\.?)?(?![0-9:/-])",
    re.IGNORECASE,
)
YEAR = r"([0-9]{4})"
DAY = r"([0-3]?[0-9])(?:st|nd|rd|th)?"
DATES = (
    (
        re.compile(
            rf"(?<![\w.])(?:the\s+)?{DAY}(?:\s+of|\.)?\s+{MONTH}(?:,?\s+{YEAR})?(?!\w)",
            re.IGNORECASE,
        ),
        "dmy",
    ),
    (
        re.compile(rf"(?<![\w.]){MONTH}\s+(?:the\s+)?{DAY}(?:,?\s+{YEAR})?(?!\w)", re.IGNORECASE),
        "mdy",
    ),
    (re.compile(rf"(?<![\w./-]){YEAR}[-/.]([01]?[0-9])[-/.]([0-3]?[0-9])(?![\w/-])"), "ymd"),
    (re.compile(rf"(?<![\w./-])([0-3]?[0-9])[./-]([0-3]?[0-9])[./-]{YEAR}(?![\w/-])"), "either"),
)
END = (
    rf"(?P<low>{DIGITS})(?P<left>\s?%)?\s*(?:[-–—−:]|\b(?:to|until|till|through|thru|bis|a|à)\b)"
    rf"\s*(?P<high>{DIGITS})(?P<right>\s?%)?"
)
RANGE = re.compile(
    rf"(?<![\w.,:/^*+=-])(?:\bfrom\s+|\bbetween\s+)?{END}(?![\w:/^*=-]|[.,][0-9])", re.IGNORECASE
)
BETWEEN = re.compile(
    rf"\bbetween\s+(?P<low>{DIGITS})(?P<left>\s?%)?\s+and\s+(?P<high>{DIGITS})(?P<right>\s?%)?(?![\w:/^*=-]|[.,][0-9])",
    re.IGNORECASE,
)
LIFE = re.compile(
    rf"\b(?:born|began|begins|begun|started|starts|lasted from)\b[^0-9]{{1,40}}(?P<low>{DIGITS})[^0-9]{{1,60}}"
    rf"\b(?:died|ended|ends|finished|finishes|over)\b[^0-9]{{1,40}}(?P<high>{DIGITS})(?![\w.,][0-9])",
    re.IGNORECASE,
)
CURRENCIES = {
    "$": r"(?:US\s?\$|\$|\bUSD\b|\b(?:US )?dollars?\b|\bbucks?\b)", "€": r"(?:€|\bEUR\b|\beuros?\b)",
    "£": r"(?:£|\bGBP\b|\bpounds?(?: sterling)?\b|\bquid\b)", "¥": r"(?:¥|\bJPY\b|\byen\b)",
    "₹": r"(?:₹|\bINR\b|\brupees?\b)",
}  # fmt: skip
MONEY_SCALE = {"k": 10**3, "m": 10**6, "mn": 10**6, "mio": 10**6, "bn": 10**9, "b": 10**9, **SCALES}
LOSES = r"(?:loss(?:es)?|lost|deficit|decreas\w*|drop\w*|fell|fall\w*|declin\w*|reduc\w*|shrank|shrunk|down|shortfall|overdrawn)"
GAINS = r"(?:profit\w*|gain\w*|surplus|increas\w*|rise[ns]?|rose|grew|grow\w*|growth|up)"
# behind a value that stays as it is
FOLLOWS = GOING_ON - word_set(
    "more too and extra different short over away apart again"
) | word_set("of with under between above")
HARDLY = word_set("hardly barely nearly only partly roughly early likely possibly approximately")
# in other languages, in front of a number that is not meant itself
LIMITS = re.compile(
    r"\b(?:vor|nach|bis|seit|über|unter|fast|mehr als|weniger als|avant|après|depuis|plus d[e']|moins d[e']|presque"
    r"|antes de|después de|más de|menos de|casi|prima del?|dopo il?|più di|meno di|quasi)\s*(?:dem |l['’]an |el año )?$",
    re.IGNORECASE,
)
PERIOD = re.compile(
    r"\b(?:an?|per|each|every)\s+(second|minute|hour|day|week|month|year)\b|\b(hour|dai|week|month|year)ly\b",
    re.IGNORECASE,
)
OPPOSITES = (
    (LOSES, GAINS),
    (r"(?:beg[aiu]n\w*|start\w*|open\w*)", r"(?:end(?:s|ed|ing)?|finish\w*|clos(?:e|es|ed|ing))"),
    (r"born", r"died?"), (r"(?:arriv\w*)", r"(?:depart\w*|leaves?|left)"),
    (r"minimum|lowest|least|smallest", r"maximum|highest|most|largest"),
)  # fmt: skip
NEVER_BEFORE = frozenset(
    [
        "before",
        "after",
        "by",
        "since",
        "until",
        "till",
        "near",
        "above",
        "below",
        "over",
        "under",
        "past",
        "beyond",
        "exceeding",
        "exceeds",
        "around",
        "approximately",
    ]
)
DENIALS = re.compile(
    r"\b(?:nicht|kein\w*|nie|niemals|oder|sondern|pas|jamais|nunca|jamás|sino|tampoco|não|nem|mai|sauf|außer|aber|peut-être"
    r"|vielleicht|quizás?|tal vez|forse|no (?:es|fue|era|son|está)|non è|non|ni|ou|o bien|pero|mais)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Value:
    """A value in a sentence: where it stands, and its key, equal for equal values."""

    start: int
    end: int
    key: tuple[object, ...]


def states_value(text: str, gold: str, prompt: str = "") -> bool:
    """Whether a statement gives the value of a reference of one of the kinds that are read here.

    Args:
        text: what a reply states, or the whole reply, without its thinking.
        gold: the reference, without markup.
        prompt: the question, whose words say what is asked for.
    """
    read = kind_of(gold)
    text = halves(below_zero(re.sub(r"\\[,;:! ]|~", " ", text.strip())))
    text = re.sub(
        r"\b([a-z]+)\s+([0-9]+)\s+(to|and|until|through)\s+\1\s+(?=[0-9])", r"\1 \2 \3 ", text
    )
    if read is None or not text or len(text) > LONGEST_STATED or is_withdrawn(text, 1):
        return False
    (wanted,) = read(gold)
    lone = read(text)  # nothing but the value, also with full stops inside: 9.30 a.m.
    if (
        len(lone) == 1
        and lone[0].key == wanted.key
        and not re.search(r"\w", outside(text, lone[0]))
    ):
        return True
    sentence = concluding_sentence(plain_emphasis(text), gold)
    if sentence is None:
        return False
    sentence = plain_sentence(sentence, gold)
    if contradicts(sentence, prompt):
        return False
    values = read(sentence)
    if not values or {value.key for value in values} != {wanted.key}:
        return False
    rest = sentence
    for value in reversed(values):
        rest = rest[: value.start] + " \0 " + rest[value.end :]
    rest = re.sub(r"[0-9][0-9.,]*", lambda m: "" if m[0].rstrip(".,") in prompt else m[0], rest)
    if re.search(r"[0-9?<>≠≤≥]|\bor\b", rest) or UNCERTAIN.search(rest) or DENIALS.search(rest):
        return False
    before, behind = rest.split("\0")[0].split(), rest.split("\0")[-1].strip()
    last = bare(before[-1]) if before else ""
    limited = last in NEVER_BEFORE and re.search(rf"\b{last}\b", prompt, re.IGNORECASE) is None
    return not limited and leaves_alone(behind, prompt)


def outside(text: str, value: Value) -> str:
    return text[: value.start] + text[value.end :]


def plain_emphasis(text: str) -> str:
    """A text without the marks of emphasis around its words."""
    return EMPHASIS.sub(r"\2", text)


def leaves_alone(behind: str, prompt: str) -> bool:
    """Whether the words behind a value leave it as it is: a unit, a thing of the question, or the
    rest of the sentence.
    """
    words = [bare(word) for word in behind.split()]
    words = [word for word in words if word]
    if is_rejected(behind) or (words and words[0] in SCALES):
        return False
    if not words or behind[0] in ".,;:!)—–(":
        return CHANGES.isdisjoint(words[:2]) or words[:1] == ["to"]
    first = words[0]
    known = first in FOLLOWS or is_unit([first], words_of(prompt))
    known = known or is_plural(first) or read_unit(re.split(r"[.,;!(]", behind)[0]) is not None
    manner = first.endswith("ly") and first not in HARDLY and first not in CHANGES
    known = known or manner  # 500 mg orally
    above_sea = behind.casefold().startswith("above sea level")
    return above_sea or (known and first not in CHANGES and CHANGES.isdisjoint(words[1:2]))


def contradicts(sentence: str, prompt: str) -> bool:
    """Whether a sentence speaks of the opposite of what the question asks for: a loss, where it asks
    for the profit.
    """
    if not prompt or len(sentence) > LONGEST_STATED or len(prompt) > 20_000:
        return False
    periods = [
        {
            "day" if (m[1] or m[2]).lower() == "dai" else (m[1] or m[2]).lower()
            for m in PERIOD.finditer(text)
        }
        for text in (prompt, sentence)
    ]
    if periods[0] and periods[1] and periods[0].isdisjoint(periods[1]):
        return True  # a day, where it asks for a week
    if in_another_unit(sentence, prompt):
        return True
    names = lambda pattern, text: re.search(rf"\b(?:{pattern})\b", text, re.IGNORECASE) is not None
    for pair in OPPOSITES:
        for asked, stated in (pair, pair[::-1]):
            one_sided = names(asked, prompt) and not names(stated, prompt)
            if one_sided and names(stated, sentence) and not names(asked, sentence):
                return True
    return False


def in_another_unit(sentence: str, prompt: str) -> bool:
    """Whether a sentence gives its one number in another unit than the one that the question names."""
    asked = [read_unit(m[1]) for m in ASKED_IN.finditer(prompt)]
    numbers = list(re.finditer(r"[0-9][0-9.,]*", sentence))
    if len(asked) != 1 or asked[0] is None or len(numbers) != 1:
        return False
    words = re.split(r"[.,;!?)]", sentence[numbers[0].end() :])[0].split()[:3]
    units = [read_unit(" ".join(words[:n])) for n in range(len(words), 0, -1)]
    given = next((unit for unit in units if unit is not None), None)
    return given is not None and given != asked[0]


ASKED_IN = re.compile(r"\bin ([a-z]{4,}(?: (?:per [a-z]+|years?|squared))?)\b")
Reader = Callable[[str], Sequence[Value]]


def kind_of(gold: str) -> Reader | None:
    """What reads the values of the kind that a reference is of; None where it is of none of them."""
    if len(gold) > 80:
        return None
    for reader in (times_in, dates_in, ranges_in, quantities_of(gold), money_of(gold)):
        if reader is ranges_in and ":" in gold:  # a ratio
            continue
        values = [] if reader is None else list(reader(gold))
        if (
            reader is not None
            and len(values) == 1
            and not re.search(r"\w", outside(gold, values[0]))
        ):
            return reader
    return None


def times_in(text: str) -> list[Value]:
    """The times of day in a text, in minutes: those with am or pm, or on a clock of 24 hours."""
    values, spoken = list[Value](), spoken_times(text)
    for match in CLOCK.finditer(spoken):
        hour, half = int(match[1]), (match[3] or "").lower()
        if hour > 23 or (half and not 1 <= hour <= 12):
            continue
        sure = half or (len(match[1]) == 2 and (match[1][0] == "0" or hour > 12))
        hour = hour % 12 + 12 * (half == "p") if half else hour
        key = ("time", hour, int(match[2])) if sure else ("time of a half day", hour, int(match[2]))
        values.append(Value(*match.span(), key))
    # places in the text itself do not matter where spelling has changed them: all of it is read anew
    return (
        values
        if spoken == text
        else [Value(0, len(text), v.key) for v in values if is_spoken_alone(spoken, values)]
    )


def is_spoken_alone(spoken: str, values: Sequence[Value]) -> bool:
    """Whether a sentence with a time in words says nothing else that counts."""
    if len(values) != 1:
        return True
    rest = outside(spoken, values[0])
    words = [bare(w) for w in spoken[: values[0].start].split()]
    return not (
        re.search(r"[0-9?<>]", rest)
        or UNCERTAIN.search(rest)
        or DENIALS.search(rest)
        or (words and words[-1] in NEVER_BEFORE)
    )


def spoken_times(text: str) -> str:
    """A text with its times as 9:30 pm: half past nine in the evening, 21h30, 9.30 p.m., noon."""
    hour = rf"({'|'.join(HOURS)}|1?[0-9])"

    def number(word: str) -> str:
        return HOURS.get(word.casefold(), word)

    text = re.sub(
        rf"\bhalf past {hour}\b", lambda m: f"{number(m[1])}:30", text, flags=re.IGNORECASE
    )
    text = re.sub(
        rf"\b(?:a )?quarter past {hour}\b",
        lambda m: f"{number(m[1])}:15",
        text,
        flags=re.IGNORECASE,
    )
    text = re.sub(
        rf"\b(?:a )?quarter to {hour}\b",
        lambda m: f"{(int(number(m[1])) - 2) % 12 + 1}:45",
        text,
        flags=re.IGNORECASE,
    )
    text = re.sub(
        rf"\b{hour} o['’]clock\b", lambda m: f"{number(m[1])}:00", text, flags=re.IGNORECASE
    )
    text = re.sub(
        r"(?<![0-9.,:])([0-2]?[0-9])\s?h\s?([0-5][0-9])(?![0-9])",
        lambda m: f"{int(m[1]):02}:{m[2]}",
        text,
    )
    text = re.sub(
        r"(?<![0-9.,:])([0-2]?[0-9])\.([0-5][0-9])(?=\s?[ap]\.?\s?m\b)",
        r"\1:\2",
        text,
        flags=re.IGNORECASE,
    )
    text = re.sub(
        r"(?<![0-9.,:])(1?[0-9])(?=\s?[ap]\.?\s?m\b)", r"\1:00", text, flags=re.IGNORECASE
    )
    text = re.sub(r"(?<=:[0-5][0-9]),? in the morning\b", " am", text, flags=re.IGNORECASE)
    return re.sub(
        r"(?<=:[0-5][0-9]),? in the (?:afternoon|evening)\b", " pm", text, flags=re.IGNORECASE
    )


def dates_in(text: str) -> list[Value]:
    """The days in a text; one in digits only where they can be read in one way."""
    values, months = list[Value](), [month[:3] for month in MONTHS]
    for pattern, order in DATES:
        for match in pattern.finditer(text):
            if any(v.start < match.end() and match.start() < v.end for v in values):
                continue
            if order in ("dmy", "mdy"):
                day, month = (1, 2) if order == "dmy" else (2, 1)
                key = (
                    int(match[3] or 0),
                    months.index(match[month][:3].lower()) + 1,
                    int(match[day]),
                )
            elif order == "ymd":
                key = (int(match[1]), int(match[2]), int(match[3]))
            else:
                first, second = int(match[1]), int(match[2])
                if "." not in match[0] and first <= 12 and second <= 12 and first != second:
                    continue
                day, month = (
                    (second, first) if second > 12 and "." not in match[0] else (first, second)
                )
                key = (int(match[3]), month, day)
            if 1 <= key[1] <= 12 and 1 <= key[2] <= 31:
                values.append(Value(*match.span(), ("date", *key)))
    return values


def ranges_in(text: str) -> list[Value]:
    """The ranges and scores in a text: two numbers in order, `3-6`, `from 3 to 6`, `3:1`."""
    values = list[Value]()
    for pattern in (BETWEEN, RANGE, LIFE):
        for match in pattern.finditer(text):
            low, high = parse_number(match["low"]), parse_number(match["high"])
            taken = any(v.start < match.end() and match.start() < v.end for v in values)
            if taken or low is None or high is None or re.fullmatch(r"0[0-9]", match["low"]):
                continue
            percent = pattern is not LIFE and match["right"] is not None
            if pattern is not LIFE and match["left"] is not None and not percent:
                continue
            values.append(Value(*match.span(), ("range", low[0], high[0], percent)))
    return sorted(values, key=lambda value: value.start)


def quantities_of(gold: str) -> Reader | None:
    """What reads quantities in the unit of a reference, or in another of its dimension."""
    wanted = read_measure(gold)
    if wanted is None:
        return None

    def read(text: str) -> list[Value]:
        if text == gold:
            return [Value(0, len(gold), ("quantity",))]
        start = re.search(r"[0-9½¼¾]", text)
        if start is None:
            return []
        at = start.start()
        words = text[:at].split()
        attached = re.search(r"[-−–]\s?$", text[:at])
        words = (
            [*words[:-1], words[-1].rstrip("-−–")]
            if attached and words and words[-1].rstrip("-−–")
            else words
        )
        sign = sign_before(words[-8:]) if words else ""
        if sign is None:
            return []
        sign = "-" if attached else sign
        ends = [m.start() for m in re.finditer(r"(?=[\s,.;:)(!]|$)", text[at:]) if m.start()]
        for end in sorted({*ends[:14]}, reverse=True):
            body = text[at : at + end]
            if same_measure(sign + body, gold):
                return [Value(max(0, at - (1 if attached else 0)), at + end, ("quantity",))]
            if read_measure(body) is not None:
                return [Value(at, at + end, ("quantity", body))]
        return []

    return read


def below_zero(text: str) -> str:
    """A text with its temperatures below zero as negative ones."""
    return re.sub(
        r"\b([0-9]+(?:\.[0-9]+)?)\s*(?:°|degrees?)?\s*(celsius|fahrenheit|C|F)?\s*below (?:zero|freezing)"
        r"(?:\s*\(?(celsius|fahrenheit|C|F)\b\)?)?",
        lambda m: f"-{m[1]} °{(m[2] or m[3] or ' ')[0].upper()}".strip(),
        text,
        flags=re.IGNORECASE,
    )


def money_of(gold: str) -> Reader | None:
    """What reads amounts in the currency of a reference."""
    named = [sign for sign, names in CURRENCIES.items() if re.search(names, gold, re.IGNORECASE)]
    if len(named) != 1 or not re.search("[0-9]", gold):
        return None
    mark = CURRENCIES[named[0]]
    scale = rf"\s?(?P<scale>(?:{'|'.join(sorted(MONEY_SCALE, key=len, reverse=True))})\b)?"
    sign = r"(?P<sign>[-−–]\s?|\bminus\s+|\bnegative\s+)?"
    amount = re.compile(
        rf"{sign}(?P<front>{mark}\s?)?(?P<inner>[-−–])?(?<![0-9.,])(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)(?![0-9]){scale}"
        rf"(?P<back>\s?{mark})?(?P<cents>(?:\s+and|,)?\s+[0-9]{{1,2}} (?:cents?|pence)\b)?",
        re.IGNORECASE,
    )

    def read(text: str) -> list[Value]:
        values = list[Value]()
        for match in amount.finditer(join_numbers(text) if text == gold else text):
            number = match["number"]
            if named[0] == "€" and re.fullmatch(r"[0-9]{1,3}(?:\.[0-9]{3})+", number):
                number = number.replace(".", "")  # no amount has three digits of cents
            value = parse_number(number)
            if value is None or (match["front"] is None and match["back"] is None):
                continue
            total = value[0] * MONEY_SCALE.get((match["scale"] or "").lower(), 1)
            if match["cents"]:
                total += Fraction(int(re.sub(r"\D", "", match["cents"])), 100)
            negative = bool(match["sign"]) != bool(match["inner"])
            bracketed = text[: match.start()].endswith("(") and text[match.end() :].startswith(")")
            alone = not re.search(r"\w", text[: match.start()] + text[match.end() :])
            if not negative and bracketed and alone:  # as bookkeepers write it
                negative = True
            if not negative and re.search(rf"\b{LOSES}\b", text, re.IGNORECASE):
                negative = True
            values.append(Value(*match.span(), ("money", -total if negative else total)))
        return values

    return read


def denies_abroad(text: str, prompt: str) -> bool:
    """Whether a line in another language denies what it says: `No fue en 1939.`"""
    if not is_foreign(prompt):
        return False
    before = re.sub(r"[0-9][0-9.,]*\D*$", "", text)
    return DENIALS.search(before) is not None or LIMITS.search(before) is not None


def dated_otherwise(text: str, prompt: str) -> bool:
    """Whether a line with two years gives the one that it ends with to something else than the question
    asks for: `published in 1850, written in 1847`.
    """
    if not re.match(r"\s*(?:when|(?:in )?(?:which|what) year)\b", prompt, re.IGNORECASE):
        return False
    clauses = [
        c for c in re.split(r"[,;]|\band\b|\bbut\b", text) if re.search(r"\b[0-9]{3,4}\b", c)
    ]
    words = {
        w
        for w in re.findall(r"[a-z]{4,}", prompt.casefold())
        if w.endswith(("ed", "en", "wn", "lt"))
    }
    held = [any(re.search(rf"\b{w}\b", c, re.IGNORECASE) for w in words) for c in clauses]
    return len(clauses) > 1 and any(held[:-1]) and not held[-1]


def turned_sign(text: str, prompt: str) -> str | None:
    """A reply with its one number negative, where it says that something fell and the question only
    asks for the change; None where it does not.
    """
    if (
        not prompt
        or re.search(rf"\b{LOSES}\b", prompt, re.IGNORECASE)
        or re.search(r"[-−–]\s?[$€£]?[0-9]|minus|negative", text)
    ):
        return None
    if not re.search(rf"\b{LOSES}\b", text, re.IGNORECASE) or re.search(
        rf"\b{GAINS}\b", text, re.IGNORECASE
    ):
        return None
    numbers = re.findall(r"[0-9][0-9.,]*", text)
    text = re.sub(
        rf"(?<=[0-9%])\s+{LOSES}(?=[\s.!]*$)", "", text, flags=re.IGNORECASE
    )  # a 15% decrease
    return re.sub(r"(?=[$€£]?[0-9])", "-", text, count=1) if len(numbers) == 1 else None
