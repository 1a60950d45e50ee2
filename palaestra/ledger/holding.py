"""The page of what holds: every published verdict, grouped by what it says, beside what older rules
said and what a third block of seeds found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
from palaestra.markdown import render
from palaestra.stats import paired_difference

Result = Mapping[str, Any]
DECIDED = ("reproduced", "smaller", "not-reproduced", "reversed")


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
        (_link(method), *_row(r)[1:3], r["verdict"], standing(catalogue.entry_of(method)).status)
        for method, n in names
        if (r := read_result(n)) is not None and not stale_reason(r)
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
        ],
        unmeasured=[_link(e.id) for e in entries if standing(e).status == "built"
                    and e.id not in older and not experiment_of(e.id).not_testable
                    and not taken_back(e.id)],
        row=_lesson_row,
        of_arm=_of_arm,
        lead=_lead,
    )  # fmt: skip


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


def _row(result: Result) -> tuple[str, ...]:
    """Method, what is compared, effect with interval, what the better arm has above its start, and
    what else was found.
    """
    expect = expectation_of(result)
    sides = (
        f"{expect.better} above {expect.than}"
        if isinstance(expect, Greater)
        else f"{expect.one} as {expect.other}"
    )
    compared = f"{sides}: {result['metric']}"
    edge = [f"{arm} has {which}" for arm, which in edges(result).items() if arm in expect.arms]
    said = "; ".join(filter(None, (controls_line(result), *edge, unequal(result, expect.arms))))
    more = above_start_line(result), result["quantity"], said
    return _link(result["id"]), compared, ends(result), *more


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
