"""Answers that are wrong for certain, by their making: a gold of the table with one thing about it
changed.

A maker takes a verifier's name, a gold and a random stream, and gives a response; "" where this
gold has nothing of its kind. None asks the verifier. What they change cannot be right in any
reading: other values, members, columns, labels, words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from fractions import Fraction
from typing import Any

import numpy as np

from palaestra.verifiers.answers.final import fold_case, parse_number, strip_markup
from palaestra.verifiers.registry import verifier_entry
from palaestra.verifiers.table import Case, golds
from tools.verifiers.slips import Maker, asked_again, left_standing, off_by_one, pick

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LISTS = ("{}", "[{}]", "<answer>{}</answer>", "\\boxed{{{}}}", "The answer is {}.")
CHOICES = ("{}", "<answer>{}</answer>", "\\boxed{{{}}}", "({})", "**{}**", "The answer is {}.")
CALL = "<tool_call>{}</tool_call>"
OPPOSITE = (  # of a label, a verdict, a theorem
    (re.compile(r"\[\[ *A *\]\]"), "[[B]]"),
    (re.compile(r"\[\[ *B *\]\]"), "[[A]]"),
    (re.compile(r"\\conclusion\{ *T *\}"), r"\\conclusion{F}"),
    (re.compile(r"\\conclusion\{ *F *\}"), r"\\conclusion{T}"),
    (re.compile(r"\bdisproved\b", re.IGNORECASE), "proved"),
    (re.compile(r"\bproved\b", re.IGNORECASE), "disproved"),
)
SELECTED = re.compile(r"(?<=SELECT )(?P<table>u\.)?(?:name|updated_at|min\(name\))")
RETURNED = re.compile(r"(?<=return )[^\n]+|(?<=lambda a, b: )[^\n]+|(?<=print\()[^\n]+(?=\))")


def borrowed(name: str, case: Case, rng: np.random.Generator) -> str:
    """The gold response of a problem with another answer."""
    others = [c for c in golds(name) if different(c, case)]
    return pick(rng, others).response if others else ""


def spliced(name: str, case: Case, rng: np.random.Generator) -> str:
    """The answer of another problem in the place of this one's."""
    texts = [t for c in golds(name) if different(c, case) for t in texts_of(c.answer)]
    return in_place(name, case, rng, pick(rng, texts)) if texts else ""


def counted(name: str, case: Case, rng: np.random.Generator) -> str:
    """One number of the answer is another."""
    own = pick(rng, texts_of(case.answer) or [""])
    found = list(re.finditer(r"[0-9]+", own))
    if not found or isinstance(case.answer, list):
        return ""
    at = pick(rng, found)
    step = int(pick(rng, (-1, 1, 1, int(rng.integers(2, 10**6)))))
    other = str(abs(int(at[0]) + step)) if int(at[0]) + step else "5"
    return in_place(name, case, rng, own[: at.start()] + other + own[at.end() :])


def retyped(name: str, case: Case, rng: np.random.Generator) -> str:
    """One letter of the answer is one that it has not."""
    own = pick(rng, texts_of(case.answer) or [""])
    places = [i for i, c in enumerate(own) if c.isalpha()]
    if not places or (isinstance(case.answer, list) and len(case.answer) > 1):
        return ""
    at, other = pick(rng, places), pick(rng, [c for c in LETTERS if c not in own.casefold()])
    return in_place(name, case, rng, own[:at] + other + own[at + 1 :])


def lettered(name: str, case: Case, rng: np.random.Generator) -> str:
    """Another option: by its letter as shown, by its text, by both."""
    own, answer = [str(o) for o in case.fields["options"]], case.answer
    shown = [own[i] for i in case.fields.get("order", range(len(own)))]
    right = (
        own[answer]
        if isinstance(answer, int)
        else answer
        if answer in own
        else own["ABCDEFGH".index(answer)]
    )
    place = pick(rng, [i for i, o in enumerate(shown) if o != right])
    letter = "ABCDEFGH"[place]
    return pick(rng, CHOICES).format(
        pick(rng, (letter, letter.lower(), shown[place], f"{letter}. {shown[place]}"))
    )


def members(name: str, case: Case, rng: np.random.Generator) -> str:
    """One member of the list is another, left out, added, or said twice; of a list in order two
    have changed places.
    """
    gold = [str(x) for x in case.answer]
    i, strange = (
        int(rng.integers(len(gold))),
        f"{pick(rng, ('zebra', 'quartz', 'olive'))} {rng.integers(100)}",
    )
    changed = pick(rng, (f"{gold[i]}9", strange))
    ways = [[*gold[:i], changed, *gold[i + 1 :]], [*gold, strange], [*gold, gold[i]]]
    ways += [[*gold[:i], *gold[i + 1 :]]] if len(gold) > 1 else []
    ways += [gold[::-1]] if name == "list" and gold[::-1] != gold else []
    said = pick(rng, ways)
    if rng.random() < 0.3:
        return "\n".join(f"- {x}" for x in said)
    return pick(rng, LISTS).format(pick(rng, ("; ", ", ")).join(said))


def leaf(name: str, case: Case, rng: np.random.Generator) -> str:
    """One value of the data is another; of tool calls also one more, or one less."""
    data = deepcopy(case.answer)
    calls = name.startswith("tool-calls")
    if calls and (not data or rng.random() < 0.3):
        data = (
            data[1:] if data and rng.random() < 0.5 else [*data, {"name": "olive", "arguments": {}}]
        )
    else:
        places = [
            (owner, k)
            for owner in walked(data)
            for k in (owner if isinstance(owner, dict) else range(len(owner)))
        ]
        places = [(owner, k) for owner, k in places if not isinstance(owner[k], dict | list)]
        owner, k = pick(rng, places)
        owner[k] = other_value(owner[k], rng)
    if calls:
        return "".join(CALL.format(json.dumps(c)) for c in data) or "None is needed."
    text = json.dumps(data)
    return pick(rng, (text, f"```json\n{text}\n```", f"<answer>{text}</answer>"))


def computed(name: str, case: Case, rng: np.random.Generator) -> str:
    """An expression over the numbers, or over others, with a value that is not the target; or a
    false claim that it is.
    """
    numbers, target = [Fraction(n) for n in case.fields["numbers"]], Fraction(case.answer)
    if rng.random() < 0.2:  # the target by numbers that are not there
        strange = max(map(abs, numbers)) + int(rng.integers(1, 100))
        return f"{target + strange}-{strange}"
    order = [numbers[int(i)] for i in rng.permutation(len(numbers))]
    text, value = str(order[0]), order[0]
    for n in order[1:]:
        sign = pick(rng, "+-*/" if n else "+-*")
        value = {"+": value + n, "-": value - n, "*": value * n, "/": value / (n or 1)}[sign]
        text = f"({text}){sign}{n}"
    if value == target:
        return ""
    return pick(rng, ("{}", "<answer>{}</answer>", "{} = " + str(target))).format(text)


def constant(name: str, case: Case, rng: np.random.Generator) -> str:
    """Code that gives one value whatever it is asked."""
    other = pick(rng, (str(rng.integers(1000, 9999)), "None", "'x'", "[]", "True", "-1.5"))
    return changed(case, RETURNED.sub(other, case.response))


def column(name: str, case: Case, rng: np.random.Generator) -> str:
    """Another column of the table, one of another, or one of none."""
    other = pick(rng, ("age", "id", "price", "user_id", "total"))
    return changed(case, SELECTED.sub(rf"\g<table>{other}", case.response, count=1))


def negated(name: str, case: Case, rng: np.random.Generator) -> str:
    """The other label."""
    return next(
        (p.sub(other, case.response) for p, other in OPPOSITE if p.search(case.response)), ""
    )


def unnamed(name: str, case: Case, rng: np.random.Generator) -> str:
    """The terms of one group are misspelt."""
    group = pick(rng, case.answer)
    text = case.response
    for term in group:
        text = re.sub(
            re.escape(term),
            f"{term[0]}x{term[1:]}" if term.isascii() else "象",
            text,
            flags=re.IGNORECASE,
        )
    return changed(case, text)


def reworded(name: str, case: Case, rng: np.random.Generator) -> str:
    """One word of the translation is another, or gone."""
    before, text, after = re.split(r"(?<=<translate>)(.*)(?=</translate>)", case.response)
    words = text.split()
    i = int(rng.integers(len(words)))
    words[i : i + 1] = pick(rng, ([], ["quartz"], [words[i], "quartz"]))
    return before + " ".join(words) + after


# What is wrong for certain, by verifier. Where several golds may answer one problem (constraints,
# tags) nothing is.
TEXT: tuple[Maker, ...] = (borrowed, spliced, counted, retyped)
SQL: tuple[Maker, ...] = (borrowed, spliced, column)
MISTAKES: Mapping[str, tuple[Maker, ...]] = {
    "exact": TEXT, "number": TEXT[:3], "boxed": TEXT, "f1": TEXT, "gym": TEXT[:3],
    "math": (*TEXT[:3], asked_again, left_standing),
    "tool-answer": TEXT, "selective": TEXT, "factuality": TEXT,
    "abstention": (borrowed, spliced, retyped),
    "set": (borrowed, members), "set-f1": (borrowed, members), "list": (borrowed, members),
    "json": (borrowed, leaf),
    "tool-calls": (borrowed, leaf), "tool-calls-partial": (borrowed, leaf),
    "keywords": (borrowed, unnamed),
    "choice": (lettered,), "choice-boxed": (lettered,), "countdown": (computed,),
    "antiderivative": (borrowed, left_standing),
    "code": (constant,), "code-partial": (constant,), "api-migration": (borrowed, spliced, retyped),
    "patch": (borrowed,), "verilog": (borrowed,), "sql": SQL, "sql-partial": SQL, "sql-table": SQL, "sql-duckdb": SQL,
    "stl": (*TEXT[:3], off_by_one), "stl-surface": (*TEXT[:3], off_by_one),
    "spelling": (borrowed, spliced, retyped),
    "translation": (borrowed, reworded), "translation-mix": (borrowed, reworded),
    "label": (negated,),
    "theorem": (borrowed, negated), "verdict": (borrowed, negated),
}  # fmt: skip


def mistaken(name: str, case: Case, rng: np.random.Generator) -> str:
    """A response that is wrong for certain, at times behind thoughts that hold the right one; "" if
    this gold gives none.
    """
    text = pick(rng, MISTAKES[name])(name, case, rng)
    return f"<think>{case.response}</think>\n{text}" if text and rng.random() < 0.25 else text


def texts_of(answer: Any) -> list[str]:
    """An answer's texts: one, or each of several that are all right."""
    return [
        str(a)
        for a in (answer if isinstance(answer, list) else [answer])
        if isinstance(a, str | int | float)
    ]


def different(a: Case, b: Case) -> bool:
    """Whether two problems have no answer in common; without answers, whether they ask for
    different things.
    """
    if a.answer is None or b.answer is None:
        return a.answer is not b.answer or a.fields != b.fields
    one, other = (
        {parse_number(strip_markup(t)) or fold_case(strip_markup(t)) for t in texts_of(c.answer)}
        for c in (a, b)
    )
    return one.isdisjoint(other) if one and other else a.answer != b.answer


def in_place(name: str, case: Case, rng: np.random.Generator, other: str) -> str:
    """The gold with another answer in the place of its own, or the other answer where the verifier
    looks for one.
    """
    held = [t for t in texts_of(case.answer) if case.response.count(t) == 1 and "think" not in t]
    put = verifier_entry(name).put
    if held and (not put or rng.random() < 0.7):
        return case.response.replace(max(held, key=len), other)
    return put.format(other) if put else ""


def changed(case: Case, text: str) -> str:
    return "" if text == case.response else text


def walked(data: Any) -> list[Any]:
    """All objects and lists within data, itself among them."""
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return (
        [data, *(x for part in inside for x in walked(part))]
        if isinstance(data, dict | list)
        else []
    )


def other_value(given: Any, rng: np.random.Generator) -> Any:
    if isinstance(given, bool):
        return not given
    if isinstance(given, int | float):
        return given + pick(rng, (-1, 1, 0.5, 1000))
    return pick(rng, (f"{given}x", f"x{given}", given[1:]))
