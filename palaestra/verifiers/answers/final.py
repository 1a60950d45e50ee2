"""Which final answer a response gives, and whether it is the gold one.

To accept what is wrong is worse than to refuse what is right: a policy finds what is accepted and
learns to write it. So one answer counts, the last, and where several stand side by side none does.
Out of reach are an answer inside a negation in words ("I would never say 7") and a list in
sentences ("It is 6. It is 7."), of which the last counts. All of it takes time linear in the length
of the response.
"""

from __future__ import annotations

import re
from fractions import Fraction

from palaestra.verifiers.base import strip_thinking

MARKS = " \t\r\n*`\"'$“”‘’"  # quotes, emphasis and mathematics around an answer
WRAPS = (
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("(", ")"),
    ("\\text{", "}"),
    ("\\mathrm{", "}"),
    ("\\textbf{", "}"),
)
MARKER = re.compile(
    r"\banswer\b[*_ \t]{0,4}(?:is\b|are\b|[:=])|^####(?!#)", re.IGNORECASE | re.MULTILINE
)
WHOLE = r"(?:0|[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]*)"  # no leading zeros: 007 is a name
NUMBER = re.compile(rf"[-+]?(?:{WHOLE}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{{1,3}})?")
# 3\frac{1}{2} is mixed: 7/2
LATEX_FRACTION = re.compile(r"([-+]?)([1-9][0-9]*|) *\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
ALTERNATIVES = re.compile(r"\b(?:or|and)\b|[;,]\s|[<>≠≤≥]|!=")
LONGEST = 1000  # characters of a number, of a statement, of what is read of a line
# no result stands beside one of these
JOINTS = frozenset([*"+-*/x·×÷^,;|&", "or", "and", "to", "\\cdot", "\\times"])
VERDICT = re.compile(r"\[\[([^\[\]\n]{1,40})\]\]")
REFUSALS = frozenset([*"<>≠≤≥", "<=", ">=", "!=", "not", "never", "isn't", "no"])


def is_right_answer(response: str, gold: str, prompt: str = "") -> bool:
    """Whether the final answer of the response is the gold one."""
    found = extract_answer(response, gold, prompt)
    return found is not None and same_answer(found, gold)


def same_answer(given: str, gold: str) -> bool:
    """Numbers by value (1,000.0 = 1000, 0.5 = 1/2, 50% = 50.0%, but 50% is not 0.5), texts without
    case and markup.
    """
    a, b = strip_markup(given), strip_markup(gold)
    wanted = parse_number(b)
    if wanted is not None:
        return parse_number(a) == wanted
    return bool(b) and fold_case(a) == fold_case(b)


def gold_of(answer: object) -> str:
    """The final answer of a reference solution: what is boxed, or stands behind ####; else all of
    it.
    """
    text = str(answer)
    inside = boxed_answer(text)
    if inside is not None:
        return inside
    return text[text.rfind("####") + 4 :].strip() if "####" in text else text.strip()


def strip_markup(text: str) -> str:
    """An answer without the markup around it and the full stop behind it."""
    for _ in range(3):
        text = text.lstrip(MARKS).rstrip(MARKS + ".")
        for start, end in WRAPS:
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
    text = text.replace("−", "-").replace(",\\!", ",").replace("{,}", ",").replace("\\,", "")
    text = text.removeprefix("\\$").lstrip("$€£")
    value = text.rstrip("%").rstrip(" \\")
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
    value = int(whole or 0) + above / below
    return -value if sign == "-" else value, text.endswith("%")


def extract_answer(response: str, gold: str, prompt: str = "") -> str | None:
    """The last answer behind the thinking: in \\boxed{}, else <answer></answer>, else behind
    "answer is", "Answer:" or "####".

    Without any of these it is the whole response, or where the gold is a number, the last number
    that is no item of a list and not copied from the prompt.
    """
    response, numeric = strip_thinking(response), parse_number(strip_markup(gold)) is not None
    found = next(
        (
            found
            for read in (boxed_answer, tagged_answer, announced_answer)
            if (found := read(response)) is not None
        ),
        None,
    )
    if found is not None:
        found = stated_number(found) if numeric else found
    elif same_answer(response, gold):
        found = response
    elif numeric:
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


def boxed_answer(text: str) -> str | None:
    """What the last \\boxed{...} holds, braces balanced."""
    start = text.rfind("\\boxed{")
    depth = 0
    for brace in re.finditer(r"[{}]", text[start:] if start >= 0 else ""):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[start + len("\\boxed{") : start + brace.start()]
    return None


def verdict_mark(text: str) -> str | None:
    """The one [[mark]] of a judge's text; None for none and for several that differ."""
    found = {m.strip() for m in VERDICT.findall(text)}
    return found.pop() if len(found) == 1 else None


def tagged_answer(text: str) -> str | None:
    """What the last <answer>...</answer> holds."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return text[start + len("<answer>") : end] if start >= 0 else None


def announced_answer(text: str) -> str | None:
    """What stands behind the last marker, on its line or the next that is not blank; #### counts on
    the last line.
    """
    end, last_line = None, text.rstrip().rfind("\n") + 1
    for match in MARKER.finditer(text):
        if match.group() != "####" or match.start() >= last_line:
            end = match.end()
    return None if end is None else text[end:].lstrip(MARKS + ":").split("\n", 1)[0]


def stated_number(text: str) -> str | None:
    """The one number of a short statement: `7`, `x = 7`, `7 apples`. None where there
    are several.
    """
    if len(text) > LONGEST or parse_number(strip_markup(text)) is not None:
        return text
    if ALTERNATIVES.search(text):
        return None
    if "=" in text:
        return text[text.rfind("=") + 1 :]
    words = text.replace(" %", "%").split()
    at = [i for i, w in enumerate(words) if last_digit_position(w) >= 0]
    if len(at) != 1 or (at[0] and words[at[0] - 1].casefold() in REFUSALS):
        return None
    return strip_word(words[at[0]])


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
    words = line[-LONGEST:].replace(" %", "%").split()
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
    return None if listed else word


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
        near if parse_number(near) is not None else strip_markup(word.strip("()[]{},;:!?.*`\"'$\\"))
    )


def last_digit_position(text: str) -> int:
    """Where the last ASCII digit stands; -1 = nowhere."""
    return max(text.rfind(d) for d in "0123456789")
