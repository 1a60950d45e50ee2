"""Whether today's code gives the numbers of a published result again: the first seed of its arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.ledger.cells import machine_of
from palaestra.ledger.experiment import START, Experiment, experiment_of
from palaestra.ledger.files import read_result
from palaestra.ledger.judging import per_seed
from palaestra.ledger.measures import reads_start
from palaestra.ledger.results import (
    CPU,
    Scope,
    arm_code,
    check_published,
    commit,
    measure,
    values_by_task,
)
from palaestra.ledger.standing import equal
from palaestra.ledger.versions import reasons
from palaestra.terminal.progress import Headway
from palaestra.types import value_class

CODE = ("versions", "own_code_sha256")  # of an arm, what stands for its code


def older_arms(result: Mapping[str, Any], experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The arms that have parts of another version today, or other files of the user's own; of each
    what stands for today's code.
    """
    codes = {a: arm_code(experiment, a) for a in result["arms"] if a in experiment.every_arm}
    return {a: code for a, code in codes.items() if code_in(result["arms"][a]) != code}


def code_in(record: Mapping[str, Any]) -> dict[str, Any]:
    """What stands for the code in the record of an arm."""
    return {name: record[name] for name in CODE if name in record}


def rerun(
    method: str,
    result: Mapping[str, Any],
    *,
    out: Path,
    headway: Headway,
    jobs: int = 0,
    arms: Sequence[str] = (),
) -> dict[str, Any]:
    """Runs the first seed of each arm whose parts have other versions today, or of every arm where
    none has, with the setting that was chosen.

    Args:
        arms: run these instead.

    Returns:
        {"seed", "arms": {name: {"versions": today's, "then", "now": the measure, "failed": why there
        is none now}}, "commit", "machine"}

    Raises:
        UserError: the published result is none of today's experiment.
    """
    experiment = experiment_of(method)
    check_published(method, result, experiment)
    asked = arms or [a for a in result["arms"] if a in experiment.every_arm]
    older = {} if arms else older_arms(result, experiment)
    older = older or {a: arm_code(experiment, a) for a in asked}
    beside = reads_start(experiment.measure)
    device = result.get("device", CPU)
    seed = result["blocks"][0][0]
    work = Scope(
        method=method,
        experiment=experiment,
        arms=[a for a in experiment.every_arm if a in older or (beside and a == START)],
        blocks=[[seed]],
        tokens=experiment.tokens,
        out=out,
        jobs=jobs,
        device=device,
    )
    outcomes = measure(work, {a: result["arms"][a]["setting"] for a in work.arms}, headway)
    numbers = {
        a: {
            **code,
            "then": result["arms"][a]["values"][0],
            "now": per_seed(values_by_task(work, a, experiment.measure, outcomes))[0],
            "failed": next((o.error for o in outcomes[a] if o.error), ""),
        }
        for a, code in older.items()
    }
    return {"seed": seed, "arms": numbers, "commit": commit(), "machine": machine_of(device)}


def describe_code(result: Mapping[str, Any], experiment: Experiment) -> str:
    """What is said of the code that a result was measured with: which of its parts have a newer
    version, and whether today's code gave the numbers again. "" = there is nothing to say.
    """
    older = older_arms(result, experiment)
    again = result.get("again", {"arms": {}})
    repeated = {a: x for a, x in again["arms"].items() if a in experiment.every_arm}
    current = {a for a, x in repeated.items() if code_in(x) == arm_code(experiment, a)}
    since = describe_older(result, older)
    if not current or not set(older) <= current:
        return since
    where = (
        "" if again["machine"] == result["machine"] else f" on another machine ({again['machine']})"
    )
    numbers = describe_numbers(
        {**again, "arms": {a: repeated[a] for a in repeated if a in current}}
    )
    sentence = (
        f"seed {again['seed']} was run again{where} at commit {again['commit']} and gave {numbers}"
    )
    return f"{since}; {sentence}" if since else sentence


def describe_older(result: Mapping[str, Any], older: Mapping[str, Mapping[str, Any]]) -> str:
    """ "measured before version 2 of Center (why)"; "" where no part has a newer version."""
    if not older:
        return ""
    then = {p: v for a in older for p, v in result["arms"][a].get("versions", {}).items()}
    now = {p: v for code in older.values() for p, v in code["versions"].items()}
    changed = reasons(then, now) or ["the user's own files changed"]
    return f"measured before {', '.join(changed)}"


def describe_numbers(numbers: Mapping[str, Any]) -> str:
    """Of what `rerun` found: the same numbers, or which others, and which arms failed."""
    failed = [f"{a} failed ({x['failed']})" for a, x in numbers["arms"].items() if x["failed"]]
    both = {a: x for a, x in numbers["arms"].items() if not x["failed"] and x["then"] is not None}
    others = [
        f"{a} {_number(x['now'])}, it was {_number(x['then'])}"
        for a, x in both.items()
        if not equal(x["then"], x["now"])
    ]
    same = "the same numbers" if both else "no number to compare"
    return "; ".join([f"other numbers ({'; '.join(others)})" if others else same, *failed])


def _number(x: float | None) -> str:
    return "none" if x is None else f"{x:.4g}"


# ---- a spot check of all published results


@value_class
class SpotCheck:
    """What a share of all published arms gave with their first seed, by "method: arm".

    Args:
        other: those with another number, in words.
        wrong: those of them that no processor explains: they failed, gave no number, are on the
            machine that measured them, or lie beyond what the seeds of the arm differ by.
        left_out: results that cannot be run again as they are, and why.
    """

    ran: int
    other: Mapping[str, str]
    wrong: Sequence[str]
    left_out: Mapping[str, str]


def spot_check(
    methods: Sequence[str], share: tuple[int, int], *, out: Path, headway: Headway, jobs: int = 0
) -> SpotCheck:
    """Runs the first seed of a share of the arms of published results, whole; changes no result.

    Args:
        share: (k, n): every n-th arm of all, from the k-th.
    """
    results, left_out = repeatable(methods)
    every = [
        (n, a) for n, r in results.items() for a in r["arms"] if a in experiment_of(n).every_arm
    ]
    asked = every[share[0] - 1 :: share[1]] if share[0] else []
    other, wrong = dict[str, str](), list[str]()
    for name in dict.fromkeys(n for n, _ in asked):
        arms, result = [a for n, a in asked if n == name], results[name]
        again = rerun(name, result, out=out, headway=headway, jobs=jobs, arms=arms)
        for arm, x in again["arms"].items():
            if not x["failed"] and equal(x["then"], x["now"]):
                continue
            case = f"{name}: {arm}"
            other[case] = x["failed"] or f"{_number(x['now'])}, it was {_number(x['then'])}"
            same_machine = again["machine"] == result.get("machine")
            if x["failed"] or same_machine or not is_near(x["now"], result["arms"][arm]["values"]):
                wrong.append(case)
    return SpotCheck(ran=len(asked), other=other, wrong=wrong, left_out=left_out)


def repeatable(methods: Sequence[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The published results on this kind of device that can be run again, and why others cannot."""
    results, left_out = dict[str, dict[str, Any]](), dict[str, str]()
    for name in methods:
        result = read_result(name)
        if result is None or result.get("device", CPU) != CPU:
            continue
        try:
            check_published(name, result, experiment_of(name))
        except UserError as error:
            left_out[name] = str(error)
        else:
            results[name] = result
    return results, left_out


def is_near(x: float | None, seeds: Sequence[float | None]) -> bool:
    """Whether a number is one that another processor may give: rounding that changes a draw makes of
    a seed another one, so it lies no farther outside of the range of an arm's seeds than that is wide.
    """
    known = [v for v in seeds if v is not None]
    if x is None or not known:
        return x is None and not known
    low, high = min(known), max(known)
    return low - (high - low) <= x <= high + (high - low)


def describe_spot_check(report: SpotCheck) -> str:
    """What became of it, for people."""
    lines = [f"{case}: {why}" for case, why in report.other.items() if case in report.wrong]
    lines += [
        f"{case}: {why}; another processor may do this, it is within what the arm's seeds differ by"
        for case, why in report.other.items()
        if case not in report.wrong
    ]
    lines += [f"{name} is left out: {why}" for name, why in report.left_out.items()]
    lines.append(f"{report.ran - len(report.other)} of {report.ran} arms gave the same number")
    return "\n".join(lines)
