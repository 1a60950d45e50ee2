"""Rules and a judge for the built-in problems, where a small model writes sums line by line."""

import re

import palaestra as pl

RULES: pl.rewards.RuleList = ("Ends with its answer.", "Shows a step.", "Says no line twice.")


def detector(request: pl.ChatRequest) -> str:
    """A program as the judge: Bad if a rule of its prompt is broken, of the three in RULES."""
    prompt = request.messages[-1].content
    rules, reply = (
        re.findall(rf"<{tag}>(.*?)</{tag}>", prompt, re.DOTALL)[-1]
        for tag in ("rubric", "response")
    )
    seen, lines = pl.rewards.text_properties(reply), reply.splitlines()
    kept = (
        bool(lines) and lines[-1].startswith("= "),
        seen["worked"] > 0,
        len(set(lines)) == len(lines),
    )
    broken = [rule for rule, held in zip(RULES, kept, strict=True) if rule in rules and not held]
    return f"{' '.join(broken)} [[{'Bad' if broken else 'Good'}]]"
