"""Which final answer a response gives, and whether it is the gold one.

To accept what is wrong is worse than to refuse what is right: a policy finds what is accepted and
learns to write it. So one answer counts, the last, and where several stand side by side none does.
Out of reach are an answer inside a negation in words ("I would never say 7") and a list in
sentences ("It is 6. It is 7."), of which the last counts. All of it takes time linear in the length
of the response.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from palaestra.verifiers.answers.amounts import (
    BEFORE,
    LINKS,
    PERCENT,
    SCALES,
    SIZES,
    amount_at,
    bare,
    words_of,
)
from palaestra.verifiers.answers.notation import plain_decimal, read_notation, text_key
from palaestra.verifiers.base import strip_thinking

MARKS = ' \t\r\n*`"$“”'  # quotes, emphasis and mathematics around an answer
QUOTES = (("'", "'"), ("‘", "’"))  # taken off in pairs: f' is not f
SPACES = r"(?:\\(?:q?quad|displaystyle)(?![a-zA-Z])|\\[,;:! ]|~|\s)"
SIZED = re.compile(r"\\{1,2}(?:left|right)(?=\s*[()\[\]])")
GAPS_AROUND = re.compile(rf"^{SPACES}+|{SPACES}+$")
WRAPS = (
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("(", ")"),
    ("\\text{", "}"),
    ("\\mathrm{", "}"),
    ("\\textbf{", "}"),
    ("\\textnormal{", "}"),
    ("\\mathbf{", "}"),
    ("\\boldsymbol{", "}"),
)
MARKER = re.compile(
    r"\banswer\b[*_ \t]{0,4}(?:is\b|are\b|[:=])|^####(?!#)", re.IGNORECASE | re.MULTILINE
)
WHOLE = r"(?:0|[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]*)"  # no leading zeros: 007 is a name
NUMBER = re.compile(rf"[-+]?(?:{WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,3}})?")
# 3\frac{1}{2} is mixed: 7/2
LATEX_FRACTION = re.compile(r"([-+]?)([1-9][0-9]*|) *\\[dtc]?frac *\{([^{}]*)\} *\{([^{}]*)\}")
# \frac12, \frac1{2}, \frac{1}2
SHORT_FRACTION = re.compile(r"\\[dtc]?frac *(?:\{([0-9]+)\}|([0-9])) *(?:\{([0-9]+)\}|([0-9]))")
REPEATING = re.compile(
    r"([-+]?)(0|[1-9][0-9]*|)\.([0-9]*)\\(?:overline|bar|dot) *\{?([0-9]{1,20})\}?"
)
DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+(?:,|\{,\})[0-9]+")
IN_TEXT = r"(?:\\[,;:! ]|~|\s)*(?:\\(?:text|mathrm|textnormal)\s*\{{\s*({0})\s*\}}|\s({0}))$"
SPOKEN_PERCENT = re.compile(IN_TEXT.format(PERCENT), re.IGNORECASE)
SPOKEN_SCALE = re.compile(IN_TEXT.format("|".join(SCALES)), re.IGNORECASE)
SPOKEN_SIGN = re.compile(r"^(?:minus|negative)\s+(?=[0-9.$€£])", re.IGNORECASE)
TOUCHES_BEFORE = re.compile(
    r"(?:[0-9*/^_]|\\(?:cdot|times|div|pm|mp|sqrt)|\}\s*\{|\\(?:[dtc]?frac|sqrt)(?:\[\w+\])?\s*\{?)\s*\$?\s*$"
)
TOUCHES_BEHIND = re.compile(
    r"(?:[0-9A-Za-z]*[0-9]|\.[0-9]|\}?\s*[\^_/*+]|\s*(?:\\(?:cdot|times|div|pm|mp|frac|sqrt)|-\s*[0-9\\])|\}\s*\{"
    rf"|[\s$]*(?:{'|'.join(sorted(SIZES - {*SCALES, 'percent', 'pct'}))})\b)",
    re.IGNORECASE,
)
WORDS_IN_MATHS = re.compile(r"(?:\\[,;:! ]|~)*\\(?:text|mathrm)\s*\{([^{}]*)\}")
BOX = re.compile(r"\\boxed *\{|[{}]")
BETWEEN_BOXES = re.compile(
    r"(?:\s|\$|&|,|;|\.(?=\s*\$)|\\[()\[\],;:! ]|\\q?quad|\\\\|\\(?:text|mathrm)\s*\{\s*(?:and|or)\s*\}"
    r"|\b(?:and|or)\b|[A-Za-z](?:_\{?\w+\}?)?\s*=)*"
)
BEHIND_BOX = re.compile(
    rf"[\s$]*(\\?%|(?:{PERCENT})(?!\s+points?)|(?:{'|'.join(SCALES)})(?!\w))", re.IGNORECASE
)
ALTERNATIVES = re.compile(r"\b(?:or|and)\b|[;,]\s|[<>≠≤≥]|!=")
LONGEST = 1000  # characters of a number, of a statement, of what is read of a line
# no result stands beside one of these
JOINTS = frozenset([*"+-*/x·×÷^,;|&", "or", "and", "to", "\\cdot", "\\times"])
OPTION = re.compile(r"[A-H]")
VERDICT = re.compile(r"\[\[([^\[\]\n]{1,40})\]\]")
REFUSALS = frozenset([*"<>≠≤≥", "<=", ">=", "!=", "not", "never", "isn't", "no"])


def is_right_answer(response: str, gold: str, prompt: str = "") -> bool:
    """Whether the final answer of the response is the gold one."""
    found = extract_answer(response, gold, prompt)
    return found is not None and same_answer(found, gold)


def same_answer(given: str, gold: str) -> bool:
    """Numbers by value (1,000.0 = 1000, 0.5 = 1/2, 50% = 50.0%, but 50% is not 0.5), numbers in a
    base, times and ratios as they are written, texts without markup and, where they are words or an
    option's letter, case.
    """
    a, b = strip_markup(given), strip_markup(gold)
    wanted = parse_number(b)
    if wanted is not None:
        found = parse_number(plain_decimal(a))
        # of a whole number 7,00 may be two answers
        if found is None and DECIMAL_COMMA.fullmatch(a) and wanted[0].denominator > 1:
            found = parse_number(a.replace("{,}", ".").replace(",", "."))
        return found == wanted
    a = " ".join(a.split())
    if len(a) > 2 * len(b) + 20:
        return False
    written = read_notation(b)
    if written is not None and written == read_notation(a):
        return True
    option = OPTION.fullmatch(b) is not None and a.casefold() == b.casefold()
    return bool(b) and (option or text_key(a) == text_key(b))


def gold_of(answer: object) -> str:
    """The final answer of a reference solution: what is boxed, all of it where several boxes differ,
    or stands behind ####; else the whole text.
    """
    text = str(answer)
    if boxes := boxes_in(text):
        inside = [text[start:end] for start, end in boxes]
        last = inside[-1] + behind_box(text, boxes[-1][1])
        return ", ".join(dict.fromkeys([*inside[:-1], last])) if len({*inside}) > 1 else last
    return text[text.rfind("####") + 4 :].strip() if "####" in text else text.strip()


def strip_markup(text: str, wraps: Sequence[tuple[str, str]] = WRAPS) -> str:
    """An answer without the markup around it, as in `wraps`, and the full stop behind it."""
    for _ in range(3):
        text = text.lstrip(MARKS).rstrip(MARKS + ".")
        if len(text) <= LONGEST:
            text = GAPS_AROUND.sub("", SIZED.sub("", text))
        for start, end in QUOTES:
            if text[:1] == start and text[-1:] == end and len(text) > 1:
                text = text[1:-1]
        for start, end in wraps:
            inner = text[len(start) : len(text) - len(end)]
            if (
                text.startswith(start)
                and text.endswith(end)
                and start not in inner
                and end not in inner
            ):
                text = inner
    return text


def fold_case(text: str) -> str:
    return " ".join(text.casefold().split())


def parse_number(text: str) -> tuple[Fraction, bool] | None:
    """The value of a text that is one number, and whether it is a percentage; None for any other
    text.
    """
    if not text or len(text) > LONGEST:
        return None
    text = re.sub(r",\\! *", ",", text.replace("−", "-")).replace("{,}", ",").replace("\\,", "")
    text, scale = read_words(text)
    text = text.removeprefix("\\$").lstrip("$€£").rstrip("€£")
    value = SHORT_FRACTION.sub(r"\\frac{\g<1>\g<2>}{\g<3>\g<4>}", text.rstrip("%").rstrip(" \\"))
    if repeating := REPEATING.fullmatch(value):
        sign, whole, once, again = repeating.groups()
        above = int((whole or "0") + once + again) - int((whole or "0") + once)
        found = Fraction(above, (10 ** len(again) - 1) * 10 ** len(once))
        return (-found if sign == "-" else found) * scale, text.endswith("%")
    found = LATEX_FRACTION.fullmatch(value)
    sign, whole, *parts = found.groups() if found else ("", "", *value.split("/"))
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


def read_words(text: str) -> tuple[str, int]:
    """A number with its words as signs, and its scale: `minus 7 million` is -7 and 10^6, `28 per
    cent` is 28%.
    """
    scale = 1
    text = SPOKEN_SIGN.sub("-", text)
    if "%" not in text:
        text = SPOKEN_PERCENT.sub("%", text)
    for _ in range(3):
        if found := SPOKEN_SCALE.search(text):
            scale *= SCALES[(found[1] or found[2]).casefold()]
            text = text[: found.start()]
    return text, scale


def extract_answer(response: str, gold: str, prompt: str = "") -> str | None:
    """The last answer behind the thinking: in \\boxed{}, else <answer></answer>, else behind
    "answer is", "Answer:" or "####".

    Without any of these it is the whole response, or where the gold is a number, the last number
    that is no item of a list and not copied from the prompt.
    """
    response, numeric = strip_thinking(response), parse_number(strip_markup(gold)) is not None
    shown = boxed_answer(response)
    shown = tagged_answer(response) if shown is None else shown
    found = announced_answer(response) if shown is None else shown
    if found is not None and numeric:
        # a factorial where there is nothing but the answer, an exclamation in a sentence
        factorial = shown is not None and re.search(r"[0-9})]\s*!", shown)
        found = None if factorial else stated_number(found, prompt)
    elif found is None and same_answer(response, gold):
        found = response
    elif found is None and numeric:
        found = last_number(response, prompt)
    return (
        None if numeric and found is not None and repeats_question(found, gold, prompt) else found
    )


def repeats_question(said: str, gold: str, prompt: str) -> bool:
    """Whether an answer is a quotient that the prompt shows, and not the way the gold is written:
    the question again.
    """
    said, gold, prompt = (
        "".join(fold_case(strip_markup(text)).split()) for text in (said, gold, prompt)
    )
    return ("/" in said or "frac" in said) and said != gold and said in prompt


def boxes_in(text: str) -> list[tuple[int, int]]:
    """Where the contents of the \\boxed{...} begin and end that hold no other box, braces balanced;
    none where the last is left open.
    """
    found, opened, box = list[tuple[int, int]](), list[int](), -1
    for brace in BOX.finditer(text, max(0, text.find("\\boxed"))):
        if brace.group() != "}":
            box = len(opened) if brace.group() != "{" else box
            opened.append(brace.end())
        elif opened:
            start = opened.pop()
            if len(opened) == box:
                found.append((start, brace.start()))
                box = -1
    return [] if box >= 0 else found


def boxed_answer(text: str) -> str | None:
    """What the last \\boxed{...} holds; of several with nothing but `and`, `or`, commas or names
    between them what all of them hold, as one answer. Nothing ("") where what touches the box makes
    something else of it: -\\boxed{7}, \\boxed{7}^2, half of \\boxed{7}.
    """
    boxes = boxes_in(text)
    if not boxes:
        return None
    first = len(boxes) - 1
    while first and joins_boxes(text[boxes[first - 1][1] + 1 : boxes[first][0]]):
        first -= 1
    if not stands_alone(text, boxes[first][0], boxes[-1][1]):
        return ""
    inside = [text[start:end] for start, end in boxes[first:]]
    inside[-1] += behind_box(text, boxes[-1][1])
    between = text[boxes[first][1] : boxes[-1][0]]
    return (" or " if re.search(r"\bor\b", between) else ", ").join(dict.fromkeys(inside))


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether nothing around a box, with its content from `start` to `end`, is a part of the answer
    but percent signs and scales behind it.
    """
    before = text[max(0, start - 80) : start].rstrip("{ ").removesuffix("\\boxed")
    line = before[before.rfind("\n") + 1 :]
    if TOUCHES_BEFORE.search(line) or (
        re.search(r"[-+]\s*\$*\s*$", line) and not re.fullmatch(r"\s*[-+]\s+", line)
    ):
        return False
    words = [bare(w) for w in re.findall(r"[\w']+", line)][-8:]
    while words and words[-1] in LINKS and not line.rstrip().endswith((":", ",")):
        words.pop()
    if words and words[-1] in BEFORE and not re.search(r"[.,:;!?]\s*\W*$", line):
        return False
    return TOUCHES_BEHIND.match(text[end + 1 : end + 60]) is None


def joins_boxes(between: str) -> bool:
    """Whether what stands between two boxes makes one answer of them."""
    between = between.removesuffix("{").rstrip().removesuffix("\\boxed")
    return len(between) <= 60 and BETWEEN_BOXES.fullmatch(between) is not None


def behind_box(text: str, end: int) -> str:
    """The percent sign or the word that makes another number of what a box holds."""
    found = BEHIND_BOX.match(text, end + 1)
    return "" if found is None else f" {found[1]}"


def verdict_mark(text: str) -> str | None:
    """The one [[mark]] of a judge's text; None for none and for several that differ."""
    found = {m.strip() for m in VERDICT.findall(text)}
    return found.pop() if len(found) == 1 else None


def tagged_answer(text: str) -> str | None:
    """What the last <answer>...</answer> holds; nothing ("") where a word behind it makes another
    number of it.
    """
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start < 0:
        return None
    following = text[end + len("</answer>") :].split(maxsplit=1)[:1]
    return "" if following and bare(following[0]) in SIZES else text[start + len("<answer>") : end]


def announced_answer(text: str) -> str | None:
    """What stands behind the last marker, on its line or the next that is not blank; #### counts on
    the last line.
    """
    end, last_line = None, text.rstrip().rfind("\n") + 1
    for match in MARKER.finditer(text):
        if match.group() != "####" or match.start() >= last_line:
            end = match.end()
    return (
        None if end is None else text[end:].lstrip(MARKS + ":").split("\n", 1)[0].partition("<|")[0]
    )


def stated_number(text: str, prompt: str = "") -> str | None:
    """The one number of a short statement: `7`, `x = 7`, `7 apples`. None where there are several,
    or where a word beside it makes another number of it (7 lakh, half of 7).
    """
    plain = strip_markup(text)
    if len(text) > LONGEST or parse_number(plain) is not None or read_notation(plain):
        return text
    if DECIMAL_COMMA.fullmatch(plain):
        return text
    if ALTERNATIVES.search(text):
        return None
    text = WORDS_IN_MATHS.sub(r" \1 ", text[text.rfind("=") + 1 :])
    words = re.sub(r"\$? (?=\\?%)", "", text).split()
    at = [i for i, w in enumerate(words) if last_digit_position(w) >= 0]
    if len(at) != 1 or (at[0] and words[at[0] - 1].casefold() in REFUSALS):
        return None
    return number_at(words, at[0], prompt)


def number_at(words: list[str], at: int, prompt: str) -> str | None:
    """The number at a place of a line, with the words that belong to it."""
    found = amount_at(words, at, words_of(prompt))
    if found is None:
        return None
    sign, [number, *spoken] = found[: found[0] == "-"], found.split()
    number = strip_word(number.removeprefix(sign))
    return " ".join([sign + number, *spoken])


def last_number(response: str, prompt: str) -> str | None:
    """The last number, where it is a result: no item of a list, no operand, not copied from the
    prompt.
    """
    at = last_digit_position(response)
    if at < 0:
        return None
    start, end = response.rfind("\n", 0, at) + 1, response.find("\n", at)
    line = response[start : end if end >= 0 else None]
    if item_number(line) is not None:
        above = response[:start].rstrip()
        return (
            None if item_number(above[above.rfind("\n") + 1 :]) is not None else item_number(line)
        )
    words = re.sub(r"\$? (?=\\?%)", "", line[-LONGEST:]).split()
    i = max(n for n, w in enumerate(words) if last_digit_position(w) >= 0)
    word, shown = strip_word(words[i]), fold_case(prompt)
    copied = (
        fold_case(" ".join(words[i - 2 : i + 1])).rstrip(".,;:!?") if i >= 2 else fold_case(line)
    )
    if (
        parse_number(word) is None
        or ALTERNATIVES.search(words[i])
        or copied in shown
        or fold_case(line) in shown
    ):
        return None
    before = [w.casefold() for w in words[:i]]
    while before and before[-1] in JOINTS:
        before.pop()
    beside = before[-1] if before else ""
    listed = beside in REFUSALS or (
        not beside.endswith("=") and parse_number(strip_word(beside)) is not None
    )
    return None if listed else number_at(words, i, prompt)


def item_number(line: str) -> str | None:
    """The number of a line that holds nothing else, as an item of a list does."""
    line = line[: LONGEST + 1].strip()
    found = strip_markup(line if NUMBER.match(line) else line.lstrip("-*•# "))
    return found if parse_number(found) is not None else None


def strip_word(word: str) -> str:
    """A word without punctuation, and of `x=7` the right-hand side."""
    word = word[word.rfind("=") + 1 :]
    near = strip_markup(word.rstrip(",;:!?."))
    return (
        near if parse_number(near) is not None else strip_markup(word.strip('()[]{},;:!?.*`"$\\'))
    )


def last_digit_position(text: str) -> int:
    """Where the last ASCII digit stands; -1 = nowhere."""
    return max(text.rfind(d) for d in "0123456789")
