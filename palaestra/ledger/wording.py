"""Published results in words: an effect with its interval, what the controls said, the time."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

SAID = "what its result does not show"  # a column of limits.tsv
# the sentence of a note that says it
CANNOT_SHOW = re.compile(r"(?:Cannot show|What this cannot show): (.+?)\.(?= [A-Z`]|$)")


def controls_line(result: Mapping[str, Any]) -> str:
    """What the controls of a result said, in one line."""
    sentences = [c["said"] for c in result.get("controls", {}).values() if "said" in c]
    lacks = result.get("lacks", [])
    return "; ".join([*sentences, *([f"not declared: {', '.join(lacks)}"] if lacks else [])])


def ends(record: Mapping[str, Any], digits: int = 3) -> str:
    """An effect with its interval."""
    low, high = record["ci95"]
    return interval({"mean": record["effect"], "low": low, "high": high}, digits)


def edges(result: Mapping[str, Any]) -> dict[str, str]:
    """Of each arm whose chosen setting is the least or the largest number of several that were
    tried, which it is: a better one may lie beyond.
    """
    at_edge: dict[str, str] = {}
    for arm, tried in result.get("tuning", {}).get("arms", {}).items():
        for key, chosen in result["arms"].get(arm, {}).get("setting", {}).items():
            known = (row["setting"].get(key) for row in tried)
            numbers = {x for x in known if isinstance(x, int | float)}
            if len(numbers) > 1 and chosen in (min(numbers), max(numbers)):
                end = "lowest" if chosen == min(numbers) else "highest"
                at_edge[arm] = f"{key}={chosen}, the {end} tried"
    return at_edge


def unequal(result: Mapping[str, Any], arms: Sequence[str]) -> str:
    """How many settings were tried for each of these arms, where that is not as many; else ""."""
    tried = result.get("tuning", {}).get("arms", {})
    counts = {arm: len(tried[arm]) for arm in arms if arm in tried}
    if len(set(counts.values())) < 2:
        return ""
    return "settings tried: " + ", ".join(f"{n} for {arm}" for arm, n in counts.items())


def does_not_show(method: str, note: str) -> list[str]:
    """What nobody should take from a result: what a reader of it wrote into `limits.tsv`, and what
    its note said before.
    """
    match = CANNOT_SHOW.search(note)
    return [x for x in (limits().get(method, ""), match[1] if match else "") if x]


@cache
def limits() -> Mapping[str, str]:
    """By method, from `limits.tsv`."""
    text = resources.files("palaestra.ledger").joinpath("limits.tsv").read_text(encoding="utf-8")
    return {row["method"]: row[SAID] for row in csv.DictReader(text.splitlines(), delimiter="\t")}


def time_of(result: Mapping[str, Any]) -> str:
    """What its runs took: of the processor where that was measured, as today, or of the wall clock."""
    for name, clock in (("processor_seconds", "processor"), ("seconds", "wall-clock")):
        if (seconds := result.get(name)) is not None:
            return f"{seconds / 60:.0f} {clock} minutes"
    return "time not known"


def interval(record: Mapping[str, Any], digits: int = 3) -> str:
    """A number with its interval; one value alone has none."""
    if record["mean"] is None:
        return "not measured"
    middle, low, high = (
        "" if x is None else f"{x:.{digits}g}"
        for x in (record["mean"], record["low"], record["high"])
    )
    return f"{middle} [{low}, {high}]" if low else middle


def mean(values: Sequence[float | None], form: str = ".3g") -> str:
    """Of what is known, with how many of them that is where it is not all."""
    known = [x for x in values if x is not None]
    some = f" ({len(known)} of {len(values)})" if len(known) < len(values) else ""
    return f"{sum(known) / len(known):{form}}{some}" if known else "not measured"


def budget_of(result: Mapping[str, Any]) -> str:
    """What a cell might spend, by meter; "" where nothing was sampled and nothing else is told."""
    others = result.get("budget", {})
    tokens = {"tokens": result["budget_tokens"]} if result.get("sampled_tokens") else {}
    budgets = {"sampled tokens" if k == "tokens" else k: v for k, v in {**tokens, **others}.items()}
    return " and ".join(f"{most:,.0f} {meter}" for meter, most in budgets.items())
