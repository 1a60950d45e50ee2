"""Tool use: the calls that a reply makes, and answers that were reached through calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from palaestra.chat.reply import forged_mark, outside_thoughts
from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.answers.calls import call_of, calls_of, has_other_call, makes_calls
from palaestra.verifiers.answers.final import gold_of, is_right_answer
from palaestra.verifiers.answers.short import equal_json
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
)


@stage
class ToolCalls:
    """1 if the reply's <tool_call>{"name", "arguments"}</tool_call> are the reference's, in any
    order or (`ordered`) in its own.

    The answer is a list of calls, as `answers.calls.call_of` reads them; an empty one means that no
    tool may be called, in no form: a call that stands in a JSON fence, in Python or in the markers
    of another model is one, though no host would run it. Calls are the end of a reply, so text
    behind one, and a fence, a quotation or words before it that only mention it, are 0; so is a
    call in another form beside. Numbers are not texts, nothing may be added or repeated. Parts: `names`, `arguments` (shares
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
                "ToolCalls: a call in the answer cannot be read, or has a key beside its name and "
                'arguments; write [{"name": ..., "arguments": {...}}]'
            )
        text = outside_thoughts(response)
        made = calls_of(text)
        if (
            made is None
            or not text.strip()
            or forged_mark(text)
            or not (makes_calls(text) if made else not gold and not has_other_call(text))
        ):
            return failed_judgement("unparsable", names=0.0, arguments=0.0, extra=0.0)
        wanted, calls = [c for c in gold if c], made
        left = list(calls)
        hit = sum(bool(take_first(left, lambda c, g=g: equal_json([*c], [*g]))) for g in wanted)
        left_names = [c[0] for c in calls]
        named = sum(bool(take_first(left_names, lambda n, g=g: n == g[0])) for g in wanted)
        parts = {
            "names": named / len(wanted) if wanted else 1.0,
            "arguments": hit / len(wanted) if wanted else 1.0,
            "extra": float(len(calls) <= len(wanted)),
        }
        same = (
            equal_json([[*c] for c in calls], [[*g] for g in wanted])
            if self.ordered
            else hit == len(wanted) == len(calls)
        )
        worth = (
            min(0.9, (parts["names"] + parts["arguments"]) / 2)
            * len(wanted)
            / max(len(calls), len(wanted), 1)
        )
        return Judgement(score=1.0 if same else worth if self.partial else 0.0, parts=parts)


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
            and "<tool_call>" not in outside_thoughts(response)
        )
        a, b = self.weights
        score = parts["answer"] * parts["honest"] * parts["asked"]
        score *= 1 - a * (1 - parts["valid"]) - b * (1 - parts["fresh"])
        return Judgement(score=max(0.0, score), parts=parts)


def turn_parts(turns: Sequence[str], tools: Sequence[str] = ()) -> dict[str, float]:
    """What can be said of the calls in the policy's turns, each in [0, 1]."""
    read = [calls_of(outside_thoughts(t)) for t in turns]
    calls = [json.dumps(c, sort_keys=True) for call in read for c in call or []]
    names = {c[0] for call in read for c in call or []}
    return {
        "valid": sum(call is not None for call in read) / len(read),
        "fresh": len(set(calls)) / len(calls) if calls else 1.0,
        "honest": float(not any(map(forged_mark, turns))),
        "asked": float(not tools or bool(names & set(tools))),
    }
