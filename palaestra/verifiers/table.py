"""The table of a verifier, from `cases/NAME.jsonl`: golds that must score 1, wrongs that must not,
and three baselines.

A line is what `palaestra score` reads, with `kind` ("gold" | "wrong"), `why` (what a wrong one
tries) and `most` (what it may score; 0 unless given).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from importlib import resources
from typing import Any

from palaestra.errors import UserError
from palaestra.types import value_class
from palaestra.verifiers.base import Judgement, judge_response
from palaestra.verifiers.registry import get_verifier, verifier_entry

OWN = ("kind", "why", "most", "response", "answer")
NOTHING = ("", "   ", "\n\n\t")
REFUSALS = (
    "I don't know.",
    "I cannot help with that.",
    "As a language model I am unable to answer this.",
)
KEYS = (
    ":",
    ".",
    ",",
    "Thought process:",
    "Let's solve this step by step.",
    "Solution",
    "correct",
    "null",
    "[]",
    "{}",
)


@value_class
class Case:
    kind: str
    response: str
    answer: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    most: float = 0.0


@lru_cache(maxsize=128)
def cases(name: str) -> tuple[Case, ...]:
    file = resources.files("palaestra.verifiers") / "cases" / f"{name}.jsonl"
    if not file.is_file():
        raise UserError(f"verifier {name!r} has no table of cases")
    return tuple(
        case_of(json.loads(line))
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip()
    )


def case_of(line: Mapping[str, Any]) -> Case:
    more = {k: v for k, v in line.items() if k not in OWN}
    own = {k: line[k] for k in OWN if k in line}
    given: dict[str, Any] = {"kind": "", **own}
    return Case(**given, fields=more)


def golds(name: str) -> list[Case]:
    return [c for c in cases(name) if c.kind == "gold"]


def wrongs(name: str) -> list[Case]:
    return [c for c in cases(name) if c.kind == "wrong"]


def judge(name: str, case: Case, response: str | None = None) -> Judgement:
    return judge_response(
        get_verifier(name),
        case.response if response is None else response,
        case.answer,
        case.fields,
    )


def ways(name: str, text: str) -> list[str]:
    """A text as it stands, and put where the verifier looks for an answer."""
    put = verifier_entry(name).put
    return [text, put.format(text)] if put not in ("", "{}") else [text]


def best_score(name: str, case: Case, texts: Sequence[str]) -> float:
    return max(
        (judge(name, case, way).score for text in texts for way in ways(name, text)), default=0.0
    )


def baselines(name: str) -> dict[str, float]:
    """Mean scores over the golds' problems of answers that know nothing: the input, another's
    answer, a refusal.
    """
    problems = golds(name)
    copied, constant, refused = [], [], []
    for case in problems:
        text = case.fields.get(verifier_entry(name).copies)
        copied.append(best_score(name, case, [str(text)] if text else []))
        others = [
            c.response for c in problems if (c.answer, c.fields) != (case.answer, case.fields)
        ]
        constant.append(
            sum(judge(name, case, o).score for o in others) / len(others) if others else 0.0
        )
        refused.append(best_score(name, case, REFUSALS))
    mean = lambda xs: sum(xs) / len(xs)
    return {"copy": mean(copied), "constant": mean(constant), "refuse": mean(refused)}
