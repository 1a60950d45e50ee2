"""Which final answer a response gives, and whether it is the gold one.

To accept what is wrong is worse than to refuse what is right: a policy finds what is accepted and
learns to write it. So one answer counts, the last, and where several stand side by side none does.
An answer that its own clause denies, or that a later sentence takes back, is none (`withdrawal`).
Out of reach is a list in sentences ("It is 6. It is 7."), of which the last counts. All of it takes
time linear in the length of the response.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from palaestra.verifiers.answers.amounts import (
    CHANGES,
    SIZES,
    amount_at,
    bare,
    sign_before,
    words_of,
)
from palaestra.verifiers.answers.boxes import (
    behind_box,
    boxed_answer,
    boxes_in,
)
from palaestra.verifiers.answers.echo import states_text
from palaestra.verifiers.answers.notation import (
    plain_decimal,
    read_notation,
    same_substance,
    text_key,
)
from palaestra.verifiers.answers.numerals import (
    EUROPEAN,
    LONGEST,
    NUMBER,
    join_numbers,
    meant_values,
    parse_number,
    read_number,
    spelled_digits,
)
from palaestra.verifiers.answers.plain_replies import (
    in_whole_coins,
    is_foreign,
    plain_values,
    point_decimals,
)
from palaestra.verifiers.answers.script import plain_forms, space_numbers
from palaestra.verifiers.answers.statement import statements
from palaestra.verifiers.answers.units import currency_of, read_quantity
from palaestra.verifiers.answers.values import (
    contradicts,
    dated_otherwise,
    denies_abroad,
    plain_emphasis,
    states_value,
    turned_sign,
)
from palaestra.verifiers.answers.withdrawal import (
    is_denied,
    is_rejected,
    is_withdrawn,
    stands_denied,
    states_property,
)
from palaestra.verifiers.base import strip_thinking

MARKS = ' \t\r\n*`"$“”'  # quotes, emphasis and mathematics around an answer
MOST_READ = 4000  # characters of a reply that is read in more ways
QUOTED = MARKS.replace("$", "")
EMPHASIS_END = re.compile(r"^[:*_`]+|^\s*\n\s*(?=\*\s)")  # behind a marker
ELLIPSIS = re.compile(r"[0-9]\s*(?:\.\.|…)|(?:\.\.|…)\s*[-+0-9]")  # 0.33... is not 0.33
OPERATOR = re.compile(r"\s*\*\s+(?=[-+0-9.\\$])")  # * 7 is no emphasis
QUOTES = (("'", "'"), ("‘", "’"), ("_", "_"))  # taken off in pairs: f' is not f
SPACES = r"(?:\\(?:q?quad|(?:display|text)style)(?![a-zA-Z])|\\[,;:! ]|~|\s)"
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
    r"\banswer\b[*_ \t]{0,4}(?:is\b|are\b|[:=])|^####(?!#)|答案(?:应该|應該|应|應)?(?:[是为為]|等于|等於|[:=])",
    re.IGNORECASE | re.MULTILINE,
)
DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+(?:,|\{,\})[0-9]+")
WORDS_IN_MATHS = re.compile(r"(?:\\[,;:! ]|~)*\\(?:text|mathrm)\s*\{([^{}]*)\}")
# of a number alone, or behind `=`: in a sentence it is an exclamation
FACTORIAL = re.compile(r"(?:^|=)[\s*$`]*[-+]?[0-9.,]+\s*![\s*$`.]*$")
EXCLUDED_NUMBER = re.compile(
    r",?\s+(?:and\s+)?(?:not|rather than|instead of)\s+(?:the\s+)?[-+−$€£]?[0-9][0-9.,/]*%?"
    r"(?:\s+[a-z]+){0,3}[\s.!*]*$",
    re.IGNORECASE,
)
ATTACHED_UNIT = re.compile(
    r"(?<=[0-9])(?=(?:[cmk]m|kg|mg|ml|mL|ft|yd|mi|lbs?|oz|hrs?|min|sec|ms|km/h|m/s|mph|kph|[mgshlL]|[ckm]?m[²³]|[ckm]?m\^[23])(?![A-Za-z0-9]))"
)
UNIT_POWER = re.compile(r"\b((?:mm|cm|dm|km|ft|yd|mi|in))\s?\^\s?\{?([23])(?![0-9])\}?")
ORDINAL_MARK = re.compile(r"#[0-9]")  # #7 is the seventh
IS_LAST = re.compile(r"(?:\b(?:is|are|was|were|be|but|does|do|did|if)|['’]s)\s*$", re.IGNORECASE)
QUANTITY_OF = re.compile(r"\s+of\s+(?:the\s+)?[a-z]+(?:\s+[a-z]+)?$")  # 2 cups of flour
TWICE = r"\\?\$?[-+−$€£]?(?:[0-9][0-9.,/]*\s?\\?%?|[a-z]+(?:-[a-z]+)?)"
SAID_TWICE = re.compile(
    rf"(?<![\w.,/^-])(?P<first>{TWICE})(?:\s*\((?:or |i\.e\.,? |= ?)?(?P<bracketed>{TWICE})\)"
    rf"|,?\s+(?:i\.e\.,?|that is,?|or|which is|equivalently,?)\s+(?P<second>{TWICE}))(?![\w/^])",
    re.IGNORECASE,
)
ALTERNATIVES = re.compile(r"\b(?:or|and)\b|[;,]\s(?=.*[0-9])|[<>≠≤≥]|!=|或|(?<=[0-9])\s*[和与]")
UNEQUAL = re.compile(r"\\not\s*=")
OR_TAG = re.compile(r"[\s.,;$]*(?:(?:or|and)\b|[,;/|]|或|和)[\w\s.,;:]{0,40}", re.IGNORECASE)
ARTICLE = re.compile(r"^(?:the|an?)\s+(?=\w{2})", re.IGNORECASE)
# of a place or a thing that is named behind it: the city of Paris
KIND_OF = re.compile(
    r"^the (?:city|town|village|country|state|island|river|planet|element|year|month|letter|word|colou?r|number)"
    r"(?: of)? (?=\w)",
    re.IGNORECASE,
)
APPOSITION = re.compile(
    r"(?:,\s+(?:the|an?)\s+([\w' -]{1,60})|\s*\((?:the|an?)\s+([\w' -]{1,60})\))$", re.IGNORECASE
)
# an apposition with one of these names another thing
OTHERS = frozenset(["second", "other", "next", "former", "choice", "option", "answer", "guess"])
IT_IS = re.compile(r"^(?:so )?(?:(?:it|this|that|he|she)(?: is| was|'s|’s)|its)\s+", re.IGNORECASE)
CLOSED = re.compile(
    r"\W*(yes|no|true|false|nope|yep|yeah)\b(?=\s*[.,;:!\n—–]|\s+(?:it|its|they|he|she|because|there)\b)",
    re.IGNORECASE,
)
LIST_OF_ONE = re.compile(r"[\s`]*\[[^\[\]\\]*\][\s`.]*")  # [3] is not 3
COLLOQUIAL = {"nope": "no", "yep": "yes", "yeah": "yes"}
SMILE = re.compile(r"\s*[:;]-?[)D]\s*$")
OPENED = re.compile(r"\b(?:yes|no|true|false|but|however|although|unless)\b", re.IGNORECASE)
# no result stands beside one of these
JOINTS = frozenset([*"+-*/x·×÷^,;|&", "or", "and", "to", "\\cdot", "\\times"])
OPTION = re.compile(r"[A-H]")
VERDICT = re.compile(r"\[\[([^\[\]\n]{1,40})\]\]")
REFUSALS = frozenset([*"<>≠≤≥", "<=", ">=", "!=", "not", "never", "isn't", "no"])


def is_right_answer(response: str, gold: str, prompt: str = "") -> bool:
    """Whether the final answer of the response is the gold one."""
    if is_foreign(prompt) or EUROPEAN.search(gold):
        gold, response = point_decimals(gold), point_decimals(response)
    wanted = currency_of(gold)
    if wanted and (named := currency_of(final_line(response))) and not named <= wanted | {"c"}:
        return False
    answer = extract_answer(response, gold, prompt)
    if "[" not in gold and LIST_OF_ONE.fullmatch(response):
        return False
    if answer is not None and same_answer(answer, gold):
        other = wanted and "c" not in wanted and currency_of(final_line(response)) == {"c"}
        line = final_line(response)
        if "." not in gold and dated_otherwise(line, prompt):
            return False
        return not (other or contradicts(line, prompt) or denies_abroad(line, prompt))
    return is_read_otherwise(response, gold, prompt)


def is_read_otherwise(response: str, gold: str, prompt: str) -> bool:
    """Whether a reply states the reference in a notation of its kind, or in words of the question."""
    whole = plain_forms(strip_thinking(response))
    if len(whole) > MOST_READ:  # before a search that takes the square of a length
        return False
    text = SMILE.sub("", whole)
    stated, shown = final_statement(text)
    body = text if stated is None else stated
    money, gold = gold.strip(QUOTED), strip_markup(gold)
    number = parse_number(gold)
    if number is not None:
        ways = [plain_values(text, gold, prompt)]
        if currency_of(money) & {"$", "€"}:
            ways.append(in_whole_coins(text))
        if number[0] < 0 and (turned := turned_sign(text, prompt)):
            ways.append(turned)
        answers = (extract_answer(way, gold, prompt) for way in ways if way != text)
        if any(answer is not None and same_answer(answer, gold) for answer in answers):
            line = final_line(text)
            return not (contradicts(line, prompt) or denies_abroad(line, prompt))
    elif not shown and states_text(body, gold, prompt):
        return True
    elif not shown and (plain := plain_emphasis(text)) != whole:
        answer = extract_answer(plain, gold, prompt)
        if answer is not None and same_answer(answer, gold):
            return True
    body, money = (GAPS_AROUND.sub("", t.strip(QUOTED)) for t in (body, money))
    return states_value(body, money if currency_of(money) else gold, prompt)


def same_answer(given: str, gold: str) -> bool:
    """Numbers by value (1,000.0 = 1000, 0.5 = 1/2, 50% = 50.0%, but 50% is not 0.5), numbers in a
    base, times and ratios as they are written, texts without markup and, where they are words or an
    option's letter, case.
    """
    a, b = strip_markup(given), strip_markup(gold)
    wanted = parse_number(b)
    if wanted is not None:
        if ELLIPSIS.search(given):
            return False
        number = read_response_number(a, wanted[0])
        return number is not None and number[1] == wanted[1] and number[0] in meant_values(b)
    a = " ".join(a.split())
    if len(a) > 2 * len(b) + 20:
        return False
    written = read_notation(b)
    if written is not None and written == read_notation(a):
        return True
    if same_substance(a, b):
        return True
    quantity = read_quantity(b)
    if quantity is not None:
        return quantity in (read_quantity(a), read_quantity(QUANTITY_OF.sub("", a)))
    option = OPTION.fullmatch(b) is not None and a.casefold() == b.casefold()
    return bool(b) and (option or text_key(a) == text_key(b) or same_name(a, b))


def read_response_number(text: str, wanted: Fraction) -> tuple[Fraction, bool] | None:
    """The number of a response without markup, as `read_number`; also with a decimal comma, where
    the reference is no whole number (7,00 may be two answers).
    """
    number = read_number(plain_decimal(text))
    if number is None and DECIMAL_COMMA.fullmatch(text) and wanted.denominator > 1:
        number = parse_number(text.replace("{,}", ".").replace(",", "."))
    return number


def same_name(name: str, gold: str) -> bool:
    """Whether two texts are one name but for an article, the kind of thing in front of it, or an
    apposition behind it: the city of Paris; Paris, the capital of France.
    """
    added = APPOSITION.search(name)
    if added and not (CHANGES | OTHERS).isdisjoint(map(bare, (added[1] or added[2]).split())):
        return False
    bodies = {name[: added.start()] if added else name, KIND_OF.sub("", name), IT_IS.sub("", name)}
    key = text_key(ARTICLE.sub("", gold))
    return len(key) > 1 and any(text_key(ARTICLE.sub("", body)) == key for body in bodies)


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
    text = plain_forms(text)
    if OPERATOR.match(text):
        return text.strip()
    for _ in range(3):
        text = text.lstrip(MARKS).rstrip(MARKS + ".")
        if len(text) <= LONGEST:
            text = GAPS_AROUND.sub("", SIZED.sub("", text))
        for start, end in QUOTES:
            if len(text) > 1 and text[0] == start and text[-1] == end and end not in text[1:-1]:
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


def extract_answer(response: str, gold: str, prompt: str = "") -> str | None:
    """The last answer behind the thinking: in \\boxed{}, else <answer></answer>, else behind
    "answer is", "Answer:" or "####".

    Without any of these it is the whole response, or where the gold is a number, the last number
    that is no item of a list and not copied from the prompt.
    """
    response, prompt = plain_forms(strip_thinking(response)), plain_forms(prompt)
    wanted = parse_number(strip_markup(gold))
    numeric = wanted is not None
    if wanted is not None:
        response = plain_statement(response, wanted[1])
    answer, shown = final_statement(response)
    if not numeric and not shown and (answer is None or not same_answer(answer, gold)):
        stated = statements(response if answer is None else answer, gold)
        if stated and read_quantity(gold):
            stated += [amount for text in stated if (amount := stated_quantity(text))]
        answer = next((text for text in stated if same_answer(text, gold)), answer)
    if answer is not None and numeric:
        # a factorial where there is nothing but the answer, an exclamation in a sentence
        factorial = shown and re.search(r"[0-9})]\s*!", answer)
        answer = None if factorial else stated_number(answer, prompt)
    elif answer is None and same_answer(response, gold):
        answer = response
    elif answer is None and (word := closed_answer(response)) and same_answer(word, gold):
        answer = word
    elif answer is None and numeric:
        answer = last_number(response, prompt)
    return (
        None
        if numeric and answer is not None and repeats_question(answer, gold, prompt)
        else answer
    )


def plain_statement(text: str, percent: bool) -> str:
    """A reply without the other number that its last line excludes (`5, not 7`) and without a value
    that it says twice (`8 (eight)`, `0.25, i.e. 25%`).

    Args:
        percent: of two ways to say one value, whether the percentage is kept.
    """
    start = text.rstrip().rfind("\n") + 1
    text = text[:start] + UNIT_POWER.sub(lambda m: m[1] + "²³"[m[2] == "3"], text[start:])
    line = text[start : start + LONGEST]
    if excluded := EXCLUDED_NUMBER.search(line):
        before = line[: excluded.start()]
        clause = re.split(r"[.!?;](?=\s)", before)[-1]
        if any(map(str.isdigit, clause)) and not IS_LAST.search(clause):
            line = line[: excluded.start()] + "."
    line = SAID_TWICE.sub(lambda match: say_once(match, percent), line)
    return text[:start] + line + text[start + LONGEST :]


def say_once(match: re.Match[str], percent: bool) -> str:
    """Of two ways to say one value the one that is wanted; both where the values differ."""
    names = [match["first"], match["bracketed"] or match["second"]]
    values = [read_number(strip_markup(text.rstrip(",.;"))) for text in names]
    if values[0] is None or values[1] is None:
        return match[0]
    sizes = [value[0] / (100 if value[1] else 1) for value in values if value]
    if sizes[0] != sizes[1]:
        return match[0]
    return names[1] if values[1][1] == percent != values[0][1] else names[0]


def final_line(text: str) -> str:
    """What a reply states as its answer, or else its last line."""
    text = plain_forms(strip_thinking(text)).strip()
    stated = final_statement(text)[0]
    return text[text.rfind("\n") + 1 :] if stated is None else stated


def final_statement(text: str) -> tuple[str | None, bool]:
    """What a text states as its answer, and whether a box or tags hold it; None where it states
    none. Behind a box or tags a marker counts where it announces another number, or they hold
    nothing.
    """
    boxes = boxes_in(text)
    shown = boxed_answer(text) if boxes else tagged_answer(text)
    if shown is None:
        return announced_answer(text), False
    end = boxes[-1][1] if boxes else text.rfind("</answer>")
    later = announced_answer(text[end:])
    if later:
        values = [read_number(strip_markup(stated_number(x) or "")) for x in (shown, later)]
        if not shown or (None not in values and values[0] != values[1]):
            return later, False
    return shown, True


def closed_answer(text: str) -> str | None:
    """The yes, no, true or false that a short reply begins with; None where it says another, or
    limits it.
    """
    match = CLOSED.match(text) if len(text) <= LONGEST else None
    if match is None or OPENED.search(text, match.end()) or is_withdrawn(text, match.end()):
        return None
    return COLLOQUIAL.get(match[1].casefold(), match[1])


def repeats_question(stated: str, gold: str, prompt: str) -> bool:
    """Whether an answer is a quotient that the prompt shows, and not the way the gold is written:
    the question again.
    """
    stated, gold, prompt = (
        "".join(fold_case(strip_markup(text)).split()) for text in (stated, gold, prompt)
    )
    undone = any(mark in stated for mark in ("/", "frac", "times", "cdot", "×", "*10"))
    return undone and stated != gold and stated in prompt


def verdict_mark(text: str) -> str | None:
    """The one [[mark]] of a judge's text; None for none and for several that differ."""
    marks = {m.strip() for m in VERDICT.findall(text)}
    return marks.pop() if len(marks) == 1 else None


def tagged_answer(text: str) -> str | None:
    """What the last <answer>...</answer> holds, or several with `or` and the like between them; "" where
    a word behind it makes another number of it, or what surrounds it denies it or takes it back.
    """
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    if start < 0:
        return None
    behind = text[end + len("</answer>") :]
    following = behind.split(maxsplit=1)[:1]
    if (following and bare(following[0]) in SIZES) or stands_denied(text[:start], behind):
        return ""
    before, closed, between = text[:start].rpartition("</answer>")
    answer = text[start + len("<answer>") : end]
    if closed and OR_TAG.fullmatch(between):
        return f"{before[before.rfind('<answer>') + len('<answer>') :]} or {answer}"
    return answer


def announced_answer(text: str) -> str | None:
    """What stands behind the last marker, on its line or the next that is not blank; #### counts on
    the last line.
    """
    start, end, last_line = 0, None, text.rstrip().rfind("\n") + 1
    for match in MARKER.finditer(text):
        if match.group() != "####" or match.start() >= last_line:
            start, end = match.span()
    if end is None:
        return None
    stated = EMPHASIS_END.sub("", text[end:])
    stated = stated if OPERATOR.match(stated) else stated.lstrip(MARKS + ":")
    if is_denied(text[:start]) or is_withdrawn(stated, 1):
        return ""
    return stated.split("\n", 1)[0].partition("<|")[0]


def stated_number(text: str, prompt: str = "") -> str | None:
    """The one number of a short statement: `7`, `x = 7`, `7 apples`. None where there are several,
    or where a word beside it makes another number of it (7 lakh, half of 7).
    """
    plain = strip_markup(text)
    if len(text) > LONGEST or read_number(plain) is not None or read_notation(plain):
        return text
    if DECIMAL_COMMA.fullmatch(plain):
        return text
    if ALTERNATIVES.search(text) or UNEQUAL.search(text):
        return None
    if last_digit_position(text) < 0:
        text = spelled_digits(text) or ""
    text = WORDS_IN_MATHS.sub(r" \1 ", text[text.rfind("=") + 1 :])
    words = words_in_line(text)
    at = [i for i, w in enumerate(words) if last_digit_position(w) >= 0]
    return number_at(words, at[0], prompt) if len(at) == 1 else None


def stated_quantity(text: str) -> str | None:
    """The number with its unit that a sentence ends with, `3 cups` of `You need 3 cups`; None where
    the words in front of it make another of it, or where there are more numbers.
    """
    words = words_in_line(text)
    at = [i for i, w in enumerate(words) if last_digit_position(w) >= 0]
    sign = sign_before(words[max(0, at[0] - 8) : at[0]]) if len(at) == 1 and at[0] else None
    return None if sign is None else sign + " ".join(words[at[0] :])


def words_in_line(text: str) -> list[str]:
    """The words of a line, each number one word with its percent sign."""
    text = ATTACHED_UNIT.sub(" ", join_numbers(space_numbers(text)))  # 42cm
    return re.sub(r"\$? (?=\\?%)", "", text).split()


def number_at(words: list[str], at: int, prompt: str) -> str | None:
    """The number at a place of a line, with the words that belong to it."""
    behind = " ".join([re.sub(r"^.*[0-9]", "", words[at]), *words[at + 1 : at + 20]])
    if is_rejected(behind) or ORDINAL_MARK.match(words[at]):
        return None
    amount = None if "?" in words[at] else amount_at(words, at, words_of(prompt))
    if amount is None:
        return None
    sign, [number, *spoken] = amount[: amount[0] == "-"], amount.split()
    number = strip_word(number.removeprefix(sign))
    return " ".join([sign + number, *spoken])


def last_number(response: str, prompt: str) -> str | None:
    """The last number, where it is a result: no item of a list, no operand, not copied from the
    prompt.
    """
    at = last_digit_position(response)
    if at < 0 and len(response) < LONGEST:
        response = spelled_digits(response) or ""
        at = last_digit_position(response)
    behind = response[at + 1 :]
    if at < 0 or is_withdrawn(behind) or FACTORIAL.search(response, max(0, at - 40)):
        return None
    start, end = response.rfind("\n", 0, at) + 1, response.find("\n", at)
    line = response[start : end if end >= 0 else None]
    if item_number(line) is not None:
        above = response[:start].rstrip()
        if above and re.match(r"\s*[-−–]\s", line):  # a bullet, or a sign
            return None
        return (
            None if item_number(above[above.rfind("\n") + 1 :]) is not None else item_number(line)
        )
    number = response[start : at + 1]
    number = number[: -len(re.split(r"[^0-9.,]", number)[-1])]
    if is_denied(number) or ("digit" not in prompt.casefold() and states_property(number)):
        return None
    words = words_in_line(line[-LONGEST:])
    i = max(n for n, w in enumerate(words) if last_digit_position(w) >= 0)
    word, shown = strip_word(words[i]), fold_case(prompt)
    copied = (
        fold_case(" ".join(words[i - 2 : i + 1])).rstrip(".,;:!?") if i >= 2 else fold_case(line)
    )
    if (
        read_number(word) is None
        or (words[i].endswith(":") and i + 1 < len(words))
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
    if ORDINAL_MARK.match(line):
        return None
    match = strip_markup(line if NUMBER.match(line) else line.lstrip("*•# "))
    return match if read_number(match) is not None else None


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
