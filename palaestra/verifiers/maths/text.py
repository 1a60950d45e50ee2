"""The text of a mathematical answer: units, lists, work left to be done, and what is copied from
the question.

The process that parses asks the same of the text that math-verify makes of an answer before it
reads it: `$`, `\\!`, quotes and empty `\\text{}` are lost there, and `\\in$t` becomes an integral.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from palaestra.verifiers.answers.amounts import CHANGES, GOING_ON, is_unit
from palaestra.verifiers.answers.final import parse_number, strip_markup
from palaestra.verifiers.answers.numerals import RAISED, SCIENTIFIC, exponent_of, over_fractions
from palaestra.verifiers.answers.units import TEXT_COMMAND, one_spelling

PENDING_OPERATION = re.compile(
    r"\\(?:o?int|i+nt|sum|prod|lim|partial|nabla|[dt]?binom|det|gcd|lcm|bmod|pmod|mod|max|min|arc(?:sin|cos|tan))(?![a-zA-Z])"
    r"|\\(?:sin|cos|tan)\s*\^\s*\{\s*-\s*1\s*\}|[!'’′∫∑∏∂]"
)
SEVERAL_VALUES = re.compile(
    r"\b(?:or|and)\b|\\(?:pm|mp|lor|vee|quad|qquad|cup|neq?|leq?|geq?|approx|sim|cong|equiv|f?box(?:ed)?)(?![a-zA-Z])|[;<>≠≤≥≈±&\n]|\\\\"
)
AND = re.compile(
    r",?(?:\s|\\q?quad(?![a-zA-Z])|\\[,; ])*(?:\\(?:text|mathrm)\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b)"
    r"(?:\s|\\q?quad(?![a-zA-Z])|\\[,; ])*"
)
SET = re.compile(r"\\(?:\{|lbrace)(?!\s*\()[^|:]*,")
GAP = r"(?:\s|~|\\[,;:! ])*"
POWER = r"(?:\s*\^\s*\{?\s*-?[0-9]\s*\}?|[²³])?"
LETTERS = "mm|cm|dm|km|nm|in|ft|yd|mi|ms|sec|min|hrs?|kg|mg|lbs?|oz|mL|ml|kHz|Hz|kPa|Pa|kJ|kW|eV|mol|mph|rad"
PLAIN_UNIT = rf"(?:{LETTERS}){POWER}|(?:{LETTERS}|[msghLNJWVAK]){POWER}(?:\s*/\s*(?:{LETTERS}|[msghLNJWVAK]){POWER})+"
UNIT = re.compile(
    rf"(?:{TEXT_COMMAND}({POWER})|(\^\s*\{{?\s*\\circ\s*\}}?|\\degree|[°$€£])|(?<=[0-9}}]){GAP}({PLAIN_UNIT}))?{GAP}$"
)
RELATIONS = (
    (re.compile(r"<=|≤|⩽|\\leqslant(?![a-zA-Z])|\\leq(?![a-zA-Z])"), r"\\le "),
    (re.compile(r">=|≥|⩾|\\geqslant(?![a-zA-Z])|\\geq(?![a-zA-Z])"), r"\\ge "),
    (re.compile(r"!=|≠|\\neq(?![a-zA-Z])"), r"\\ne "),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"(?<=[,;])\s*\\q?quad(?![a-zA-Z])"), " "),
    (re.compile(r"\\cfrac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|([0-9]+|[A-Za-z]))"), r"\\sqrt{\1\2\3}"),
    (re.compile(r"\\log\s*_\s*(?:e(?![a-zA-Z])|\{\s*(?:\\mathrm\s*\{\s*e\s*\}|e)\s*\})"), r"\\ln "),
    (re.compile(r"\\(?:mathrm|text|operatorname)\s*\{\s*([A-Za-z])\s*\}"), r" \1 "),
)
SIGNS = {
    "∞": r"\infty ", "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "φ": r"\phi ",
    "⟨": "(", "⟩": ")", "∪": r"\cup ", "∈": r"\in ", "ℝ": r"\mathbb{R}",
}  # fmt: skip
PLAIN_NAMES = re.compile(
    r"(?<![\\A-Za-z{])(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|sec|csc|cot|ln|log|exp|pi|infinity)(?![A-Za-z])"
)
PLAIN_ROOT = re.compile(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)")
ROWS = re.compile(r"\s*\[\s*(\[[^\[\]]+\](?:\s*,\s*\[[^\[\]]+\])*)\s*\]\s*")
OUTWARD = re.compile(r"^([^\[\]]*)\]\s*([^\[\],;]+)[,;]([^\[\],;]+)\[$")
MATRIX = re.compile(r"\\begin\{([pb]matrix)\}(.*?)\\end\{\1\}", re.DOTALL)
ROUNDED = re.compile(r"(?<=\S)\s*(?:≈|\\approx(?![a-zA-Z]))\s*[-−]?[0-9][0-9.,]*\s*$")
WHERE = re.compile(
    r"\s*,?\s*(?:where|with|for)\s+\$?[A-Za-z](?:_[0-9])?\$?\s*(?:is|being|\\in|∈)\s+[^.=]{1,60}\.?\s*$"
)
BASIS = re.compile(
    r"\s*([-+−]?)\s*([0-9]+(?:\.[0-9]+)?|\\frac\{[0-9]+\}\{[0-9]+\})?\s*(?:\\(?:math|text)bf\s*\{([ijk])\}|\\(?:hat|vec)\s*\{?\s*\\?([ijk])(?:math)?\s*\}?|([ijk]))"
)
RAISED_DIGITS = re.compile(r"(?<=[A-Za-z0-9)}])[⁻⁺]?[⁰¹²³⁴-⁹]+")
# a < x < b, x < b: one letter between or beside bounds
INEQUALITY = re.compile(
    r"(?:(?P<low>[^<>\\]+(?:\\(?!le(?![a-z])|ge(?![a-z]))[^<>\\]*)*)(?P<lower><|>|\\le(?![a-z])|\\ge(?![a-z])))?\s*(?P<name>[A-Za-z])\s*"
    r"(?:(?P<upper><|>|\\le(?![a-z])|\\ge(?![a-z]))(?P<high>[^<>]+))?"
)
WITHIN = re.compile(
    r"^\s*\|\s*([A-Za-z])\s*\|\s*(<|\\le(?![a-z]))\s*([0-9]+(?:\.[0-9]+)?)\s*$"
)  # |x| < 1
ABOUT_INTERVALS = re.compile(
    r"[<>≤≥]|\\(?:le|ge|leq|geq|lt|gt)(?![a-zA-Z])|\b(?:inequalit|interval|domain)", re.IGNORECASE
)
COORDINATE = re.compile(r"\s*([a-z])\s*=([^=<>,]+)")
TURNED = {">": "<", "\\ge": "\\le"}
INFINITY = "\\infty"
CONSTANT = re.compile(r"\+\s*([CcKkD](?:_\{?[0-9]\}?)?)\s*$")
# a letter with its index and its primes, or the number of its derivatives in brackets
PRIMED = re.compile(
    r"(?<![A-Za-z])([A-Za-z]|\\[a-zA-Z]+)((?:_(?:\{\w+\}|\w))?)"
    r"(?:\^\s*\{?\s*((?:\\prime\s*)+)\}?|(['’′]+)|\^\s*\{\s*\(\s*([0-9])\s*\)\s*\})"
)
ACCENT = re.compile(
    r"\\(?:d?dot|hat|widehat|tilde|widetilde|bar|overline|underline|check|breve)(?![a-zA-Z])"
    r"|\^\s*\{?\s*(?:T|H|\\top|\\intercal|\*|\\ast|\\star|\\dagger)(?![A-Za-z0-9])"  # transposed
    r"|\^\s*\{\s*\(|(?<=[A-Za-z])\s*\^\s*\{?\s*-\s*1\s*\}?\s*\("  # derived n times, inverse
)
NO_BRACES = str.maketrans("", "", "{}")
ENUMERATION = re.compile(r"^(\\?[A-Za-z]+)(?:_\{?[1-9]\}?)?=$")
ENUMERATED = re.compile(r"([A-Za-z])_\{?([1-9])\}?\s*=")
NAMED = re.compile(
    r"\s*(?:\\?[A-Za-z]\w*(?:_\{?\w+\}?)?|\(\s*[A-Za-z](?:\s*,\s*[A-Za-z])+\s*\))\s*(?:=(?!=)|\\in(?![a-zA-Z]))"
)
NO_INK = re.compile(r"\s|\$|~|\\(?:left|right|displaystyle|limits)(?![a-zA-Z])|\\[,;:! ()\[\]]")
WORD = (
    r"(?<![\\A-Za-z{])(?:[A-Za-z]{3,}|is|of|to|in|if|at|by|as|be|it|on|or|we|an|do)(?![A-Za-z({])"
)
PIECE_SEPARATOR = re.compile(rf"\\[()\[\]]|\$+|\n|{WORD}|[?!.;:,](?=\s|$)")
MOST_PIECES = 12


def spell_alike(text: str) -> str:
    """A formula with one spelling of relations, fractions and derivatives: `f''` and `f^{(2)}` are
    one name, and another than `f'` and `f`.
    """
    text = text.replace("″", "''").replace("‴", "'''").replace("′", "'").replace("’", "'")
    text = re.sub(r"(?<=[\w)])\*\*(?=[\w({-])", "^", text)  # x**2
    for sign, name in SIGNS.items():
        text = text.replace(sign, name)
    text = re.sub(r"\\langle(?![a-zA-Z])", "(", re.sub(r"\\rangle(?![a-zA-Z])", ")", text))
    text = PLAIN_ROOT.sub(r"\\sqrt{\1}", text)
    text = PLAIN_NAMES.sub(lambda m: "\\infty " if m[1] == "infinity" else f"\\{m[1]} ", text)
    text = re.sub(r"(?<=[\w)}])\s*\*\s*(?=[\w({\\])", r" \\cdot ", text)  # 2*x
    if ";" in text and "," not in text and re.search(r"[({\[][^;]*;[^;]*[)}\]]", text):
        text = text.replace(";", ",")  # {-3; 3}
    text = OUTWARD.sub(r"\1(\2,\3)", text)  # ]-1, 3[
    text = ROWS.sub(lambda m: matrix_of(m[1]), text)
    if "\\begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)  # escaped twice
    for pattern, name in RELATIONS:
        text = pattern.sub(name, text)
    text = RAISED_DIGITS.sub(lambda m: f"^{{{m[0].translate(RAISED)}}}", over_fractions(text))
    return PRIMED.sub(name_derivative, text)


def matrix_of(rows: str) -> str:
    """[1, 2], [3, 4] as a matrix of LaTeX."""
    lines = [row.replace(",", " & ") for row in re.findall(r"\[([^\[\]]+)\]", rows)]
    return "\\begin{pmatrix}" + r" \\ ".join(lines) + "\\end{pmatrix}"


def as_vector(stated: str, gold: str) -> str:
    """A vector as the point that the reference is: a column or row of LaTeX, [1, 2, 3], 3i - j + 2k;
    any other text as it is.
    """
    shape, parts = bracketed(gold.replace("\\left", "").replace("\\right", "").strip())
    if shape != "()" or len(stated) > 400:
        return stated
    text = stated.strip()
    if match := MATRIX.fullmatch(text):
        rows = [row.split("&") for row in re.split(r"\\\\", match[2]) if row.strip()]
        if len(rows) == 1 or all(len(row) == 1 for row in rows):
            return f"({', '.join(x.strip() for row in rows for x in row)})"
    own, items = bracketed(text)
    if own == "[]" and len(items) == len(parts) >= 3:  # of two, it is an interval
        return f"({text[1:-1]})"
    if len(parts) in (2, 3) and re.search(r"[ijk]", text) and (numbers := along_axes(text)):
        return (
            f"({', '.join(numbers[: len(parts)])})"
            if len(parts) == 3 or numbers[2] == "0"
            else stated
        )
    return stated


def along_axes(text: str) -> list[str] | None:
    """The coordinates of 3i - j + 2k; None of a text that is no such sum, or names an axis twice."""
    at, numbers = 0, dict[str, str]()
    while at < len(text):
        match = BASIS.match(text, at)
        axis = "" if match is None else match[3] or match[4] or match[5]
        if match is None or axis in numbers or (at and not match[1]):
            return None
        numbers[axis] = match[1].replace("−", "-").replace("+", "") + (match[2] or "1")
        at = match.end()
        if not text[at:].strip():
            break
    return [numbers.get(axis, "0") for axis in "ijk"] if numbers else None


def without_remarks(stated: str, gold: str) -> str:
    """A formula without what explains its constant, `where C is a constant`, and without its rounded
    value behind it, `3 + \\pi \\approx 6.14`; as it is where the reference has these.
    """
    if WHERE.search(gold) is None:
        stated = WHERE.sub("", stated)
    if ROUNDED.search(gold) is None and not re.fullmatch(
        r"\s*[A-Za-z]\w*\s*", ROUNDED.sub("", stated)
    ):
        stated = ROUNDED.sub("", stated)
    return stated


def without_membership(stated: str, gold: str) -> str:
    """What a letter lies in, `x \\in (0, 1]`, where the reference does not say it so."""
    match = re.fullmatch(r"\s*[A-Za-z]\s*\\in(?![a-zA-Z])\s*(?=[\[(\\])(.+)", stated, re.DOTALL)
    return stated if match is None or re.search(r"\\in(?![a-z])", gold) else match[1]


def name_derivative(match: re.Match[str]) -> str:
    times = (match[3] or "").count("prime") + len(match[4] or "") + int(match[5] or 0)
    return f"{match[1]}_{{{match[2].strip('_{}')}{9000 + times}}}"


def accents(text: str) -> list[str]:
    """The marks on letters and digits, sorted: the conjugate of z is not z."""
    return sorted("".join(m.group().split()).translate(NO_BRACES) for m in ACCENT.finditer(text))


def strip_units(text: str, known: Collection[str] = ()) -> str:
    """A number without the units behind it and the name before it; 3 \\times 10^8 as 3e8."""
    if text.count("=") == 1:
        text = (
            text.partition("=")[2]
            if re.fullmatch(r"\s*\\?[A-Za-z]\w*\s*(?:\([a-z]\))?\s*", text.partition("=")[0])
            else text
        )
    text = SCIENTIFIC.sub(lambda m: f"{m[1]}e{exponent_of(m)}", text)
    return strip_markup(re.sub(rf"^{GAP}", "", split_units(text, known)[0]))


def split_units(text: str, known: Collection[str] = ()) -> tuple[str, str]:
    """A text without the units behind it, and these, in one spelling: `\\text{ square feet}` is
    ft^2.

    `known` are things of the question, which its answer may count.
    """
    unit_text = ""
    while (
        (unit := UNIT.search(text))
        and unit.group()
        and unit.start()
        and (unit[1] is None or is_unit(words_in(unit[1]), known))
    ):
        text = text[: unit.start()]
        unit_text = (
            one_spelling(
                (unit[1] or "").strip() + (unit[2] or "") + (unit[3] or "") + (unit[4] or "")
            )
            + unit_text
        )
    return text, unit_text


def words_in(text: str) -> list[str]:
    """The words of a unit, in lower case but for single letters, and without powers: square feet, cm^2, m/s."""
    text = re.sub(r"(?<=[A-Za-z])\^?\{?-?[1-3²³]\}?(?![0-9])", "", text)
    words = [w for w in re.split(r"[\s./,·*~-]+", text.strip()) if w]
    return [w if len(w) == 1 else w.casefold() for w in words]  # g is a unit, G is none


def is_idle(words: str, known: Collection[str]) -> bool:
    """Whether the words of a formula say nothing more than a unit, or go on with a sentence."""
    word_list = words_in(words)
    return is_unit(word_list, known) or (
        len(word_list) <= 3 and all(w in GOING_ON and w not in CHANGES for w in word_list)
    )


def outside_brackets(text: str) -> str:
    """The text outside brackets, without the commas of numbers."""
    text = re.sub(
        r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))",
        "",
        text.replace("{,}", "").replace("\\,", "").replace(",\\!", ""),
    )
    depth, outside = 0, ""
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        outside += c if depth <= 0 else ""
    return outside


def is_listing(text: str) -> bool:
    """Whether a text is several values: 1,2 or \\{1,2\\} or `1 and 2`."""
    return (
        "," in outside_brackets(text)
        or SET.match(text.replace("\\left", "").strip()) is not None
        or len(items_in(text)) > 1
        or bool(AND.search(text))
    )


def is_pair(text: str) -> bool:
    """(1,2), in which the order matters."""
    text = text.replace("\\left", "").strip()
    return text.startswith("(") and "," in text and "," not in outside_brackets(text)


def is_loose(stated: str, gold: str, known: Collection[str] = ()) -> bool:
    """Whether an answer is of a kind that can equal the reference without answering: undone,
    several, a set for a pair.
    """
    looks = (
        PENDING_OPERATION.search,
        SEVERAL_VALUES.search,
        lambda text: any(not is_idle(words, known) for words in re.findall(TEXT_COMMAND, text)),
    )
    if any(look(stated) and not look(gold) for look in looks) or (
        "," in outside_brackets(stated) and not is_listing(gold)
    ):
        return True
    if stated.count("'") != gold.count("'") or accents(stated) != accents(gold):
        return True
    return bool((SET.search(stated) and is_pair(gold)) or (SET.search(gold) and is_pair(stated)))


def as_interval(stated: str, gold: str, prompt: str = "") -> str:
    """An inequality in one letter as the interval that it is, where the reference is certainly an
    interval: (0, 1) may be a point, unless the question is about an inequality or an interval.
    """
    shape, parts = bracketed(gold.replace("\\left", "").replace("\\right", "").strip())
    stated = WITHIN.sub(r"-\3 \2 \1 \2 \3", stated)
    certain = "[" in shape or "]" in shape or "infty" in gold or ABOUT_INTERVALS.search(prompt)
    readable = certain and len(parts) == 2 and len(stated) <= 200
    match = INEQUALITY.fullmatch(stated.strip()) if readable else None
    if match is None or not (match["low"] or match["high"]):
        return stated
    low, lower, upper, high = (match[k] for k in ("low", "lower", "upper", "high"))
    if {lower, upper} & {">", "\\ge"}:  # a > x is x < a
        if {lower, upper} & {"<", "\\le"}:
            return stated
        low, lower, upper, high = high, TURNED.get(upper), TURNED.get(lower), low
    opened = "[" if lower == "\\le" else "("
    closed = "]" if upper == "\\le" else ")"
    return f"{opened}{(low or '-' + INFINITY).strip()},{(high or INFINITY).strip()}{closed}"


def as_point(stated: str, gold: str) -> str:
    """Coordinates that are named in their order (`x = 3, y = 4`) as the point that they are, where
    the reference is one; any other text as it is.
    """
    shape, parts = bracketed(gold.replace("\\left", "").replace("\\right", "").strip())
    if shape != "()" or "," not in stated or len(stated) > 200:
        return stated
    matches = [COORDINATE.fullmatch(part) for part in split_commas(AND.sub(",", stated)) if part]
    named = "".join(m[1] for m in matches if m)
    if (
        len(named) != len(parts)
        or len(matches) != len(parts)
        or named not in ("xy", "xyz", "ab", "abc")
    ):
        return stated
    return f"({', '.join(m[2].strip() for m in matches if m)})"


def name_constants(stated: str, gold: str) -> str:
    """An answer whose free constant, + c at its end, has the name of the reference's."""
    own, theirs = CONSTANT.search(gold), CONSTANT.search(stated)
    if (
        own is None
        or theirs is None
        or theirs[1][0] in re.sub(r"\\[a-zA-Z]+", "", stated[: theirs.start()])
    ):
        return stated
    return stated[: theirs.start(1)] + own[1] + stated[theirs.end(1) :]


def expand_signs(text: str) -> str:
    """Both values of a text with one \\pm, as a listing; any other text as it is."""
    if len(re.findall(r"\\pm(?![a-zA-Z])|±", text)) != 1 or "," in outside_brackets(text):
        return text
    return ",".join(re.sub(r"\\pm(?![a-zA-Z])|±", sign, text) for sign in ("+", "-"))


def items_in(text: str) -> list[str]:
    """The values of a listing, or the one value: what commas outside brackets separate."""
    text = AND.sub(",", text).replace("\\left", "").replace("\\right", "").strip()
    text = text.replace("\\lbrace", "\\{").replace("\\rbrace", "\\}")
    if is_set(text):
        text = text[2:-2]
    elif text[:1] + text[-1:] == "{}" and "{" not in text[1:-1]:
        text = text[1:-1]
    if ";" in outside_brackets(text) and "," not in outside_brackets(text):
        text = text.replace(";", ",")
    return [item for item in split_commas(text) if item]


def is_set(text: str) -> bool:
    """Whether a text is in \\{ and \\} that belong together."""
    depth = 0
    for brace in re.finditer(r"\\[{}]", text):
        depth += 1 if brace.group() == "\\{" else -1
        if depth == 0:
            return text.startswith("\\{") and brace.end() == len(text)
    return False


def split_commas(text: str) -> list[str]:
    text = re.sub(r",\\! *|\{,\}|\\,", "", text)
    depth, parts = 0, [""]
    for at, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        number = re.match(r"[0-9]{3}(?![0-9])", text[at + 1 :]) and text[at - 1 : at].isdigit()
        if c == "," and depth <= 0 and not number:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts]


def bracketed(text: str) -> tuple[str, list[str]]:
    """Of (a, b) or [a, b) the brackets and what commas separate within; none of another text."""
    if len(text) < 3 or text[0] not in "([" or text[-1] not in ")]":
        return "", []
    depth = 0
    for at, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if depth == 0 and at < len(text) - 1:
            return "", []
    parts = split_commas(text[1:-1])
    if len(parts) == 1:
        parts = [part.strip() for part in parts[0].split(";")]
    return (text[0] + text[-1], parts) if len(parts) > 1 else ("", [])


def unname_items(stated_items: list[str], gold: list[str]) -> tuple[list[str], list[str]]:
    """Values without the names that only one side gives: x = 1, x = 2 are 1, 2, and x_1 = 1, x_2 = 2
    too. Where both sides give names, these count.
    """
    named = [[NAMED.match(item) is not None for item in items] for items in (stated_items, gold)]
    letters = [
        {ENUMERATION.sub(r"\1", lhs(x)) for x in items} - {""} for items in (stated_items, gold)
    ]
    if (
        len(gold) > 1
        and len(letters[1]) == 1
        and letters[0] == letters[1] == {lhs(x)[:-1] for x in gold}
    ):
        return [NAMED.sub("", x, count=1).strip() for x in stated_items], [
            NAMED.sub("", x, count=1).strip() for x in gold
        ]  # x = 3, -2
    bare = lambda items: [NAMED.sub("", item, count=1).strip() for item in items]
    if any(named[0]) and not any(named[1]) and len(letters[0]) <= 1:
        return bare(stated_items), gold
    labels = [ENUMERATED.match(item) for item in gold]
    numbered = [(m[1], int(m[2])) for m in labels if m]
    roots = numbered == [(numbered[0][0], i + 1) for i in range(len(gold))] if numbered else False
    turned = any("=" in item for item in stated_items)  # 2x + 3 = y
    if not any(named[0]) and not turned and (roots or len({lhs(x) for x in gold} - {""}) == 1):
        return stated_items, bare(gold)
    return stated_items, gold


def lhs(item: str) -> str:
    """The name in front of a value, without spaces; "" = none."""
    match = NAMED.match(item)
    return "" if match is None else "".join(match.group().split())


def squeeze(text: str) -> str:
    """A text without what leaves no ink, or only shapes it."""
    return NO_INK.sub("", re.sub(r"\\[dtc]frac", r"\\frac", text.casefold()))


def pieces(prompt: str) -> list[str]:
    """The expressions of a question: what stands between its words and marks; of an equation also
    the right-hand side.
    """
    texts = dict[str, None]()
    for piece in PIECE_SEPARATOR.split(prompt[-4000:]):
        for part in (piece, piece[piece.rfind("=") + 1 :]):
            text = part.strip()
            if (
                3 <= len(text) <= 200
                and re.search(r"[-+*/^\\=<>(]", text)
                and parse_number(strip_markup(text)) is None
            ):
                texts[text] = None
    return list(texts)[:MOST_PIECES]
