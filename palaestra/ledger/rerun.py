"""Whether today's code gives the numbers of a published result again: the first seed of its arms."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.ledger.cells import machine_of
from palaestra.ledger.experiment import START, Experiment, experiment_of
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
    method: str, result: Mapping[str, Any], *, out: Path, headway: Headway, jobs: int = 0
) -> dict[str, Any]:
    """Runs the first seed of each arm whose parts have other versions today, or of every arm where
    none has, with the setting that was chosen.

    Returns:
        {"seed", "arms": {name: {"versions": today's, "then", "now": the measure, "failed": why there
        is none now}}, "commit", "machine"}

    Raises:
        UserError: the published result is none of today's experiment.
    """
    experiment = experiment_of(method)
    check_published(method, result, experiment)
    older = older_arms(result, experiment) or {
        a: arm_code(experiment, a) for a in result["arms"] if a in experiment.every_arm
    }
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
    arms = {
        a: {
            **code,
            "then": result["arms"][a]["values"][0],
            "now": per_seed(values_by_task(work, a, experiment.measure, outcomes))[0],
            "failed": next((o.error for o in outcomes[a] if o.error), ""),
        }
        for a, code in older.items()
    }
    return {"seed": seed, "arms": arms, "commit": commit(), "machine": machine_of(device)}


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
