"""Instructions that a program can check, in four categories (MulDimIF, arXiv:2505.07591; IFEval,
arXiv:2311.07911).

A constraint is [category, kind, value, ...], e.g. ["length", "words", "at most", 50]; a pair [kind,
value] is one of `palaestra.toys.constraints`. A level is the number of different kinds in a prompt,
from I to IV.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from xml.etree import ElementTree

from palaestra.errors import UserError
from palaestra.toys import constraints as simple
from palaestra.types import stage
from palaestra.verifiers.answers.short import contains_term, normalise_text, strict_json
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    fences,
    guard_verifier,
    strip_thinking,
)
from palaestra.verifiers.text.formats import repeated_share, script_of, scripts
from palaestra.verifiers.text.writing import sentences_in, shown_text, visible_form, words_in

Checker = Callable[..., bool]
END_TOKENS = ("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>")
RELEASED_END_TOKENS = ("<|endoftext|>", "<|im_end|>")
WORD = r"[^\W\d_]+(?:'\w+)?"


def has_case(text: str, way: Callable[[str], bool]) -> bool:
    """Whether the letters are so; a text without letters is neither lower nor upper."""
    return any(c.isalpha() for c in text) and way(text)


def count_word(word: str, text: str) -> int:
    return len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text))


def is_within(n: int, how: str, *bounds: float) -> bool:
    match how, bounds:
        case "at least", [low]:
            return n >= low
        case "at most", [high]:
            return n <= high
        case "exactly", [number]:
            return n == number
        case "between", [low, high]:
            return low <= n <= high
        case _:
            raise UserError(
                f"constraint: {how!r} {bounds} is no bound; write at least, at most, exactly N, or "
                "between A B"
            )


def uses(word: str, text: str) -> bool:
    """Whether a text shows a word, whatever it is written with; an underscore is a space."""
    plain = lambda t: normalise_text(visible_form(t, fold=True).replace("_", " "))
    return any(contains_term(plain(word), plain(t)) for t in (text, shown_text(text)))


def paragraphs_in(text: str) -> int:
    return len([p for p in re.split(r"\n\s*\n", text) if p.strip()])


def is_json(text: str, *keys: str) -> bool:
    """An object with these keys, or a list of such objects, and nothing around it but a fence."""
    blocks = fences(text, ("json", ""))
    try:
        value = strict_json(
            blocks[0] if len(blocks) == 1 and text.strip().startswith("```") else text
        )
    except ValueError:
        return False
    items = value if isinstance(value, list) else [value]
    return (
        bool(items)
        and isinstance(value, list | dict)
        and all(isinstance(x, dict) and set(keys) <= set(x) for x in items)
    )


def is_xml(text: str, *tags: str) -> bool:
    """One element, without a document type (which could define entities), that holds these tags."""
    if "<!" in text:
        return False
    try:
        root = ElementTree.fromstring(text.strip())
    except (ElementTree.ParseError, ValueError):
        return False
    return set(tags) <= {e.tag for e in root.iter()}


def has_table(text: str, columns: int = 0, rows: int = 0) -> bool:
    """A Markdown table with at least so many columns and rows, no cell of which is empty."""
    lines = [
        line.strip().strip("|").split("|") for line in text.splitlines() if line.count("|") >= 1
    ]
    at = next(
        (
            i
            for i, cells in enumerate(lines)
            if all(re.fullmatch(r"\s*:?-{3,}:?\s*", c) for c in cells)
        ),
        None,
    )
    if not at:
        return False
    body, n = lines[at + 1 :], len(lines[at])
    full = all(
        len(cells) == n and all(c.strip() for c in cells) for cells in [lines[at - 1], *body]
    )
    return full and n >= max(1, columns) and len(body) >= max(1, rows)


def lines_that(pattern: str) -> Checker:
    def check(text: str, how: str = "at least", *bounds: float) -> bool:
        return is_within(len(re.findall(pattern, text, re.MULTILINE)), how, *(bounds or (1,)))

    return check


CHECKERS: Mapping[tuple[str, str], Checker] = {
    ("content", "keyword"): lambda text, word,
    n=1: count_word(normalise_text(word), normalise_text(text)) >= n,
    ("content", "forbidden"): lambda text, *ws: not any(uses(w, text) for w in ws),
    ("content", "start"): lambda text, start: text.lstrip().startswith(start),
    ("content", "end"): lambda text, end: text.rstrip().endswith(end),
    ("content", "without"): lambda text, *marks: not any(
        m in t or (visible_form(m) or m) in visible_form(t)
        for m in marks
        for t in (text, shown_text(text))
    ),
    ("content", "postscript"): lambda text,
    mark="P.S.": bool(re.search(rf"^{re.escape(mark)}\s*\S", text, re.MULTILINE)),
    ("format", "json"): is_json,
    ("format", "xml"): is_xml,
    ("format", "table"): has_table,
    ("format", "headings"): lines_that(r"^#{1,6} +\S"),
    ("format", "bullets"): lines_that(r"^[ \t]*[-*•] +\S"),
    ("format", "numbered"): lines_that(r"^[ \t]*[0-9]+[.)] +\S"),
    ("format", "bold"): lines_that(r"\*\*[^*\s](?:[^*\n]*[^*\s])?\*\*"),
    ("language", "lowercase"): lambda text: has_case(text, lambda t: t == t.lower()),
    ("language", "uppercase"): lambda text: has_case(text, lambda t: t == t.upper()),
    ("language", "capitalised"): lambda text: has_case(text, lambda t: all(w[0].isupper() for w in re.findall(WORD, t))),
    ("language", "script"): lambda text, name,
    share=0.9: scripts(text).get(script_of(name), 0.0) >= share,
    ("length", "words"): lambda text, how, *bounds: is_within(words_in(text), how, *bounds),
    ("length", "sentences"): lambda text, how, *bounds: is_within(sentences_in(text), how, *bounds),
    ("length", "paragraphs"): lambda text, how,
    *bounds: is_within(paragraphs_in(text), how, *bounds),
    ("length", "characters"): lambda text, how, *bounds: is_within(len(text.strip()), how, *bounds),
}  # fmt: skip
CATEGORIES = ("content", "format", "language", "length")
WORDING: Mapping[tuple[str, str], str] = {
    ("content", "keyword"): 'use the word "{}"',
    ("content", "forbidden"): 'do not use the word "{}"',
    ("content", "start"): 'begin with "{}"', ("content", "end"): 'end with "{}"',
    ("content", "without"): 'do not write "{}"',
    ("content", "postscript"): "add a postscript that starts with {}",
    ("format", "json"): "answer in JSON with the keys {}",
    ("format", "xml"): "answer in XML with the tags {}",
    ("format", "table"): "write a Markdown table with {} columns",
    ("format", "headings"): "write {} headings", ("format", "bullets"): "write {} bullet points",
    ("format", "numbered"): "write {} numbered points",
    ("format", "bold"): "write {} passages in bold",
    ("language", "lowercase"): "write only lowercase letters",
    ("language", "uppercase"): "write only capital letters",
    ("language", "capitalised"): "start every word with a capital letter",
    ("language", "script"): "write in {} letters",
    ("length", "words"): "write {} words", ("length", "sentences"): "write {} sentences",
    ("length", "paragraphs"): "write {} paragraphs",
    ("length", "characters"): "write {} characters",
}  # fmt: skip


@stage
class Constraints:
    """1 if every constraint of `constraints` is kept (`every`), or the share that is.

    An empty or degenerate reply keeps none: it would keep each "at most". Parts: `share`, one for
    each category, and `paper`, the number kept, which is what MulDimIF trains on. End tokens are
    cut off as whole suffixes: the released code's strip of a set of characters (`released`) eats
    letters of the text as well. Forbidden words and marks are looked for in the text as it looks:
    look-alike letters, widths and what is not shown change nothing. Comments and tags of HTML are
    counted nowhere.
    """

    every: bool = True
    released: bool = False

    @guard_verifier
    def __call__(
        self, response: str, answer: Any, *, constraints: Sequence[Sequence[Any]]
    ) -> Judgement:
        given = [list(c) for c in constraints]
        if not given:
            raise UserError("Constraints: a prompt has none; give at least one, or drop it")
        text = strip_thinking(response)
        text = strip_end_characters(text) if self.released else strip_end_tokens(text)
        if not any(c.isalnum() for c in text) or is_stuffed(text):
            return failed_judgement("unparsable", share=0.0, paper=0.0)
        kept = [keeps_constraint(text, c) for c in given]
        parts = {"share": sum(kept) / len(kept), "paper": float(sum(kept))}
        for category in CATEGORIES:
            if own := [k for k, c in zip(kept, given, strict=True) if kind_of(c)[0] == category]:
                parts[category] = sum(own) / len(own)
        return Judgement(score=float(all(kept)) if self.every else parts["share"], parts=parts)


def is_stuffed(text: str) -> bool:
    """Whether one word, or a loop, is most of a text."""
    tokens = re.findall(r"\w+", text.casefold())
    return repeated_share(tokens, 3) > 0.7 or (
        len(tokens) > 2 and Counter(tokens).most_common(1)[0][1] > len(tokens) / 2
    )


def strip_end_tokens(text: str) -> str:
    """A reply without the end tokens behind it."""
    text = unicodedata.normalize("NFC", text).strip()
    while ending := next((e for e in END_TOKENS if text.endswith(e)), ""):
        text = text.removesuffix(ending).rstrip()
    return text


def strip_end_characters(text: str) -> str:
    """A reply as the released code cuts it (for Qwen): what is at its end of the characters of the
    end tokens.
    """
    text = unicodedata.normalize("NFC", text)
    for ending in RELEASED_END_TOKENS:
        text = text.strip().rstrip(ending)
    return text.strip()


def kind_of(constraint: Sequence[Any]) -> tuple[str, str]:
    match constraint:
        case [str(category), str(kind), *_] if (category, kind) in CHECKERS:
            return category, kind
        case [str(kind), *_] if kind in simple.CHECKS:
            return "simple", kind
        case _:
            pass
    kinds = ", ".join(" ".join(k) for k in CHECKERS)
    raise UserError(
        f"constraint {list(constraint)} is unknown; write [category, kind, value...] with one of "
        f"{kinds}"
    )


def keeps_constraint(text: str, constraint: Sequence[Any]) -> bool:
    kind = kind_of(constraint)
    try:
        # a forbidden word must be absent from what is shown and from what is not
        hides = kind[1] not in ("json", "xml", "forbidden", "without")
        text = shown_text(text).strip() if hides else text
        if kind[0] == "simple":
            return simple.CHECKS[kind[1]](text, str(constraint[1]) if len(constraint) > 1 else "")
        return bool(CHECKERS[kind](text, *constraint[2:]))
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"constraint {list(constraint)}: {error}; see palaestra.verifiers.text.constraints"
        ) from None


def constraint_level(constraints: Sequence[Sequence[Any]]) -> int:
    """1 to 4: how many kinds there are."""
    return min(4, len({kind_of(c) for c in constraints}))


def has_conflict(constraints: Sequence[Sequence[Any]]) -> bool:
    """Whether two of them cannot be kept together."""
    kinds = [kind_of(c) for c in constraints]
    cases = {("language", "lowercase"), ("language", "uppercase"), ("language", "capitalised")}
    whole_text = {("format", "json"), ("format", "xml"), ("format", "table")}
    if len(cases & set(kinds)) > 1 or len(whole_text & set(kinds)) > 1:
        return True
    used = {normalise_text(c[2]) for c in constraints if kind_of(c) == ("content", "keyword")}
    if any(
        normalise_text(w) in used
        for c in constraints
        if kind_of(c) == ("content", "forbidden")
        for w in c[2:]
    ):
        return True
    lows: dict[tuple[str, str], float] = {}
    highs: dict[tuple[str, str], float] = {}
    for c in (c for c in constraints if kind_of(c)[0] == "length"):
        low = float("-inf") if c[2] == "at most" else float(c[3])
        high = float("inf") if c[2] == "at least" else float(c[-1])
        lows[kind_of(c)] = max(low, lows.get(kind_of(c), low))
        highs[kind_of(c)] = min(high, highs.get(kind_of(c), high))
    return any(lows[k] > highs[k] for k in lows)


def constraint_wording(
    constraints: Sequence[Sequence[Any]],
    pattern: Literal["listing", "prose", "example"] = "listing",
) -> str:
    """The constraints as a prompt puts them: as a list, within a sentence, or after an example of
    such an instruction.
    """
    sentences = [WORDING[kind_of(c)].format(" ".join(map(str, c[2:]))) for c in constraints]
    if pattern == "listing":
        return "\n".join(f"- {t[0].upper()}{t[1:]}." for t in sentences)
    sentence = (
        f"Please {', '.join(sentences[:-1])}{' and ' if sentences[1:] else ''}{sentences[-1]}."
    )
    example = 'An answer to "write 3 words and end with !" would be: Rain is here!\n'
    return (example if pattern == "example" else "") + sentence
