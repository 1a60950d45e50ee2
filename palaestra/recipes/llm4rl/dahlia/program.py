"""The arms: attempts that a reporter judges, beside one attempt, retries at random and a judge that knows."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.dahlia.roles import (
    JudgeReply,
    TaskRoles,
    WrittenProgram,
    check_primitives,
)
from palaestra.recipes.llm4rl.dahlia.sandboxed import ProgramRun, plain_data, run_judge, run_plan
from palaestra.recipes.llm4rl.dahlia.tabletop import ManipulationWorld, Tabletop

Retry = Literal["reset", "continue"]
Judge = Literal["none", "reporter", "verdict", "shuffled", "random", "oracle"]
TASKS_OF_A_STEP = 4
TASKS = 20  # of a world that makes its own
SHARES = (
    "success",
    "first",
    "recovered",
    "attempts",
    "calls",
    "acts",
    "errors",
    "helpers",
    "answers",
    "fallbacks",
    "unjudged",
)


@pl.stage
class JudgeAttempts:
    """A program: every task is attempted in arms.

    Args:
        asked: who plans, and reports unless `reporter` does; None = nobody, which is refused.
        helper: who writes functions that a program calls and does not define, and answers what it asks in words;
            None = who plans.
        instructions: FILE.jsonl, a task a line with "instruction" and whatever the world's success test
            reads; "" = tasks of the world's own.
        attempts: at a task, at most.
        retry: where the next attempt begins: things put back as they were, or where they are.
        flip: share of the reporter's judgments that are turned, to see what a worse judge does.
        tasks: that are attempted; 0 = all of `instructions`, and 20 of a world's own.
        co_planners: whether programs may ask `CO_PLANNERS` in words while they run.
    """

    asked: pl.Source | None = None
    reporter: pl.Source | None = None
    helper: pl.Source | None = None
    world: ManipulationWorld = Tabletop()
    instructions: str = ""
    kind: str = ""
    attempts: int = 2
    retry: Retry = "continue"
    flip: float = 0.0
    tasks: int = 20
    co_planners: bool = True

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.tasks < 0 or not 0 <= self.flip <= 1:
            raise pl.UserError(
                "dahlia: attempts are 1 or more, tasks 0 or more, and flip is from 0 to 1"
            )
        check_primitives(self.world)

    def sources(self) -> dict[str, pl.Source]:
        """Who is asked in each role, replies kept. Raises UserError where nobody is."""
        if self.asked is None:
            raise pl.UserError(
                "dahlia needs a language model that writes programs: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        roles = {"planner": self.asked, "helper": self.helper, "reporter": self.reporter}
        return {r: pl.services.TranscribedSource(s or self.asked) for r, s in roles.items()}

    def rows(self, ctx: pl.Context) -> list[dict[str, Any]]:
        """The tasks; says so where a file has more. Raises UserError where there are none."""
        if self.instructions:
            rows = read_tasks(self.instructions)
            if 0 < self.tasks < len(rows):
                ctx.say(
                    f"dahlia: the first {self.tasks} of {len(rows)} tasks of {self.instructions} are attempted; "
                    "tasks=0 attempts all"
                )
            return rows[: self.tasks or None]
        make: Any = getattr(self.world, "tasks", None)
        if make is None:
            raise pl.UserError(
                "dahlia: the world has no tasks(rng, n); name a file of them, instructions=FILE.jsonl"
            )
        rng, n = pl.rng_of(("dahlia", ctx.seed, "tasks")), self.tasks or TASKS
        if self.kind and len(inspect.signature(make).parameters) < 3:
            raise pl.UserError(
                f"dahlia: the world's tasks(rng, n) knows no kind; leave kind={self.kind} out"
            )
        rows = make(rng, n, self.kind) if self.kind else make(rng, n)
        return [dict(row) for row in rows]

    async def run(self, ctx: pl.Context) -> pl.Result:
        plays = TaskArms(self, ctx, self.sources(), self.rows(ctx))
        guided = await ctx.once("guided-tasks", lambda: plays.play("reporter"))
        # equal attempts, in other tasks
        order = pl.rng_of(("dahlia", ctx.seed, "random")).permutation(len(guided))
        counts = [int(guided[int(i)]["attempts"]) for i in order]
        arms: dict[str, pl.control.ArmRun] = {
            "none": plays.arm("none", lambda: plays.play("none")),
            "guide": plays.arm("guide", lambda: as_coroutine(guided)),
        }
        if self.attempts > 1:
            arms["verdict"] = plays.arm("verdict", lambda: plays.play("verdict"))
            lines = reports_of_others(guided, ("dahlia", ctx.seed, "shuffled"))
            if lines is None:
                ctx.say("there is no arm shuffled: fewer than two tasks had a report to exchange")
            else:
                arms["shuffled"] = plays.arm(
                    "shuffled", lambda: plays.play("shuffled", reports=lines)
                )
            arms["random"] = plays.arm("random", lambda: plays.play("random", counts))
            arms["oracle"] = plays.arm("oracle", lambda: plays.play("oracle"))
        results = await pl.control.compare_arms(ctx, arms)
        own = results["guide"]
        names = ("return", "recovered", "attempts", "precision", "recall")
        ctx.log({"arm": "guide", **{k: own[k] for k in names}})
        noticed, alarmed = own["noticed"], own["alarmed"]
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                **{k: own[k] for k in names[1:]},
                "expected": retried_success(own["first"], noticed, alarmed, self.attempts),
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"tasks": str(ctx.out / "tasks")},
        )


def read_tasks(file: str) -> list[dict[str, Any]]:
    """Rows of a file of tasks. Raises UserError for a file or a line that is none."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise pl.UserError(f"instructions={file}: there is no such file")
    rows = list[dict[str, Any]]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise pl.UserError(f"{file}:{number} is no JSON: {error}") from None
        if not isinstance(row, dict) or not isinstance(row.get("instruction"), str):
            raise pl.UserError(f'{file}:{number}: a task is a row with "instruction", a text')
        rows.append(row)
    if not rows:
        raise pl.UserError(f"{file} has no tasks")
    return rows


def world_by_name(spec: str) -> ManipulationWorld:
    """A world from FILE.py:NAME, a class or a function without arguments, or a world itself. Raises
    UserError for anything else.
    """
    own = pl.tasks.load(spec, "world")
    world: Any = (
        own() if isinstance(own, type) or (callable(own) and not hasattr(own, "reset")) else own
    )
    parts = ("about", "primitives", "reset", "poses", "act", "success")
    if lacks := [n for n in parts if not hasattr(world, n)]:
        raise pl.UserError(
            f"{spec} is no world that programs act on: it has no {', no '.join(lacks)}; see docs/methods/dahlia.md"
        )
    return world


def retried_success(first: float, noticed: float, alarmed: float, attempts: int) -> float:
    """Success where attempts are independent: s_1 = p, and s_k = p (1 - a) + (p a + (1 - p) n) s_(k-1).

    Args:
        first: p, success of one attempt.
        noticed: n, share of failures that are judged to be ones.
        alarmed: a, share of successes that are judged failures.
    """
    success = first
    for _ in range(attempts - 1):
        success = first * (1 - alarmed) + (first * alarmed + (1 - first) * noticed) * success
    return success


def reports_of_others(
    tasks: Sequence[Mapping[str, Any]], key: pl.Key
) -> Sequence[Sequence[str]] | None:
    """For each task what the planner heard in another one after its attempts that were judged to fail, one after
    another; None = fewer than two tasks have such a report.

    Args:
        tasks: of the arm with the reporter.
    """
    # after an attempt that another one followed
    said = [[x["report"] for x in task["trace"][:-1]] for task in tasks]
    givers = [i for i, lines in enumerate(said) if lines]
    if len(givers) < 2:
        return None
    draw = lambda i: pl.rng_of((*key, i)).choice([g for g in givers if g != i])
    return [said[int(draw(i))] for i in range(len(tasks))]


def judge_numbers(pairs: Sequence[tuple[bool, bool]]) -> dict[str, float]:
    """Precision and recall of judgments "done", of (judged, true); 0 where they are not defined. And the
    shares of failures that are noticed, and of successes that raise a false alarm.
    """
    both = sum(j and t for j, t in pairs)
    n_said, true = sum(j for j, _ in pairs), sum(t for _, t in pairs)
    failures = len(pairs) - true
    return {
        "precision": both / n_said if n_said else 0.0,
        "recall": both / true if true else 0.0,
        "noticed": (failures - (n_said - both)) / failures if failures else 0.0,
        "alarmed": (true - both) / true if true else 0.0,
    }


async def as_coroutine(value: Any) -> Any:
    return value


def traced(plan: WrittenProgram, ran: ProgramRun, report: str) -> dict[str, Any]:
    """What is kept of an attempt."""
    kept = {"program": plan.code, "helpers": list(plan.helpers), "calls": ran.calls}
    return {**kept, "error": ran.error, "report": report}


class TaskArms:
    """Attempts the tasks of a run."""

    def __init__(
        self,
        program: JudgeAttempts,
        ctx: pl.Context,
        sources: Mapping[str, pl.Source],
        rows: Sequence[dict[str, Any]],
    ):
        steps = ctx.budget.get("steps")
        self.program, self.ctx, self.sources = program, ctx, sources
        self.broken: list[str] = []  # why judges set nothing
        self.rows = list(rows if steps is None else rows[: TASKS_OF_A_STEP * max(1, int(steps))])

    def arm(
        self, name: str, play: Callable[[], Awaitable[list[dict[str, Any]]]]
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs: the means over tasks, which are kept in the run folder."""

        async def run() -> Mapping[str, Any]:
            tasks = await play()
            if self.ctx.out is not None:
                folder = self.ctx.out / "tasks"
                folder.mkdir(parents=True, exist_ok=True)
                text = "\n".join(json.dumps(t) for t in tasks) + "\n"
                (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
            self._say_unjudged(name, tasks)
            wins = np.array([t["success"] for t in tasks])
            pairs = [(bool(j), bool(t)) for row in tasks for j, t in row["judged"]]
            return {
                "return": float(wins.mean()),
                "error": pl.stats.standard_error(wins),
                **{k: float(np.mean([t[k] for t in tasks])) for k in SHARES},
                **judge_numbers(pairs),
            }

        return run

    def _say_unjudged(self, name: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Says how many tasks ended as the reporter's judgment was none, and why one was."""
        if ended := sum(t["unjudged"] > 0 for t in tasks):
            why = self.broken[0] if self.broken else "no reply of the reporter fits"
            self.ctx.say(
                f"arm {name}: {ended} of {len(tasks)} tasks ended because nobody could judge an attempt ({why})"
            )

    async def play(
        self,
        judge: Judge,
        counts: Sequence[int] = (),
        reports: Sequence[Sequence[str]] = (),
    ) -> list[dict[str, Any]]:
        """Every task of an arm; `counts` are the attempts of "random", `reports` what is told in "shuffled"."""
        most = lambda i: {"none": 1, "random": counts[i] if counts else 1}.get(
            judge, self.program.attempts
        )
        lines: Sequence[Sequence[str]] = reports or [()] * len(self.rows)
        work = (self.attempt(i, judge, most(i), lines[i]) for i in range(len(self.rows)))
        if getattr(self.program.world, "concurrent", False):
            return list(await asyncio.gather(*work))
        return [await one for one in work]

    async def attempt(
        self, i: int, judge: Judge, most: int, reports: Sequence[str] = ()
    ) -> dict[str, Any]:
        """One task, with at most so many attempts, after each of which the planner hears a report of `reports`, the
        last one again where there are fewer; without them its own.
        """
        program, row = self.program, self.rows[i]
        key = ("dahlia", self.ctx.seed, i)
        start = lambda: program.world.reset(row, pl.rng_of((*key, "start")))
        roles = TaskRoles(
            self.ctx, program.world, self.sources, row["instruction"], program.co_planners
        )
        state, verdicts, trace = start(), list[tuple[bool, bool]](), list[Any]()
        first, words, errors, acts, unjudged = False, "", 0, 0, 0
        attempt = 0
        for attempt in range(1, most + 1):
            if attempt > 1 and program.retry == "reset":
                state = start()
            before = plain_data(program.world.poses(state))
            plan = await roles.plan(before, words)
            ran = ProgramRun(state=state, error="no program was written")
            if plan.code:
                rng = pl.rng_of((*key, "attempt", attempt))
                ran = await run_plan(
                    program.world, state, row["instruction"], plan.code, rng, plan.helpers,
                    co_planners=roles.co_planners, answers=roles.answer,
                )  # fmt: skip
            state, acts, errors = ran.state, acts + len(ran.calls), errors + bool(ran.error)
            true = bool(program.world.success(state, row))
            first = first or (attempt == 1 and true)
            flip = (*key, "flip", attempt)
            done, words = await self._judge(judge, roles, ran, true, before, flip)
            if reports:
                words = reports[min(attempt, len(reports)) - 1]
            trace.append(traced(plan, ran, words))
            if judge in ("reporter", "verdict", "shuffled"):
                unjudged += done is None
                verdicts += [] if done is None else [(done, true)]
            if done is None or done:
                break
        success = bool(program.world.success(state, row))
        return {
            "instruction": row["instruction"],
            "success": float(success),
            "first": float(first),
            "recovered": float(success and not first),
            "attempts": attempt,
            "calls": roles.calls,
            "acts": acts,
            "errors": errors,
            "helpers": roles.helpers,
            "answers": roles.answers,
            "fallbacks": roles.fallbacks,
            "unjudged": unjudged,
            "judged": verdicts,
            "trace": trace,
        }

    async def _judge(
        self,
        judge: Judge,
        roles: TaskRoles,
        ran: ProgramRun,
        true: bool,
        before: Mapping[str, Any],
        key: pl.Key,
    ) -> tuple[bool | None, str]:
        """Whether an attempt is taken to have done its task, None = nobody can say, and what the
        planner hears where it is not.
        """
        again = "The last program was judged to fail."
        if judge in ("none", "random"):
            return False, "The last program may have failed."
        if judge == "oracle" and true:
            return True, ""
        poses = plain_data(self.program.world.poses(ran.state))
        reply = await roles.report(poses, ran.calls, ran.error, before)
        lines = "\n".join(reply.report[:3]) if reply else ""
        if judge == "oracle":
            return False, f"{again}\n{lines}"
        done = None if reply is None else await self._by_code(roles, ran, reply)
        if done is not None and pl.rng_of(key).random() < self.program.flip:
            done = not done
        return done, again if judge == "verdict" else f"{again}\n{lines}"

    async def _by_code(self, roles: TaskRoles, ran: ProgramRun, reply: JudgeReply) -> bool | None:
        poses = self.program.world.poses(ran.state)
        outcome = await run_judge(poses, roles.instruction, reply.judge)
        if isinstance(outcome, bool):
            return outcome
        self.broken.append(outcome)
        return None
