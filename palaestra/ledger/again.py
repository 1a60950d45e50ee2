"""Whether today's code gives the numbers of a published result again: the first seed of each arm
whose code has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.ledger.experiment import START, Experiment, experiment_of
from palaestra.ledger.judging import per_seed
from palaestra.ledger.measures import BesideStart
from palaestra.ledger.results import (
    CPU,
    Scope,
    arm_code,
    check_published,
    commit,
    measure,
    values_by_task,
)
from palaestra.run.headway import Headway

OLDER = "measured with older code than today's"


def older_arms(result: Mapping[str, Any], experiment: Experiment) -> list[str]:
    """The arms that were measured with other code than today's, or nobody knows with which."""
    arms = {a: found for a, found in result["arms"].items() if a in experiment.every_arm}
    return [a for a, x in arms.items() if x.get("code_sha256") != arm_code(experiment, a)]


def again(
    method: str, result: Mapping[str, Any], *, out: Path, headway: Headway, jobs: int = 0
) -> dict[str, Any]:
    """Runs the first seed of each arm of older code, with the setting that was chosen.

    Returns:
        {"seed", "arms": {name: {"code_sha256": of today's, "then", "now": the measure}}, "commit"}

    Raises:
        UserError: no arm is of older code, or the published result is none of today's experiment.
    """
    experiment = experiment_of(method)
    check_published(method, result, experiment)
    if not (older := older_arms(result, experiment)):
        raise UserError(f"{method} was measured with today's code: there is nothing to be compared")
    beside = isinstance(experiment.measure, BesideStart)
    seed = result["blocks"][0][0]
    work = Scope(
        method=method,
        experiment=experiment,
        arms=[a for a in experiment.every_arm if a in older or (beside and a == START)],
        blocks=[[seed]],
        tokens=experiment.tokens,
        out=out,
        jobs=jobs,
        device=result.get("device", CPU),
    )
    outcomes = measure(work, {a: result["arms"][a]["setting"] for a in work.arms}, headway)
    now = {a: values_by_task(work, a, experiment.measure, outcomes) for a in work.arms}
    return {
        "seed": seed,
        "arms": {
            a: {
                "code_sha256": arm_code(experiment, a),
                "then": result["arms"][a]["values"][0],
                "now": per_seed(now[a])[0],
            }
            for a in older
        },
        "commit": commit(),
    }


def same(then: float | None, now: float | None) -> bool:
    """Whether two numbers are one, but for the last bits of a mean."""
    if then is None or now is None:
        return then is now
    return isclose(then, now, rel_tol=1e-9, abs_tol=1e-12)


def moved(found: Mapping[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    """Of what `again` found the arms with another number: what it was and what it is."""
    both = {a: (x["then"], x["now"]) for a, x in found["arms"].items()}
    return {a: pair for a, pair in both.items() if not same(*pair)}


def describe_code(result: Mapping[str, Any], experiment: Experiment) -> str:
    """What is said of the code that a result was measured with; "" = it is today's."""
    if not (older := older_arms(result, experiment)):
        return ""
    found = result.get("again", {"arms": {}})
    todays = lambda a: found["arms"].get(a, {}).get("code_sha256") == arm_code(experiment, a)
    if not all(map(todays, older)):
        return OLDER
    return f"{OLDER}, which on seed {found['seed']} of each arm gives {describe(found)}"


def describe(found: Mapping[str, Any]) -> str:
    """The same numbers, or which others."""
    number = lambda x: "none" if x is None else f"{x:.4g}"
    told = [f"{a} {number(now)} for {number(then)}" for a, (then, now) in moved(found).items()]
    return f"other numbers ({'; '.join(told)})" if told else "the same numbers"
