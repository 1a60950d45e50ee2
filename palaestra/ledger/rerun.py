"""Whether today's code gives the numbers of a published result again: the first seed of each arm
whose code has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
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
from palaestra.run.headway import Headway

OLDER_CODE = "measured with older code than today's"


def older_arms(result: Mapping[str, Any], experiment: Experiment) -> dict[str, str]:
    """The arms that were measured with other code than today's, or nobody knows with which; of each
    the digest of today's.
    """
    codes = {a: arm_code(experiment, a) for a in result["arms"] if a in experiment.every_arm}
    return {a: c for a, c in codes.items() if result["arms"][a].get("code_sha256") != c}


def rerun(
    method: str, result: Mapping[str, Any], *, out: Path, headway: Headway, jobs: int = 0
) -> dict[str, Any]:
    """Runs the first seed of each arm of older code, with the setting that was chosen.

    Returns:
        {"seed", "arms": {name: {"code_sha256": of today's, "then", "now": the measure, "failed": why
        there is none now}}, "commit", "machine"}

    Raises:
        UserError: no arm is of older code, or the published result is none of today's experiment.
    """
    experiment = experiment_of(method)
    check_published(method, result, experiment)
    if not (older := older_arms(result, experiment)):
        raise UserError(f"{method} was measured with today's code: there is nothing to compare")
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
            "code_sha256": code,
            "then": result["arms"][a]["values"][0],
            "now": per_seed(values_by_task(work, a, experiment.measure, outcomes))[0],
            "failed": next((o.error for o in outcomes[a] if o.error), ""),
        }
        for a, code in older.items()
    }
    return {"seed": seed, "arms": arms, "commit": commit(), "machine": machine_of(device)}


def describe_code(result: Mapping[str, Any], experiment: Experiment) -> str:
    """What is said of the code that a result was measured with; "" = it is today's."""
    if not (older := older_arms(result, experiment)):
        return ""
    found = result.get("again", {"arms": {}})
    if any(found["arms"].get(a, {}).get("code_sha256") != code for a, code in older.items()):
        return OLDER_CODE
    where = (
        "" if found["machine"] == result["machine"] else f" on another machine ({found['machine']})"
    )
    return (
        f"{OLDER_CODE}; today's, run{where} on seed {found['seed']} of the arms whose code has "
        f"changed, gives {describe_numbers(found)}"
    )


def describe_numbers(found: Mapping[str, Any]) -> str:
    """Of what `rerun` found: the same numbers, or which others, and which arms failed."""
    failed = [f"{a} failed ({x['failed']})" for a, x in found["arms"].items() if x["failed"]]
    both = {a: x for a, x in found["arms"].items() if not x["failed"] and x["then"] is not None}
    others = [
        f"{a} {_number(x['now'])}, it was {_number(x['then'])}"
        for a, x in both.items()
        if not equal(x["then"], x["now"])
    ]
    same = "the same numbers" if both else "no number to compare"
    return "; ".join([f"other numbers ({'; '.join(others)})" if others else same, *failed])


def _number(x: float | None) -> str:
    return "none" if x is None else f"{x:.4g}"
