"""Where the questions of data are asked, by the name that --env gives, of worlds of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.rewards.verify import Verify
from palaestra.run import benches
from palaestra.run.ranking_rooms import in_elimination, in_lists, in_queries
from palaestra.run.world_settings import check_world_settings
from palaestra.tasks.clinical import ClinicalTasks
from palaestra.tasks.files import FileTasks
from palaestra.tasks.phrasing import question_text
from palaestra.tasks.spec import parse_alone, split_outside
from palaestra.worlds.competition import CompetitionWorld
from palaestra.worlds.competition_files import competition_named, competitions_in
from palaestra.worlds.competition_tasks import CompetitionTasks
from palaestra.worlds.explore import VIEWS, ExploreBandit
from palaestra.worlds.findings import AskFindings
from palaestra.worlds.logged_bandit import LoggedBandit, LoggedBandits
from palaestra.worlds.plans import ExpertPlans, plan_of
from palaestra.worlds.play_log import SHAPE, PlayLog
from palaestra.worlds.question import Question

if TYPE_CHECKING:
    from palaestra.settings.fields import Settings

EXPERTS = "experts"  # as --env names it
COMPETITION = "competition"  # likewise, with a folder in brackets
LOGGED = "logged"  # as --env names it: the bandit of a log
FRAMES = "frames"  # likewise: the states of logged games
FINDINGS = "findings"  # likewise: records whose findings are asked for
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
    check_world_settings(settings.env or EXPERTS, ExpertPlans, given)
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


def in_competitions(settings: Settings, instruction: str) -> Bench:
    """The user's own competitions: competition(DIR), or competition(DIR,steps=4)."""
    inside = settings.env.removeprefix(COMPETITION).strip()
    form = f'--env "{COMPETITION}(DIR,steps=N,...)"'
    if not (inside.startswith("(") and inside.endswith(")")) or settings.data or settings.tools:
        raise UserError(
            f"a competition is a folder, which is named as {form}, without --data and --tools; its files are in "
            "docs/environments.md"
        )
    first, *more = split_outside(inside[1:-1], ",")
    folder = first.strip().strip("'\"")
    rest = ",".join(more)
    given: dict[str, Any] = {**parse_alone(f"{COMPETITION}({rest})", form).settings}
    folders = competitions_in(folder)
    held_out = given.pop("held_out", len(folders) // 8)
    check_world_settings(settings.env, CompetitionWorld, given)
    tasks = CompetitionTasks(folders, held_out=held_out)
    given.setdefault("told", True)
    world = CompetitionWorld(**given)
    for name in folders:
        competition_named(name)
    turns = max(Bench.max_turns, world.steps)
    return Bench(name=folder, tasks=tasks, world=world, max_tokens=1024, max_turns=turns)


def in_logged(settings: Settings, instruction: str) -> Bench:
    """The bandit of the user's log: logged, or logged(horizon=50,view=summary,near=5,shuffle=1)."""
    form = f"{LOGGED}(horizon=N,view=summary,near=N,shuffle=1)"
    if not settings.data:
        raise UserError(
            f'--env {LOGGED} is the bandit of a log of yours: --data FILE.jsonl, with rows such as {{"arm": '
            '"banner", "reward": 1}'
        )
    given = parse_alone(settings.env or LOGGED, form).settings
    known = {"horizon": 50, "view": VIEWS[1], "near": LoggedBandit.near, "shuffle": 1}
    for name, value in given.items():
        if name not in known or not isinstance(value, type(known[name])):
            raise UserError(f"--env {settings.env}: {name}={value!r} is no setting; write {form}")
    tasks = LoggedBandits(
        settings.data,
        test=settings.test_data,
        columns=settings.columns,
        skip=settings.skip_bad,
        shuffle=bool(given.get("shuffle", True)),
    )
    tasks.task("train", 0)
    seen = {k: given[k] for k in ("horizon", "view") if k in given}
    world = ExploreBandit(LoggedBandit(tasks, near=given.get("near", LoggedBandit.near)), **seen)
    return Bench(
        name=settings.data, tasks=tasks, world=world, max_tokens=256, max_turns=world.most_turns
    )


def in_frames(settings: Settings, instruction: str) -> Bench:
    """The labelled frames of the user's log of games: frames, or frames(window=4,priority='a,b',...)."""
    if not settings.data:
        raise UserError(
            f"--env {FRAMES} asks about a log of games of yours: --data FILE.jsonl, with rows such as {SHAPE}"
        )
    form = f"{FRAMES}(window=N,priority='a,b',hide='enemy.gold',balance=1,ask='...')"
    given: dict[str, Any] = {**parse_alone(settings.env or FRAMES, form).settings}
    known = {"window": (int, float), "priority": str, "hide": str, "balance": int, "ask": str}
    for name, value in given.items():
        if name not in known or not isinstance(value, known[name]):
            raise UserError(f"--env {settings.env}: {name}={value!r} is no setting; write {form}")
    if "balance" in given:
        given["balance"] = bool(given["balance"])
    tasks = PlayLog(
        settings.data,
        test=settings.test_data,
        columns=settings.columns,
        skip=settings.skip_bad,
        **given,
    )
    tasks.task("train", 0)
    return Bench(
        name=settings.data,
        tasks=tasks,
        world=Question(),
        reward=Verify(tasks.check),
        max_tokens=256,
    )


def in_findings(settings: Settings, instruction: str) -> Bench:
    """The user's own records, whose findings are asked for: findings, or
    findings(label=COLUMN,known='A,B',reference='FILE',tests='C,D',turns=6,...).
    """
    if not settings.data:
        raise UserError(
            f"--env {FINDINGS} asks for findings of records of yours: --data FILE.csv, with a column diagnosis; "
            f'--env "{FINDINGS}(label=COLUMN)" names another one'
        )
    form = f"{FINDINGS}(label=COLUMN,known='A,B',reference='FILE',tests='C,D',turns=N,...)"
    given: dict[str, Any] = {**parse_alone(settings.env or FINDINGS, form).settings}
    names = lambda text: tuple(x.strip() for x in text.split(",") if x.strip())
    texts = {k: str(given.pop(k, "")) for k in ("label", "known", "reference", "tests")}
    check_world_settings(settings.env or FINDINGS, AskFindings, given)
    tasks = ClinicalTasks(
        settings.data,
        test=settings.test_data,
        columns=settings.columns,
        skip=settings.skip_bad,
        label=texts["label"] or ClinicalTasks.label,
        known=names(texts["known"]),
        reference=texts["reference"],
        tests=names(texts["tests"]),
    )
    world = AskFindings(tasks.table.tests, tasks.table.classes, **given)
    return Bench(
        name=settings.data, tasks=tasks, world=world, max_tokens=64, max_turns=world.most_turns
    )


ROOMS: Mapping[str, Callable[[Settings, str], Bench]] = {
    **benches.ROOMS,
    EXPERTS: in_experts,
    COMPETITION: in_competitions,
    LOGGED: in_logged,
    FRAMES: in_frames,
    FINDINGS: in_findings,
    benches.QUERY: in_queries,
    benches.ELIMINATE: in_elimination,
    benches.LISTWISE: in_lists,
}
