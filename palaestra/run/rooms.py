"""Where the questions of data are asked, by the name that --env gives, of worlds of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.run import benches
from palaestra.tasks.files import FileTasks
from palaestra.tasks.phrasing import question_text
from palaestra.tasks.spec import parse_alone
from palaestra.worlds.plans import ExpertPlans, plan_of

if TYPE_CHECKING:
    from palaestra.settings.fields import Settings

EXPERTS = "experts"  # as --env names it
TAKES_TOOLS = (*benches.TAKES_TOOLS, EXPERTS)  # in which --tools are not tools of a model


def room_of(settings: Settings) -> str:
    """The name of the world in which the questions of data are asked; "" = elsewhere. Raises UserError
    for documents or a graph in one that reads none.
    """
    alone = benches.GRAPH if settings.graph else benches.SEARCH if settings.docs else ""
    named = settings.env.partition("(")[0] if settings.env else alone
    if settings.docs and named not in benches.RETRIEVES:
        raise UserError(
            f"--docs and --env {settings.env} exclude each other; documents are searched in the "
            f"environments {', '.join(benches.RETRIEVES)}"
        )
    if settings.graph and named != benches.GRAPH:
        raise UserError(
            f"--graph and --env {settings.env} exclude each other; a graph is followed in the "
            "environment graph"
        )
    return named if named in ROOMS else ""


def in_experts(settings: Settings, instruction: str) -> Bench:
    """The user's own tasks, done by plans of the user's own functions."""
    if not settings.tools or not settings.data:
        raise UserError(
            "plans need functions and tasks of yours: --tools FILE.py --data FILE.jsonl, whose rows have "
            "prompt, inputs and targets"
        )
    given: dict[str, Any] = {"told": True, "seconds": settings.tool_seconds}
    if settings.env:
        given |= parse_alone(settings.env, f"{EXPERTS}(turns=N,...)").settings
    benches.check_world_settings(settings.env or EXPERTS, ExpertPlans, given)
    rows = benches.rows_of(settings, instruction, answers=False, shown=("inputs",))
    data = Path(settings.data)
    folder = data if data.is_dir() else data.parent
    world = ExpertPlans(settings.tools, folder=str(folder.expanduser().resolve()), **given)
    if world.shots:
        world = replace(world, examples=solved_plans(rows))
    turns = max(Bench.max_turns, world.turns + 1)
    return Bench(name=settings.data, tasks=rows, world=world, max_tokens=64, max_turns=turns)


def solved_plans(rows: FileTasks) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The training tasks with a plan, each question once. Raises UserError where there are none."""
    tasks = (rows.task("train", i) for i in range(rows.size))
    plans = {question_text(t): plan for t in tasks if (plan := plan_of(t))}
    if not plans:
        raise UserError("--env experts(shots=N) shows solved tasks, and no row has a column plan")
    return tuple(plans.items())


ROOMS: Mapping[str, Callable[[Settings, str], Bench]] = {**benches.ROOMS, EXPERTS: in_experts}
