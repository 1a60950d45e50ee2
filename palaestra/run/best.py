"""The best model that a run has had by something that it measures, and when nothing better comes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from palaestra.ends import HELD_OUT, HeldOut, numbers_in, parts_of
from palaestra.errors import UserError
from palaestra.types import State

if TYPE_CHECKING:
    from palaestra.method import Recipe
    from palaestra.run.context import RunContext
    from palaestra.run.plan import Plan

FOLDER = "best"  # of a run, with a model as in a checkpoint, and `RECORD`
RECORD = "best.json"
ASIDE, BEFORE = ".writing-best", ".replaced-best"
FALLS = ("loss",)  # measures of which less is better


def follow_best(
    ctx: RunContext, state: State, evaluation: Mapping[str, Any], others: Mapping[str, Any]
) -> None:
    """Keeps the model in `RUN/best` where no earlier one was as good by the plan's `keep_best`.

    Of equals the earliest stays. The state counts the evaluations in a row that brought no better
    one, for `is_patience_spent`.

    Args:
        evaluation: what was measured on the run's held-out problems.
        others: what evaluators found, by their names.

    Raises:
        UserError: nothing of that name is measured. A part of a pipeline may measure other things.
    """
    measure = ctx.plan.keep_best
    if not measure:
        return
    scores = measured_numbers(evaluation, others)
    if measure not in scores:
        if ctx.place:
            return
        names = f"what is: {', '.join(scores)}" if scores else "nothing is; give --evaluate N"
        raise UserError(f"--keep-best {measure} is not measured in this run; {names}")
    now, best = scores[measure], state["run"].get("best")
    sign = -1 if measure in FALLS else 1
    if best is not None and not sign * now > sign * best["value"]:
        state["run"] |= {"best": {**best, "since": best["since"] + 1}}
        return
    record = {"measure": measure, "value": now, "step": state["step"]}
    state["run"] |= {"best": {**record, "since": 0}}
    if ctx.out is not None:
        write_best(ctx, record)


def measured_numbers(evaluation: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, float]:
    """What can be named: "accuracy", "reward", "ranking", "margin" or "loss" of the held-out
    problems, and "exam:NAME" or "exam:NAME/NUMBER" of what evaluators found.
    """
    own = {p["of"]: float(p["mean"]) for p in parts_of(evaluation) if p.get("of") in HELD_OUT}
    beside = {
        f"exam:{path}": x.interval.mean if isinstance(x, HeldOut) else float(x)
        for path, x in numbers_in(others)
    }
    short = {p.removesuffix("/greedy"): x for p, x in beside.items() if p.endswith("/greedy")}
    return own | only_numbers(others, beside) | short | beside


def only_numbers(others: Mapping[str, Any], beside: Mapping[str, float]) -> dict[str, float]:
    """The exams of which one number alone is no standard error, by their names: those of other
    libraries, as `exam:inspect:FILE.py@NAME`.
    """
    alone = {}
    for name in others:
        of_exam = [p for p in beside if p.startswith(f"exam:{name}/") and "stderr" not in p]
        if len(of_exam) == 1:
            alone[f"exam:{name}"] = beside[of_exam[0]]
    return alone


def write_best(ctx: RunContext, record: Mapping[str, Any]) -> None:
    """The whole model and what it was kept for, written beside its place and renamed."""
    aside, before, place = (ctx.folder / name for name in (ASIDE, BEFORE, FOLDER))
    for rest in (aside, before):
        shutil.rmtree(rest, ignore_errors=True)
    ctx.save(next(iter(ctx.optimisers), "policy"), aside, whole=True)
    (aside / RECORD).write_text(json.dumps(record, indent=1))
    if place.exists():
        place.rename(before)
    aside.rename(place)
    shutil.rmtree(before, ignore_errors=True)


@runtime_checkable
class ChoosesNothing(Protocol):
    """An update after which no measure of the run's own problems may choose among models, and why."""

    @property
    def no_choice_reason(self) -> str: ...


def check_choice(plan: Plan, recipe: Recipe) -> None:
    """Raises UserError for patience with nothing to wait for, and for a choice by a measure that the
    recipe forbids; exams that the run was given are another matter than its own problems.
    """
    exam = plan.keep_best.removeprefix("exam:")
    public = exam != plan.keep_best and any(
        exam == name or exam.startswith(f"{name}/") for name in plan.exams
    )
    for learner in recipe.learners.values() if plan.keep_best and not public else ():
        if isinstance(learner.update, ChoosesNothing):
            raise UserError(
                f"--keep-best {plan.keep_best} {learner.update.no_choice_reason}; leave --keep-best and "
                "--patience off, or choose by public problems: --exams TASK --keep-best exam:TASK"
            )
    if plan.patience and not (plan.keep_best and plan.evaluate_every):
        raise UserError(
            "--patience counts evaluations without a better model: say by what with --keep-best, and how "
            "often to measure with --evaluate-every"
        )


def is_patience_spent(ctx: RunContext, state: State) -> bool:
    """Whether as many evaluations in a row as `--patience` says brought no better model."""
    best = state["run"].get("best")
    return bool(ctx.plan.patience and best and best["since"] >= ctx.plan.patience)
