"""What an agent accomplished, in words: asked of a model, or read from the environment's achievements."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import palaestra as pl
from palaestra.recipes.agents.relabel_instructions.instructed import (
    Achieved,
    completion,
    is_of_names,
    plain_name,
)

ASK = """Below is what an agent saw and did, step by step. Write up to {k} short instructions that it did accomplish, \
different ones, each on a line of its own as

STEP: INSTRUCTION

where STEP is the number of the step at which it was accomplished. Write only what was surely done, or NONE.

{steps}"""
CHECK = """Below is what an agent saw and did, step by step. Did it accomplish this instruction: "{instruction}"?
Answer with the number of the step at which it was accomplished alone, or NONE.

{steps}"""
BEHIND = re.compile(
    r"^[\s\-*\d.)]*?(?P<text>[^\W\d].*?)\s*\(\s*(?:at\s+)?step\s*(?P<step>\d+)\s*\)\W*$",
    re.IGNORECASE,
)
BEFORE = re.compile(r"^\W*(?:step\s*)?(?P<step>\d+)\W*[:.)\-]\s*(?P<text>\S.*?)\s*$", re.IGNORECASE)
LONGEST = 200  # characters of an instruction


@pl.value_class
class Claim:
    """An instruction that was accomplished. `verified`: the environment's achievements say so."""

    instruction: str
    step: int
    verified: bool = False


def steps_text(facts: Mapping[str, Any], chars: int = 6000) -> str:
    """A trajectory as text with numbered steps, about so long at most: where it is longer, what was
    seen is shortened, the longest first, so that every step stays.
    """
    steps = step_lines(facts)
    most = observation_room(steps, chars)
    step_texts = [
        "; ".join(
            (*did, f"saw: {seen[:most].rstrip()} ..." if len(seen) > most else f"saw: {seen}", *won)
        )
        if seen
        else "; ".join((*did, *won))
        for did, seen, won in steps
    ]
    return "\n".join(f"{i}. {text}" for i, text in enumerate(step_texts) if text)


def step_lines(facts: Mapping[str, Any]) -> list[tuple[list[str], str, list[str]]]:
    """By step: what was done, what was seen behind it, what was achieved by it."""
    observations, acted = facts["told"], facts["acted"]
    achieved: Achieved = facts["achieved"]
    lines = list[tuple[list[str], str, list[str]]]()
    for i in range(max(len(observations), len(acted) + 1)):
        seen = " ".join(text for _, text in observations[i]) if i < len(observations) else ""
        did = [f"did: {acted[i - 1]}"] if 0 < i <= len(acted) else []
        won = [f"achieved: {name}" for at, name in achieved if at == i]
        lines.append(
            (
                [*map(pl.judges.defuse, did)],
                pl.judges.defuse(" ".join(seen.split())),
                [*map(pl.judges.defuse, won)],
            )
        )
    return lines


def observation_room(steps: Sequence[tuple[list[str], str, list[str]]], chars: int) -> int:
    """The most characters of an observation with which the steps have at most `chars`."""
    left = chars - sum(
        len("00. ; saw:  ...\n") + len("; ".join((*did, *won))) for did, _, won in steps
    )
    lengths = sorted(len(seen) for _, seen, _ in steps)
    for n, length in enumerate(lengths):
        share = max(0, left) // (len(lengths) - n)
        if length > share:
            return share
        left -= length
    return lengths[-1] if lengths else 0


def is_shortened(facts: Mapping[str, Any], chars: int) -> bool:
    """Whether something that was seen is not told whole."""
    steps = step_lines(facts)
    return any(len(seen) > observation_room(steps, chars) for _, seen, _ in steps)


def read_claims(reply: str, most: int) -> list[Claim]:
    """The lines "STEP: INSTRUCTION" of a reply, or "INSTRUCTION (step STEP)", behind its thoughts; of
    equal instructions the first.
    """
    claims = dict[str, Claim]()
    for line in pl.verifiers.strip_thinking(reply).splitlines():
        match = BEHIND.match(line) or BEFORE.match(line)
        text = match["text"].strip(" \"'*`") if match else ""
        if match and text and len(text) <= LONGEST and plain_name(text) != "none":
            claims.setdefault(plain_name(text), Claim(instruction=text, step=int(match["step"])))
    return list(claims.values())[:most]


def read_step(reply: str) -> int | None:
    """The step that a reply names behind its thoughts: its last "step N" or "none", else its last number.
    None where it has neither, says "none", or begins with "no" or "not".
    """
    bare = pl.verifiers.strip_thinking(reply)
    if re.match(r"\W*(?:no|not)\b", bare, re.IGNORECASE):
        return None
    named = re.findall(r"\bstep\s*\d+|\bnone\b", bare, re.IGNORECASE)
    number = re.search(r"\d+$", (named or re.findall(r"\d+", bare) or [""])[-1])
    return int(number[0]) if number else None


def verify(claims: Sequence[Claim], facts: Mapping[str, Any]) -> tuple[list[Claim], list[Claim]]:
    """(kept, refuted). A claim made of achievements counts where these were achieved, from the action that
    completed it; any other one as it was claimed, unverified. Neither counts at step 0 or behind the last.
    """
    achieved, actions = facts["achieved"], len(facts["acted"])
    names = (*(n for _, n in achieved), *(facts.get("achievement_names") or ()))
    kept, refuted = list[Claim](), list[Claim]()
    for claim in claims:
        if is_of_names(claim.instruction, names):
            at = completion(claim.instruction, achieved)
            claim = Claim(
                instruction=claim.instruction, step=-1 if at is None else at, verified=True
            )
        (kept if 1 <= claim.step <= actions else refuted).append(claim)
    return kept, refuted


def claims_by_rule(facts: Mapping[str, Any], most: int) -> list[Claim]:
    """Each achievement of an episode, then each pair of them in their order: a captioner without a
    model.
    """
    achieved: Achieved = facts["achieved"]
    single = [Claim(instruction=plain_name(name), step=at) for at, name in achieved]
    pairs = [
        Claim(instruction=f"{a.instruction} then {b.instruction}", step=b.step)
        for i, a in enumerate(single)
        for b in single[i + 1 :]
    ]
    return [*single, *pairs][:most]
