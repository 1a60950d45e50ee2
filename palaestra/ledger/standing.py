"""What published results say: where a method stands, whether a result is one of the present
experiment, and whether its verdict follows from its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from math import isclose
from typing import Any

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.errors import UserError
from palaestra.ledger import declared
from palaestra.ledger.declared import digest, read_declaration
from palaestra.ledger.expectations import Expectation, Greater, Same
from palaestra.ledger.experiment import START, experiment_of
from palaestra.ledger.files import TIERS, declarations, read_result
from palaestra.ledger.judging import Measured, ValuesByTask, effect_of, judge
from palaestra.ledger.listed import Standing, without_result
from palaestra.ledger.results import arm_sha256, is_older
from palaestra.ledger.wording import interval

OLDER = "older rules"  # of results that were measured before those of docs/ledger.md
GREATER = re.compile(r"(.+) - (.+) > 0; a difference below (\S+) would not support the claim")
SAME = re.compile(r"\|(.+) - (.+)\| < (\S+)")
# what older rules could call what has a verdict of its own by now
OLDER_WORDS = {"smaller": ("not-reproduced", "inconclusive"), "reversed": ("not-reproduced",)}
COMPARED = ("effect", "ci95", "speaks", "doubts", "said")  # of what a control says


@cache
def standing(entry: Entry) -> Standing:
    """The verdict of a method's published result, unless the experiment has changed since."""
    result = read_result(entry.id)
    if result is None or not entry.built:
        return without_result(entry)
    if "taken_back" in result:
        return Standing(status=result["status"], note=f"{OLDER}, under review")
    if taken_back(entry.id):
        return Standing(status="built", note=f"{result['verdict']}, taken back")
    if why := stale_reason(result):
        return Standing(status="built", note=f"stale result: {why}")
    return Standing(status=result["verdict"], note=OLDER if is_older(result) else "")


def is_doubted(entry: Entry) -> bool:
    """Whether a row's result is stale or under review, so that its numbers are shown nowhere else."""
    note = standing(entry).note
    return note.startswith("stale") or note.endswith("under review")


def taken_back(name: str) -> str:
    """Why the published verdict of a method's experiment counts for nothing; "" if it counts."""
    try:
        return experiment_of(name).taken_back
    except UserError:
        return ""


def stale_reason(result: Mapping[str, Any]) -> str:
    """Why a result is no result of the present experiment; "" if it is."""
    try:
        experiment = experiment_of(result["id"])
    except UserError:
        return "the method has no experiment any more"
    if not is_older(result):
        return "" if result["declaration"] == digest(experiment) else "it was declared otherwise"
    if result["expected"] != str(experiment.expect):
        return f"it was expected that {result['expected']}"
    if result["metric"] != experiment.metric:
        return f"it measured {result['metric']}"
    changed = [
        arm
        for arm, name in result["arms"].items()
        if arm not in experiment.arms or name["config_sha256"] != arm_sha256(experiment, arm)
    ]
    missing = [a for a in experiment.expect.arms if a not in result["arms"]]
    return (
        f"the configuration of {' and '.join(changed + missing)} has changed"
        if changed + missing
        else ""
    )


# ---- checking


def recompute(result: Mapping[str, Any], declaration: Mapping[str, Any] | None = None) -> str:
    """What of a result does not follow from its stored values; "" if all does.

    Args:
        declaration: says what was expected, which reasons and vetoes there are, which arms and
            seeds run, and whether it is evidence at all; None = that which the result names.
    """
    if is_older(result):
        return _recompute_older(result)
    try:
        known = declaration or read_declaration(result, declarations())
    except UserError as error:
        return str(error)
    if known["not_testable"] or not result["arms"]:
        if bool(known["not_testable"]) == (result["verdict"] == "not-testable"):
            return "" if known["not_testable"] else "it has no numbers"
        return f"verdict is {result['verdict']}, and it has no numbers"
    if otherwise := _declared_otherwise(result, known):
        return otherwise
    allowed = declared.vetoes(known)
    measured = Measured(
        arms={name: stored_values(result, name) for name in result["arms"]},
        blocks=result["blocks"],
        vetoes={n: result["controls"].get(n, {}).get("values", {}) for n in allowed},
    )
    judgement = judge(
        declared.expectation(known),
        measured,
        declared.reasons(known),
        allowed,
        illustration=known["illustration"],
    )
    compared = {n: {k: c.get(k) for k in COMPARED} for n, c in judgement["said"].items()}
    stated = {n: {k: result["controls"].get(n, {}).get(k) for k in COMPARED} for n in compared}
    names = ("verdict", "effect", "ci95", "by_block")
    return _first_difference(
        [(n, result[n], judgement[n]) for n in names]
        + [(n, stated[n], compared[n]) for n in compared]
    )


def _recompute_older(result: Mapping[str, Any]) -> str:
    """The same of a result of older rules, which has no declaration, one block and no vetoes."""
    if not result["arms"] and result["verdict"] != "not-testable":
        return f"verdict is {result['verdict']}, and it has no numbers"
    if result["verdict"] == "not-testable":
        return ""
    expect = expectation_of(result)
    effect = effect_of(*(stored_values(result, a) for a in expect.arms))
    today = expect.judge(effect, ()).verdict
    before = result.get("taken_back", {}).get("verdict", result["verdict"])
    verdict = before if before in OLDER_WORDS.get(today, ()) else today
    return _first_difference(
        [
            ("verdict", before, verdict),
            ("effect", result["effect"], effect.mean),
            ("ci95", result["ci95"], [effect.low, effect.high]),
        ]
    )


def _declared_otherwise(result: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What a result says or leaves out of its declaration; "" if nothing."""
    if missing := [a for a in known["arms"] if a not in result["arms"]]:
        return f"it has no arm {missing[0]}, which is declared"
    stated = {n: c for n, c in result["controls"].items() if c["kind"] == "veto"}
    pairs = [
        ("expected", result["expected"], str(declared.expectation(known))),
        ("task", result["task"], known["task"]),
        ("blocks", result["blocks"], known["blocks"]),
        ("tokens of a tuning cell", result["tuning"].get("tokens", 0), known.get("tuning_tokens", 0)),
        ("vetoes", sorted(stated), sorted(known["vetoes"])),
        *((f"{n} may fall by", stated.get(n, {}).get("falls"), veto.falls)
          for n, veto in declared.vetoes(known).items()),
    ]  # fmt: skip
    return next((f"{n} {a}, and {b} is declared" for n, a, b in pairs if not equal(a, b)), "")


def _first_difference(pairs: Sequence[tuple[str, Any, Any]]) -> str:
    return next(
        (f"{n} is {a}, and its values give {b}" for n, a, b in pairs if not equal(a, b)), ""
    )


def equal(a: Any, b: Any) -> bool:
    """Whether two records are one, but for the last bits of numbers."""
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    numbers = isinstance(a, float | int) and isinstance(b, float | int)
    return isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) if numbers else a == b


def expectation_of(result: Mapping[str, Any]) -> Expectation:
    """What a result was measured against."""
    if match := GREATER.fullmatch(result["expected"]):
        return Greater(match[1], match[2], by=float(match[3]))
    if match := SAME.fullmatch(result["expected"]):
        return Same(match[1], match[2], within=float(match[3]))
    raise UserError(f"{result['id']}: nobody can read what was expected: {result['expected']!r}")


def stored_values(result: Mapping[str, Any], arm: str) -> ValuesByTask:
    values = result["arms"][arm]
    return values.get("by_task") or {result["task"][0]: values["values"]}


def above_start_line(result: Mapping[str, Any]) -> str:
    """What the better arm has above the arm `start`, paired by seed, with its interval; "" where that
    has no such number, or is what the arm is compared with.
    """
    than, better = expectation_of(result).arms
    if START not in result["arms"] or START in (than, better):
        return ""
    sides = stored_values(result, START), stored_values(result, better)
    if any(None in row for side in sides for row in side.values()):
        return ""
    return interval(effect_of(*sides).json())


def published() -> list[str]:
    """The experiments with a result: methods, and those of a tier as `muldimif@small`."""
    each = (n for e in catalogue.all_entries() for n in (e.id, *(f"{e.id}@{t}" for t in TIERS)))
    return [n for n in each if read_result(n) is not None]
