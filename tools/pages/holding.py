"""The page of what holds: every published verdict as a sentence with its scope first, grouped by
verdict, with what older rules said and what a third block of seeds found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.ledger.expectations import Greater
from palaestra.ledger.experiment import experiment_of, tiers_of
from palaestra.ledger.files import parted, read_result
from palaestra.ledger.results import is_older
from palaestra.ledger.standing import (
    above_start_line,
    expectation_of,
    stale_reason,
    standing,
    taken_back,
)
from palaestra.ledger.wording import controls_line, edges, ends, interval, mean, unequal
from palaestra.stats import paired_difference
from tools.pages.rendering import render

Result = Mapping[str, Any]
DECIDED = ("reproduced", "smaller", "not-reproduced", "reversed")
MINUS = ", with a minus"  # of a measure of which less is better
MODELS = {"tiny": "the built-in model", "smollm2": "SmolLM2-135M-Instruct"}
TASKS = {  # what a task asks for, by its name
    "add": "addition",
    "bool": "Boolean formulas",
    "chain": "arithmetic chains",
    "compare-pairs": "judging pairs of answers",
    "constraints": "sentences under constraints",
    "facts": "common-knowledge questions",
    "grid": "carrying a box on a grid",
    "grid-4": "carrying a box on a grid",
    "hop": "key search",
    "hop-noisy": "key search",
    "knights": "knights-and-knaves puzzles",
    "kuhn": "Kuhn poker",
    "lake": "a grid world with unknown actions",
    "lookup": "dictionary lookups with code",
    "preferences": "preference pairs",
    "rec": "next-item prediction",
    "rubrics": "answers with rubrics",
    "screen": "actions on a screen",
    "sort": "sorting digits",
    "unanswerable": "sums that may be unanswerable",
    "variants": "sets of equations",
    "wiki-2": "wiki questions with search",
    "wiki-far": "wiki questions with search",
}
DOCS = Path("docs")
STUDIES: Mapping[str, tuple[str, ...]] = {  # pages of studies of several methods, by family
    "agents": ("broken-tool", "contexts", "when-to-search"),
    "analysis": ("sharpening", "checkups"),
    "data": ("curricula",),
    "domains": ("ranking",),
    "games": ("selfplay",),
    "inference": ("search-study",),
    "llm4rl": ("guides",),
    "multimodal": ("sight",),
    "objectives": ("exact",),
    "preference": ("losses", "overoptimisation"),
}


def holding_page() -> str:
    entries = [e for e in catalogue.all_entries() if e.built and e.claim]
    found = {e.id: r for e in entries if (r := read_result(e.id)) is not None}
    present = {n: r for n, r in found.items() if not is_older(r) and _stands(n, r)}
    older = {n: r for n, r in found.items() if is_older(r)}
    by_verdict = {
        verdict: [_row(r) for r in present.values() if r["verdict"] == verdict]
        for verdict in (*DECIDED, "inconclusive", "illustration")
    }
    names = [(e.id, n) for e in entries for n in tiers_of(e.id)]
    real = [
        (_row(r), r["verdict"], standing(catalogue.entry_of(method)).status)
        for method, n in names
        if (r := read_result(n)) is not None and not stale_reason(r) and not taken_back(n)
    ]
    untestable = [
        *((_link(e.id), f"it needs {n}") for e in entries if (n := experiment_of(e.id).not_testable)),
        *((_link(n), r["taken_back"]["why"]) for n, r in older.items()
          if r.get("status") == "not-testable"),
    ]  # fmt: skip
    return render(
        "what-holds.md",
        by_verdict=by_verdict,
        real=real,
        untestable=untestable,
        moved=[row for r in present.values() for row in _moved(r)],
        fresh=[_fresh(r) for r in present.values() if "fresh" in r],
        decided=_repeats(present, DECIDED),
        held=_repeats(present, ("reproduced", "smaller")),
        older=[_older(r) for r in older.values() if "taken_back" not in r],
        back=[
            *(_back(r) for r in older.values() if r.get("status", "not-testable") != "not-testable"),
            *((_link(n), r["verdict"], why) for n, r in found.items()
              if not is_older(r) and (why := taken_back(n))),
            *((f"{_link(n)} on a real model", r["verdict"], why) for _, n in names
              if (r := read_result(n)) is not None and (why := taken_back(n))),
        ],
        studies=family_studies([e for e in catalogue.all_entries() if e.built]),
        unmeasured=[_link(e.id) for e in entries if standing(e).status == "built"
                    and e.id not in older and not experiment_of(e.id).not_testable
                    and not taken_back(e.id)],
        finding=_finding,
        scope=_scope_of,
        row=_lesson_row,
        of_arm=_of_arm,
        lead=_lead,
    )  # fmt: skip


def family_studies(entries: Sequence[catalogue.Entry]) -> list[tuple[str, str, str]]:
    """Of each family that has some: the pages of its studies, and the methods whose own claim this scale
    decided.
    """
    rows: list[tuple[str, str, str]] = []
    for family in dict.fromkeys(e.family for e in entries):
        pages = [f"[{_title(name)}]({name}.md)" for name in STUDIES.get(family, ())]
        decided = [
            f"{_link(e.id)} ({status})"
            for e in entries
            if e.family == family and (status := standing(e).status) in DECIDED
        ]
        if pages or decided:
            rows.append((family, "; ".join(pages), ", ".join(decided)))
    return rows


def _title(name: str) -> str:
    """The heading of a page of docs/."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _lesson_row(method: str, verdict: str) -> str:
    """A method with its effect, where a lesson of the page builds on its verdict. Raises UserError
    where that is not its verdict any more.
    """
    result = read_result(method)
    if result is None:
        return f"{_link(method)} (not measured)"
    if (now := _verdict(method, result)) != verdict:
        raise UserError(
            f"a lesson of what-holds.md builds on {method} being {verdict}, and it is {now}: "
            "write the lesson anew"
        )
    return f"{_link(method)} ({ends(result)})"


def _verdict(name: str, result: Result) -> str:
    """Of a method, or of an experiment of its such as `muldimif@small`."""
    method, tier = parted(name)
    if not tier:
        return standing(catalogue.entry_of(method)).status
    if taken_back(name):
        return "taken back"
    return "stale" if stale_reason(result) else result["verdict"]


def _of_arm(method: str, arm: str, control: str = "") -> str:
    """The mean of an arm, by the measure or by a control."""
    if (result := read_result(method)) is None:
        return "not measured"
    values = (
        result["controls"][control]["values"][arm] if control else result["arms"][arm]["values"]
    )
    return mean(values, ".2f")


def _lead(method: str, arm: str, other: str) -> str:
    """What an arm has above another one, paired by seed, with its interval."""
    if (result := read_result(method)) is None:
        return "not measured"
    than, better = (result["arms"][a]["values"] for a in (other, arm))
    return interval(paired_difference(than, better).json())


def _stands(method: str, result: Result) -> bool:
    """Whether it is a result of the present experiment."""
    return standing(catalogue.entry_of(method)).status == result["verdict"]


def _link(name: str) -> str:
    method, _ = parted(name)
    return f"[{method}](methods/{method}.md)"


def _row(result: Result) -> Mapping[str, Any]:
    """A claim as a sentence with its scope, and the details that the page folds away."""
    expect = expectation_of(result)
    edge = [f"`{arm}` has {which}" for arm, which in edges(result).items() if arm in expect.arms]
    said = (controls_line(result), *edge, unequal(result, expect.arms))
    details = {
        "claim": result["claim"],
        "in the paper": result["quantity"],
        "why this verdict": result.get("reason", ""),
        "above its start": above_start_line(result),
        "controls": "; ".join(filter(None, said)),
    }
    return {
        "link": _link(result["id"]),
        "scope": scope_line(result),
        "tokens": f"{n:,} sampled tokens per run" if (n := result["budget_tokens"]) > 1 else "",
        "sentence": effect_sentence(result),
        "details": {name: text for name, text in details.items() if text},
    }


def _scope_of(method: str) -> str:
    """Task and model of a published result; "Not measured" without one."""
    result = read_result(method)
    return "Not measured" if result is None else scope_line(result)


def _finding(method: str, verdict: str) -> str:
    """The effect of a method as a sentence, with its verdict. Raises UserError as `_lesson_row`."""
    _lesson_row(method, verdict)
    result = read_result(method)
    said = "" if result is None else effect_sentence(result)
    return f"{said} ({_link(method)}: {verdict})" if said else _link(method)


def scope_line(result: Result) -> str:
    """Task and model of a result: "On addition (`add(d=6)`) with the built-in model"."""
    if result["budget_tokens"] <= 1 and result["model"] == "tiny":  # a program without a task
        return "In a simulation or program"
    names = [n for spec in result["task"] for n in re.findall(r"(?:^|\+)([\w-]+)", spec)]
    words = list(dict.fromkeys(TASKS.get(n, f"`{n}`") for n in names))
    listed = " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    specs = ", ".join(f"`{spec}`" for spec in result["task"])
    return f"On {listed} ({specs}) with {MODELS.get(result['model'], result['model'])}"


def effect_sentence(result: Result) -> str:
    """The two compared arms with their means, their difference and its interval; "" without arms.
    A measure that is stored with a minus is turned round.
    """
    if not result["arms"]:
        return ""
    expect = expectation_of(result)
    metric, turned = result["metric"].removesuffix(MINUS).removeprefix("- "), 1
    if metric != result["metric"]:
        turned = -1
    low, high = sorted(turned * x for x in result["ci95"])
    effect = turned * result["effect"]
    one, other = reversed(expect.arms) if isinstance(expect, Greater) else expect.arms
    sides = [_side(result, arm, turned) for arm in (one, other)]
    if effect < 0:
        low, high = -high, -low
    less = "lower" if effect < 0 else "higher"
    return (
        f"{sides[0]} is {abs(effect):.3g} {less} than {sides[1]} in {metric}; "
        f"95% interval {low:.3g} to {high:.3g}, {result['seeds']} seeds"
    )


def _side(result: Result, arm: str, turned: int) -> str:
    """An arm with its mean, where all its values are numbers."""
    values = result["arms"][arm]["values"]
    numbers = [turned * x for x in values if isinstance(x, int | float)]
    return f"`{arm}` ({mean(numbers)})" if len(numbers) == len(values) else f"`{arm}`"


def _moved(result: Result) -> Sequence[tuple[str, ...]]:
    """What older rules said of a method that was measured anew."""
    looks = [e for e in result["earlier"] if e["why"].startswith("older rules")]
    now = f"{result['verdict']} ({ends(result)})" if result["arms"] else result["verdict"]
    return [
        (_link(result["id"]), f"{e['verdict']} ({ends(e)})", now, e["why"])
        for e in looks
    ]  # fmt: skip


def _repeats(results: Mapping[str, Result], verdicts: Sequence[str]) -> Counter[str]:
    """Of the results of these verdicts with a third block, how often that says what of them."""
    return Counter(
        _repeated(r["fresh"]) for r in results.values() if "fresh" in r and r["verdict"] in verdicts
    )


def _repeated(fresh: Result) -> str:
    """What a third block says of the verdict of the others."""
    if fresh["repeats"]:
        return "repeats"
    return "undecided" if fresh["verdict"] == "inconclusive" else "another verdict"


def _fresh(result: Result) -> tuple[str, ...]:
    fresh = result["fresh"]
    before, now = (f"{r['verdict']} ({ends(r)})" for r in (result, fresh))
    return _link(result["id"]), before, now, _repeated(fresh)


def _older(result: Result) -> tuple[str, ...]:
    other = "" if _stands(result["id"], result) else ", of another experiment than today's"
    return _link(result["id"]), result["verdict"] + other, ends(result), result["metric"]


def _back(result: Result) -> tuple[str, ...]:
    back = result["taken_back"]
    return _link(result["id"]), back["verdict"], back["why"]
