"""Tool use: the calls that a reply makes, and answers that were reached through calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.answers.final import gold_of, is_right_answer
from palaestra.verifiers.answers.short import equal_json, strict_json
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)

CALL = re.compile(r"<tool_call>((?:(?!</?tool_call>).)*)</tool_call>", re.DOTALL)
OTHER_CALL = re.compile(  # a call in another form than the one that is asked for
    r"<\|?(?:tool|function)_?calls?\b|\[TOOL_CALLS\]|<function=|<invoke\b|<\|python_tag\|>",
    re.IGNORECASE,
)
CALL_KEYS = tuple(
    re.compile(rf"[\"'](?:{keys})[\"']\s*:")
    for keys in ("name|function", "arguments|args|parameters")
)
FORGED_MARKS = (
    "<tool_response>",
    "</tool_response>",
    "<observation>",
    "<|im_start|>",
    "<|im_end|>",
)


@stage
class ToolCalls:
    """1 if the reply's <tool_call>{"name", "arguments"}</tool_call> are the reference's, in any
    order or (`ordered`) in its own.

    The answer is a list of calls; an empty one means that no tool may be called, in no form: a call
    that stands in a JSON fence or in the markers of another model is one, though no host would run
    it. Numbers are not texts, nothing may be added or repeated. Parts: `names`, `arguments` (shares
    of the reference's calls), `extra` (1 = none). With `partial`, half of the names and half of the
    arguments that are right are paid, up to 0.9.
    """

    ordered: bool = False
    partial: bool = False

    @guard_verifier
    def __call__(self, response: str, answer: Any) -> Judgement:
        gold = [call_of(c) for c in require_field(answer, "answer", (list, tuple), self)]
        if None in gold:
            raise UserError(
                'ToolCalls: a call in the answer has no name; write [{"name": ..., "arguments": '
                "{...}}]"
            )
        text = strip_thinking(response)
        made = calls_of(text)
        if (
            made is None
            or any(f in text for f in FORGED_MARKS)
            or (not made and gold)
            or (not gold and has_other_call(text))
        ):
            return failed_judgement("unparsable", names=0.0, arguments=0.0, extra=0.0)
        wanted, found = [c for c in gold if c], made
        left = list(found)
        hit = sum(bool(take_first(left, lambda c, g=g: equal_json([*c], [*g]))) for g in wanted)
        left_names = [c[0] for c in found]
        named = sum(bool(take_first(left_names, lambda n, g=g: n == g[0])) for g in wanted)
        parts = {
            "names": named / len(wanted) if wanted else 1.0,
            "arguments": hit / len(wanted) if wanted else 1.0,
            "extra": float(len(found) <= len(wanted)),
        }
        same = (
            equal_json([[*c] for c in found], [[*g] for g in wanted])
            if self.ordered
            else hit == len(wanted) == len(found)
        )
        worth = (
            min(0.9, (parts["names"] + parts["arguments"]) / 2)
            * len(wanted)
            / max(len(found), len(wanted), 1)
        )
        return Judgement(score=1.0 if same else worth if self.partial else 0.0, parts=parts)


def call_of(given: Any) -> tuple[str, Any] | None:
    if (
        not isinstance(given, Mapping)
        or not isinstance(given.get("name"), str)
        or not given["name"]
    ):
        return None
    arguments = given.get("arguments", given.get("args", {}))
    return (
        (given["name"], arguments) if isinstance(arguments, Mapping) and len(given) <= 2 else None
    )


def calls_of(text: str) -> list[tuple[str, Any]] | None:
    """The calls of a text; None where one cannot be read."""
    if text.count("<tool_call>") != text.count("</tool_call>"):
        return None
    found: list[tuple[str, Any]] = []
    for block in CALL.findall(text):
        try:
            call = call_of(strict_json(block))
        except ValueError:
            return None
        if call is None:
            return None
        found.append(call)
    return found if len(found) == text.count("<tool_call>") else None


def has_other_call(text: str) -> bool:
    """Whether a text without <tool_call> holds a call all the same."""
    return bool(OTHER_CALL.search(text)) or all(k.search(text) for k in CALL_KEYS)


def take_first(left: list[Any], fits: Any) -> bool:
    """Takes the first thing that fits out of a list."""
    at = next((i for i, x in enumerate(left) if fits(x)), None)
    if at is not None:
        left.pop(at)
    return at is not None


@stage
class ToolAnswer:
    """1 if the last turn of a transcript gives the reference, and the turns before made their calls
    properly.

    `turns` are the policy's earlier turns. Parts: `answer`; `valid`, the share of turns whose calls
    can be read; `fresh`, the share of calls not made before; `honest`, 0 where a turn writes what
    only a tool may write; `asked`, whether one of the tools of `tools`, if given, was called.
    Forgery, and no call where one is needed, are 0; `weights` take the two shares off.
    """

    # for calls that cannot be read, and that were made before
    weights: tuple[float, float] = (0.1, 0.1)

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Any,
        *,
        turns: Sequence[str] = (),
        tools: Sequence[str] = (),
        prompt: str = "",
    ) -> Judgement:
        gold = gold_of(require_field(answer, "answer", (str, int, float), self))
        parts = turn_parts([*turns, response], tools)
        parts["answer"] = float(
            is_right_answer(response, gold, prompt)
            and "<tool_call>" not in strip_thinking(response)
        )
        a, b = self.weights
        score = parts["answer"] * parts["honest"] * parts["asked"]
        score *= 1 - a * (1 - parts["valid"]) - b * (1 - parts["fresh"])
        return Judgement(score=max(0.0, score), parts=parts)


def turn_parts(turns: Sequence[str], tools: Sequence[str] = ()) -> dict[str, float]:
    """What can be said of the calls in the policy's turns, each in [0, 1]."""
    read = [calls_of(strip_thinking(t)) for t in turns]
    calls = [json.dumps(c, sort_keys=True) for found in read for c in found or []]
    names = {c[0] for found in read for c in found or []}
    return {
        "valid": sum(found is not None for found in read) / len(read),
        "fresh": len(set(calls)) / len(calls) if calls else 1.0,
        "honest": float(not any(f in t for t in turns for f in FORGED_MARKS)),
        "asked": float(not tools or bool(names & set(tools))),
    }
