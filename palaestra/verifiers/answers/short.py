"""Short answers: texts, numbers, sets, lists, JSON, and the overlap of words."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NoReturn

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.answers.final import (
    extract_answer,
    final_statement,
    gold_of,
    is_right_answer,
    parse_number,
    read_response_number,
    same_answer,
    strip_markup,
)
from palaestra.verifiers.answers.json_text import stated_json
from palaestra.verifiers.answers.notation import read_notation, text_key
from palaestra.verifiers.answers.numerals import (
    GROUPED,
    meant_values,
    shortest_decimal,
)
from palaestra.verifiers.answers.script import plain_forms
from palaestra.verifiers.answers.statement import stated_listing
from palaestra.verifiers.base import (
    Judgement,
    binary_judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)

SEPARATOR = re.compile(r"[,;\n、]|\band\b|[-=]+>|[→⇒]|\s\|\s|以及|[和与與及]", re.IGNORECASE)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
BULLET = re.compile(r"^\s*(?:[-*]\s|•)\s*")  # -5 is a number
# of an item: 1. or 1) or (1) or a)
LABEL = re.compile(r"\s*\(?(?:([0-9]{1,3})|([A-Za-z]))[.)]\s+(?=\S)")
NAME = re.compile(r"^[\s$]*([A-Za-z])\s*=(?!=)")
SET_NAME = re.compile(
    r"^[\s$]*[A-Za-z](?:_\{?\w+\}?)?\s*(?:=|∈|\\in(?![a-z]))\s*(?=\\?[{\[(])"
)  # S = {1, 2}
ETC = re.compile(r"^\s*\$?(?:\.\.\.|…|\\[lc]?dots|etc\.?)[\s$]*$", re.IGNORECASE)
ENDLESS = re.compile(r"(?:\.\.\.|…|\\[lc]?dots|\betc\.?|\band so on)[\s.$*)}\]\\]*$", re.IGNORECASE)
ROW = re.compile(r"[-+−]?[0-9.]+(?:[ \t]+[-+−]?[0-9.]+)+")
NAMES = re.compile(r"[^\W\d_][\w'’-]*")  # one word
ORDINAL = re.compile(
    r"^\s*(?:and\s+)?(?:first|then|next|after that|followed by|finally|lastly)\b,?\s+(?=\S)",
    re.IGNORECASE,
)
ARTICLES = ("a", "an", "the")
CLOSED = {"yes", "no", "noanswer"}  # answers that are no part of another one
# -5, 3/4, 12:30; C++
WORD = re.compile(r"(?<!\w)(?:[-+]\s?)?\.?[0-9]+(?:[.,:/][0-9]+)*%?(?!\w)|\w+[+#]*")
REORDERED_WORTH = 0.9  # the most that the right words in another order are worth
PLAIN = (str, int, float)


def stated_answer(response: str) -> str | None:
    """What a reply states as its answer: in a box, in <answer></answer>, or behind "answer:"; None
    if nowhere.
    """
    return final_statement(plain_forms(strip_thinking(response)))[0]


@stage
class ExactAnswer:
    """1 if the response's final answer is the reference; numbers by value.
    `palaestra.verifiers.answers.final` has the rules.
    """

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        gold = require_field(answer, "answer", (str, int, float, bool), self)
        return binary_judgement(is_right_answer(response, gold_of(gold), prompt))


@stage
class NumberAnswer:
    """1 if the final answer is a number within |a - b| <= absolute + relative |b| of
    the reference.
    """

    relative: float = 0.0
    absolute: float = 1e-9

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        text = strip_markup(gold_of(require_field(answer, "answer", PLAIN, self)))
        gold = parse_number(text)
        if gold is None:
            raise UserError(
                f"NumberAnswer: the answer {text[:40]!r} is no number; use `exact` for texts"
            )
        stated = extract_answer(response, text, prompt)
        number = None if stated is None else read_response_number(strip_markup(stated), gold[0])
        if number is None:
            return failed_judgement("unparsable")
        distance = min(abs(number[0] - value) for value in meant_values(text))
        near = distance <= abs(gold[0]) * _fraction(self.relative) + _fraction(self.absolute)
        return binary_judgement(number[1] == gold[1] and near)


def _fraction(tolerance: float) -> Any:
    from fractions import Fraction

    if not math.isfinite(tolerance) or tolerance < 0:
        raise UserError(
            f"NumberAnswer: a tolerance is {tolerance}; give a finite number, 0 or more"
        )
    return Fraction(tolerance)


@stage
class SetAnswer:
    """1 if the items of the final answer are those of the reference, none left out, repeated or
    added.

    `ordered` compares them as a list. `partial` pays F1 of the items instead of 0.
    """

    ordered: bool = False
    partial: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, prompt: str = "") -> Judgement:
        wanted = [str(x) for x in require_field(answer, "answer", (list, tuple), self)]
        stated = stated_answer(response)
        if stated is None:
            stated = plain_forms(strip_thinking(response)).strip()
            stated = without_kind(stated_listing(stated, wanted) or stated, prompt)
        gold = [item_key(shortest_decimal(x)) for x in wanted]
        if [item_key(shortest_decimal(x)) for x in items_of("; ".join(wanted), wanted)] != gold:
            raise UserError(
                "SetAnswer: an item of the answer is empty, or nothing but marks; give each a text"
            )
        items = items_of(stated, wanted) if len(stated) <= 20 * sum(map(len, wanted)) + 1000 else []
        if not items:
            return failed_judgement("unparsable")
        keys = [item_key(x) for x in items]
        equal = keys == gold if self.ordered else Counter(keys) == Counter(gold)
        common = sum((Counter(keys) & Counter(gold)).values())
        parts = {"precision": common / len(keys), "recall": common / max(1, len(gold))}
        f1 = 2 * common / (len(keys) + len(gold))
        score = 1.0 if equal else min(f1, REORDERED_WORTH) if self.partial else 0.0
        return Judgement(score=score, parts=parts)


def without_kind(text: str, prompt: str) -> str:
    """A listing without the plural in front of it that the question names: `Vitamins A, D and K`."""
    match = re.match(r"(?:the\s+)?([A-Za-z]{4,}s)\s+(?=\S+(?:,|\s+and\b))", text, re.IGNORECASE)
    named = match is not None and re.search(rf"\b{match[1]}\b", prompt, re.IGNORECASE)
    return text[match.end() :] if match and named else text


def items_of(text: str, golds: Sequence[str] = ()) -> list[str]:
    """The items of `{1, 2}`, `1, 2 and 3`, or of lines; brackets around all of them are left out.

    A separator inside one of the golds, as in `salt and pepper`, separates nothing where the text
    holds that gold.
    """
    if item_key(text) in map(item_key, golds):
        return [text]
    endless = ENDLESS.search(text[-40:])
    text = strip_markup(SET_NAME.sub("", text.strip()))
    for _ in range(3):
        if text[:1] + text[-1:] in ("{}", "[]", "()") and encloses(text):
            text = text[1:-1].strip()
    text = text.removeprefix("\\{").removesuffix("\\}")
    if ROW.fullmatch(text) and not GROUPED.search(text):  # 1 2 3
        text = ",".join(text.split())
    words = text.rstrip(".!").split()  # red green blue
    if len(golds) > 1 and len(words) == len(golds) and all(map(NAMES.fullmatch, [*golds, *words])):
        text = text if SEPARATOR.search(text) else ",".join(words)
    whole = sorted((gold for gold in golds if SEPARATOR.search(gold)), key=len, reverse=True)
    kept = "|".join(rf"(?<!\w){re.escape(gold)}(?!\w)" for gold in whole) or r"(?!)"
    text += ", ..." if endless else ""
    parts, start = [], 0
    for cut in re.finditer(rf"(?P<kept>{kept})|{SEPARATOR.pattern}", text, re.IGNORECASE):
        if cut["kept"] is None:
            parts.append(text[start : cut.start()])
            start = cut.end()
    parts = unlabel_items([p for p in (*parts, text[start:]) if p.strip()])
    # in one line, `- 5` is a number
    bulleted = "\n" in text.strip() or not any(map(str.isdigit, text))
    parts = [BULLET.sub("", part) if bulleted else part for part in parts]
    names = {m[1] if (m := NAME.match(part)) else "" for part in parts}
    if len(names) == 1 and not any("=" in gold for gold in golds):  # x = 1, x = 2
        parts = [NAME.sub("", part) for part in parts]
    if not any(ORDINAL.match(gold) for gold in golds):  # first red, then green
        parts = [ORDINAL.sub("", part) for part in parts]
    return [x for part in parts if (x := "..." if ETC.match(part) else strip_markup(part))]


def unlabel_items(parts: list[str]) -> list[str]:
    """The items of a list without their labels 1., 2., ... or a), b), ... and the line above them;
    as they are where not every item has the next label.
    """
    listed = parts[1:] if len(parts) > 1 and parts[0].rstrip().endswith(":") else parts
    label_matches = [LABEL.match(part) for part in listed]
    labels = [m[1] or m[2] for m in label_matches if m is not None]
    count = len(listed)
    expected = ([str(i + 1) for i in range(count)], list(ALPHABET[:count]))
    if labels in expected or labels == list(ALPHABET[:count].upper()):
        return [
            part[m.end() :] for part, m in zip(listed, label_matches, strict=True) if m is not None
        ]
    return listed if all(BULLET.match(part) for part in listed) else parts


def encloses(text: str) -> bool:
    """Whether the first bracket closes at the end."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return i == len(text) - 1
    return False


def item_key(text: str) -> object:
    """Equal keys = the same item: by value for numbers, else by text without markup and, where it
    is words, case.
    """
    plain = strip_markup(text)
    return parse_number(plain) or read_notation(plain) or text_key(plain)


@stage
class JsonAnswer:
    """1 if the reply is, or fences, or tags, or ends with JSON equal to the reference, and does not
    deny it or take it back. 1 = 1.0, but true is not 1, and keys stand once.
    """

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = answer
        if isinstance(answer, str):
            try:
                gold = strict_json(answer)
            except ValueError:
                gold = answer
        given = stated_json(strip_thinking(response))
        try:
            value = strict_json(given or "")
        except ValueError:
            return failed_judgement("unparsable")
        return binary_judgement(equal_json(value, gold))


def strict_json(text: str) -> Any:
    """JSON without NaN, infinities and repeated keys. Raises ValueError."""

    def no_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            raise ValueError("a key stands twice")
        return value

    return json.loads(text, parse_constant=no_constant, object_pairs_hook=unique)


def equal_json(a: Any, b: Any) -> bool:
    """Equality of data in which a truth value is no number, and no infinity or NaN
    equals anything.
    """
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b and math.isfinite(a)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_json(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal_json, a, b))
    return type(a) is type(b) and a == b


@stage
class TokenF1:
    """F1 of the words of the final answer (or whole reply) and the reference, without case,
    punctuation and articles.

    As in SQuAD (arXiv:1606.05250), the best of several references. A bag of words cannot tell "dog
    bites man" from "man bites dog", so words in another order are worth at most 0.9.
    """

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        given = require_field(answer, "answer", (str, int, float, list, tuple), self)
        texts = [str(a) for a in (given if isinstance(given, list | tuple) else [given])]
        golds = [words(t) for t in texts]
        if not all(golds) or not golds:
            raise UserError("TokenF1: an answer has no words; give it some, or use `exact`")
        stated = stated_answer(response)
        stated = strip_thinking(response) if stated is None else stated
        tokens = words(stated)
        if not tokens:
            return failed_judgement("unparsable", f1=0.0, exact=0.0)
        f1 = max(word_f1(tokens, gold) for gold in golds)
        exact = matches_gold(texts, stated)
        return Judgement(
            score=1.0 if exact else min(f1, REORDERED_WORTH),
            parts={"f1": f1, "exact": float(exact)},
        )


def words(text: str) -> list[Hashable]:
    """Words in lower case without punctuation and articles (of a text with nothing else, the
    articles); numbers by value.
    """
    text = text.casefold().replace("'", "").replace("−", "-").replace(" %", "%")
    tokens: list[Hashable] = [parse_number("".join(w.split())) or w for w in WORD.findall(text)]
    return [w for w in tokens if w not in ARTICLES] or tokens


def matches_gold(golds: list[str], text: str) -> bool:
    """Whether a text is one of the golds: a number by value, another text by its words."""
    return any(
        same_answer(text, g) if parse_number(strip_markup(g)) else words(text) == words(g)
        for g in golds
    )


def answer_f1(text: str, golds: list[str]) -> float:
    """F1 of the words of an answer and of the best of several golds, in 0 to 1. Where one of both
    is yes, no or noanswer and the other is not, it is 0 (HotpotQA's evaluation,
    arXiv:1809.09600).
    """
    tokens = words(text)
    each = ((tokens, words(gold)) for gold in golds)
    return max(
        (word_f1(a, b) for a, b in each if a and b and (a == b or not {*a, *b} & CLOSED)),
        default=0.0,
    )


def word_f1(a: list[Hashable], b: list[Hashable]) -> float:
    """F1 of two bags of words."""
    return 2 * sum((Counter(a) & Counter(b)).values()) / (len(a) + len(b))


@stage
class Keywords:
    """1 if the reply names a variant of every group of terms, and no forbidden term (RAIDEN-R1,
    arXiv:2505.10218).

    The answer is a list of groups, each a list of equivalent terms. Terms are compared in NFKC
    without case, as whole words where their script has spaces. A reply over `most_words` or that
    names a term `others` holds is stuffed: 0.
    """

    most_words: int = 200

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Sequence[str | Sequence[str]],
        *,
        forbidden: Sequence[str] = (),
        others: Sequence[str] = (),
    ) -> Judgement:
        groups = [[g] if isinstance(g, str) else list(g) for g in answer]
        if not groups or not all(groups):
            raise UserError("Keywords: a group has no terms; give each at least one")
        text = normalise_text(strip_thinking(response))
        if not text:
            return failed_judgement("unparsable")
        shares = [float(any(contains_term(t, text) for t in group)) for group in groups]
        clean = (
            not any(contains_term(t, text) for t in (*forbidden, *others))
            and len(text.split()) <= self.most_words
        )
        parts = {"share": sum(shares) / len(shares), "clean": float(clean)}
        return Judgement(score=float(clean and all(shares)), parts=parts)


def normalise_text(text: str) -> str:
    """The text without case, in Unicode's compatible form (NFKC), single blanks between its words."""
    import unicodedata

    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def contains_term(term: str, text: str) -> bool:
    """Whether a normalised text holds the term, as whole words unless its script is written without
    spaces.
    """
    term = normalise_text(term)
    spaced = not re.search(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]", term)
    return bool(re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text)) if spaced else term in text


@stage
class Abstention:
    """1 if the final answer, or the whole reply, is one of the reference's abstention phrases and
    nothing else.
    """

    @guard_verifier
    def __call__(self, response: str, answer: str | Sequence[str]) -> Judgement:
        whole, stated = strip_thinking(response), stated_answer(response)
        phrases = [words(t.replace("’", "'")) for t in (whole, stated) if t is not None]
        golds = [words(p) for p in ([answer] if isinstance(answer, str) else answer)]
        if not all(golds):
            raise UserError("Abstention: a phrase has no words; give it some")
        return binary_judgement(any(f in golds for f in phrases))
