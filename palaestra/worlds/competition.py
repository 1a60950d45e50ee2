"""A competition that is played in steps: ask for information, try a program, run and submit it.

    user: <the competition>    execute_code + a program    tool: raw score 0.86, position score 0.60, ...

Actions and scores are those of MLE-Dojo (arXiv:2505.07782; released code MLE-Dojo/MLE-Dojo). Programs run in the
sandbox, which has the public files of the competition, Python's standard library and numpy. The
answers never enter it: submissions are graded here.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.services.sandbox import Limits, Ran, run_program, sandbox_kind
from palaestra.services.threads import run_in_thread
from palaestra.services.tools.base import wait_for
from palaestra.services.tools.sandboxed import GRACE
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    stage,
    value_class,
)
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.competition_files import (
    DRAWN,
    Competition,
    competition_named,
)
from palaestra.worlds.tool_log import CallOutcome, log_facts

INFO, VALIDATE, EXECUTE, HISTORY, RESET = ACTIONS = (
    "request_info",
    "validate_code",
    "execute_code",
    "get_history",
    "reset",
)
KINDS = ("overview", "sample_submission", "data_structure", "metadata", "name", "all")
ACTION = re.compile(
    rf"^[\s>*#`<(\[{{\"'-]*(?:action\W+)?({'|'.join(ACTIONS)})\b[\W_]*(\w*)", re.I | re.M
)
FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:py|python|python3)?[ \t]*\n(.*?)^[ \t]*```", re.I | re.M | re.S
)
SUBMISSION = "submission.csv"
MEGABYTE = 1 << 20
RUNNER = """
import os, runpy, sys
try:
    runpy.run_path("solution.py", run_name="__main__")
finally:
    sys.stdout.flush()
    if os.path.isfile({file!r}):
        with open({file!r}, "rb") as file:
            sys.stdout.buffer.write(b"\\n{mark}\\n" + file.read())
        sys.stdout.flush()
"""
CAUSES = {  # of errors, by their class
    "SyntaxError": "the program is no Python; look at the line that is named",
    "IndentationError": "the program is no Python; look at the line that is named",
    "ModuleNotFoundError": "there are Python's standard library and numpy, and the .py files of the data",
    "FileNotFoundError": "the files lie in the working folder: {files}",
    "KeyError": "a column or key is not there; {info} data_structure shows the columns",
    "ValueError": "a value or a shape is not what was expected; text may need to be converted",
    "TypeError": "a value has another type than expected; a CSV file gives text",
    "IndexError": "an index is beyond the end",
    "MemoryError": "the data or a table of it is too large for the memory that there is",
}
STATUSES = {
    "timeout": "TimeoutError: the program ran longer than {seconds:g} s",
    "memory": "MemoryError: the program took more than {memory} MB",
    "output": "OutputError: the program wrote too much",
}
USAGE = (
    "Play this competition in at most {steps} messages. Each has one action on a line of its own:\n"
    "request_info KIND: {kinds}\n"
    "validate_code, and a program in a ```python fence: runs it without a score\n"
    "execute_code, and a program likewise: runs it, and what it wrote to submission.csv is scored\n"
    "get_history: what you did\nreset: begins a new history\n"
    "A program starts in a folder with the data, and has {seconds:g} s, {memory} MB, Python's standard library and "
    "numpy. Your score is the best position on the leaderboard."
)


@value_class
class CompetitionStep:
    """What was done: the action ("" = none could be read), how it ended, and its scores, if it was
    graded.
    """

    action: str
    status: str
    raw: float | None = None
    position: float | None = None


@value_class
class CompetitionState:
    """Where a player stands. `best` is a position score, `best_raw` the best metric; a reset leaves
    `best`, which was paid, and forgets the history from `since` on back.
    """

    task: Task
    steps: tuple[CompetitionStep, ...] = ()
    best: float = 0.0
    best_raw: float | None = None
    since: int = 0


@declare(
    facts=(
        "turns",
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "tool_log",
        "tools_offered",
        "malformed",
        ("position", float, "the best position score, from 0 to 1"),
        ("first_position", float, "the position score of the first submission that was graded"),
        ("raw_score", float, "the best metric of a competition; not there without a submission"),
        ("competition_actions", tuple, "the actions of a competition, in order"),
        ("graded", int, "submissions that were graded"),
    ),
    reads_columns=("competition",),
)
@stage
class CompetitionWorld:
    """Pays how much the best position score rises in each step, which sums up to the best one; with
    `pays="best"` that at the end. What is not graded pays 0: a failed program, one without a valid
    submission, and every other action.

    A message that is no action, or has no program where one is needed, is answered with what can be
    done, and counts as a step. Several actions in a message: the first is done.

    Args:
        steps: actions of an episode.
        pays: see above.
        seconds: of a program; 0 = as the competition says. Its memory is the competition's too.
        chars: of what a program printed that are shown.
        kit: programs may import the baseline models as `kit`.
        told: the actions stand behind the description.
        worked: what the oracle executes, of the competition's solutions: the "first", or "any" of them;
            "" = there is no oracle.

    A program that was run before on the same data is not run again: its result is remembered. Of
    the drawn competitions the outcomes of their solutions are known from their leaderboards.
    """

    steps: int = 10
    pays: Literal["improvement", "best"] = "improvement"
    seconds: float = 0.0
    chars: int = 1000
    kit: bool = False
    told: bool = False
    worked: Literal["", "first", "any"] = ""
    seats: tuple[str, ...] = ("policy",)
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, steps=1, seconds=0, chars=1)
        for name, legal in (("pays", ("improvement", "best")), ("worked", ("", "first", "any"))):
            if getattr(self, name) not in legal:
                raise UserError(
                    f"competition: {name} is {' or '.join(legal)}, not {getattr(self, name)!r}"
                )
        if refusal := sandbox_kind().refusal():
            raise UserError(f"a competition needs the sandbox: {refusal}")

    @property
    def has_oracle(self) -> bool:
        return bool(self.worked)

    def competition(self, task: Task) -> Competition:
        name = task.meta.get("competition")
        if not isinstance(name, str):
            raise UserError(f"task {task.id!r} has no competition")
        return competition_named(name, self.kit and not name.startswith(DRAWN))

    def reset(self, task: Task, key: Key) -> Frame:
        c = self.competition(task)
        usage = USAGE.format(
            steps=self.steps,
            kinds=", ".join(KINDS),
            seconds=self._limits(c).seconds,
            memory=c.memory_mb,
        )
        text = "\n\n".join(
            filter(
                None, (c.description, metadata(c) if self.told else "", usage if self.told else "")
            )
        )
        *before, last = task.prompt
        say = (*before, replace(last, content=text))
        return self._ask(CompetitionState(task=task), say)

    async def step(self, state: CompetitionState, acts: tuple[Act, ...], key: Key) -> Frame:
        action, kind, code = read_competition_action(acts[0].text)
        c = self.competition(state.task)
        if action in (VALIDATE, EXECUTE):
            if not code.strip():
                return self._after(state, CompetitionStep(action=action, status="no code"), NO_CODE)
            return await self._run(state, c, action, code)
        if action == RESET:
            fresh = replace(state, since=len(state.steps) + 1, best_raw=None)
            return self._after(
                fresh, CompetitionStep(action=action, status="ok"), "A new history begins."
            )
        if action == HISTORY:
            return self._after(state, CompetitionStep(action=action, status="ok"), history(state))
        if action == INFO and (kind.lower() or "all") in KINDS:
            text = information(c, kind.lower() or "all")
            return self._after(state, CompetitionStep(action=action, status="ok"), text)
        if action == INFO:
            text = f"InfoError: there is {', '.join(KINDS)}"
            return self._after(state, CompetitionStep(action=action, status="unknown"), text)
        return self._after(state, CompetitionStep(action="", status="no action"), NO_ACTION)

    def oracle(self, state: CompetitionState) -> str:
        """Executes a solution of the competition. Raises UserError where it has none."""
        c = self.competition(state.task)
        if not c.solutions:
            raise UserError(
                f"{c.name} has no programs to show; put some into its folder solutions, as .py files"
            )
        key = ("solution", state.task.id, len(state.steps))
        at = 0 if self.worked == "first" else int(rng_of(key).integers(len(c.solutions)))
        return f"{EXECUTE}\n```python\n{c.solutions[at].strip()}\n```"

    def _limits(self, c: Competition) -> Limits:
        size = sum(map(len, c.public.values())) // MEGABYTE
        return Limits(
            seconds=self.seconds or c.seconds,
            memory_mb=c.memory_mb,
            output_bytes=16 * MEGABYTE,
            file_mb=64 + 3 * size,
        )

    async def _outcome(self, c: Competition, code: str) -> tuple[Ran, str | None]:
        """How a program ended, and its submission, which stands behind a mark in the output; None =
        there is none. Raises Fault where the sandbox does not answer.
        """
        if code.strip() in c.known:
            printed, submission = c.known[code.strip()]
            return Ran(status="ok", stdout=printed), submission
        limits = self._limits(c)
        key = (c.digest, code, limits)
        if key in OUTCOMES:
            return OUTCOMES[key]
        mark = f"submission {secrets.token_hex(16)}"
        files = {**c.public, "solution.py": code}
        runner = RUNNER.format(file=SUBMISSION, mark=mark)
        work = run_in_thread(lambda: run_program(runner, files=files, limits=limits), "competition")
        if not await wait_for(work, limits.seconds + GRACE):
            raise Fault("sandbox", f"it gave nothing in {limits.seconds + GRACE:g} s")
        outcome = split_submission(work.result(), mark)
        ran, submission = outcome
        small = len(ran.stdout) + len(ran.stderr) + len(submission or "") < REMEMBERED_CHARS
        if ran.status in ("ok", "error") and small:
            if len(OUTCOMES) >= REMEMBERED:
                OUTCOMES.pop(next(iter(OUTCOMES)))
            OUTCOMES[key] = outcome
        return outcome

    async def _run(self, state: CompetitionState, c: Competition, action: str, code: str) -> Frame:
        ran, submission = await self._outcome(c, code)
        if ran.status == "refused":
            raise Fault("sandbox", ran.stderr)
        printed = shorten_middle(ran.stdout.strip(), self.chars)
        output = f"\noutput:\n{printed}" if printed else ""
        if ran.status != "ok":
            step = CompetitionStep(action=action, status=ran.status)
            return self._after(state, step, f"{self._failure(ran, c)}{output}")
        if action == VALIDATE:
            wrote = "was written" if submission is not None else "was NOT written"
            text = f"VALID: the program ran, {SUBMISSION} {wrote}{output}"
            return self._after(state, CompetitionStep(action=action, status="ok"), text)
        if submission is None:
            text = f"SubmissionNotFoundError: the program ran and wrote no {SUBMISSION}{output}"
            return self._after(state, CompetitionStep(action=action, status="no submission"), text)
        raw, reason = c.grade(submission)
        if raw is None:
            step = CompetitionStep(action=action, status="invalid")
            return self._after(state, step, f"InvalidSubmissionError: {reason}{output}")
        return self._graded(state, c, raw, output)

    def _graded(self, state: CompetitionState, c: Competition, raw: float, output: str) -> Frame:
        position = c.position(raw)
        best_raw = raw if c.better(raw, state.best_raw) else state.best_raw
        gain = max(0.0, position - state.best)
        after = replace(state, best=max(position, state.best), best_raw=best_raw)
        text = (
            f"raw score {raw:.6g} (best {best_raw:.6g}), position score {position:.3f} (best "
            f"{after.best:.3f}){output}"
        )
        step = CompetitionStep(action=EXECUTE, status="graded", raw=raw, position=position)
        return self._after(after, step, text, gain)

    def _failure(self, ran: Ran, c: Competition) -> str:
        """The error, and what may be its cause."""
        last = ran.stderr.strip().rpartition("\n")[2]
        if ran.status in STATUSES:
            last = STATUSES[ran.status].format(seconds=self._limits(c).seconds, memory=c.memory_mb)
        place = re.findall(r'File ".*?solution\.py", line (\d+)', ran.stderr)
        line = f" (line {place[-1]})" if place else ""
        kind = last.partition(":")[0].rpartition(".")[2]
        cause = CAUSES.get(kind, "").format(files=", ".join(c.public), info=INFO)
        return f"FAILED: {shorten_middle(last, self.chars)}{line}" + (
            f"\nlikely cause: {cause}" if cause else ""
        )

    def _after(
        self, state: CompetitionState, step: CompetitionStep, text: str, gain: float = 0.0
    ) -> Frame:
        state = replace(state, steps=(*state.steps, step))
        left = self.steps - len(state.steps)
        paid = gain if self.pays == "improvement" else 0.0
        if left <= 0:
            paid = paid if self.pays == "improvement" else state.best
            return Frame(state=state, pay={("policy", ""): paid}, facts=facts(state))
        content = f"{text}\nsteps left: {left}" if self.told else text
        frame = self._ask(state, (Message(role="tool", content=content),))
        return replace(frame, pay={("policy", ""): paid}) if paid else frame

    def _ask(self, state: CompetitionState, say: tuple[Message, ...]) -> Frame:
        return Frame(state=state, asks=(Ask(seat="policy", say=say),), facts=facts(state))


OUTCOMES: dict[tuple[str, str, Limits], tuple[Ran, str | None]] = {}  # of programs, by their data
REMEMBERED, REMEMBERED_CHARS = 512, 1 << 18
NO_CODE = f"CodeError: {VALIDATE} and {EXECUTE} need a program in a ```python fence"
NO_ACTION = f"ActionError: a message has one action, {', '.join(ACTIONS)}, on a line of its own"


def read_competition_action(text: str) -> tuple[str, str, str]:
    """The action of a message, the word behind it, and the program of the first fence behind it. What
    is thought is none. A program without an action is executed; ("", "", "") = nothing of this.
    """
    reply = strip_thinking(text)
    outside = FENCE.sub(lambda m: " " * len(m[0]), reply)  # an action in a program is none
    action = ACTION.search(outside)
    programs = [m for m in FENCE.finditer(reply) if not action or m.start() > action.start()]
    code = programs[0][1] if programs else ""
    if action is None:
        return (EXECUTE, "", code) if code.strip() else ("", "", "")
    return action[1].lower(), action[2], code


def split_submission(ran: Ran, mark: str) -> tuple[Ran, str | None]:
    """A run with what its program printed alone, and the submission; None = there is none."""
    printed, separator, submission = ran.stdout.rpartition(f"\n{mark}\n")
    return (replace(ran, stdout=printed), submission) if separator else (ran, None)


def shorten_middle(text: str, chars: int) -> str:
    half = chars // 2
    return text if len(text) <= chars else f"{text[:half]} ... {text[len(text) - half :]}"


def metadata(c: Competition) -> str:
    better = "higher" if c.scorer.higher else "lower"
    return (
        f"metric: {c.metric}, {better} is better; {SUBMISSION} has the columns "
        f"{', '.join((c.id_column, *c.targets))}, a row for each of {len(c.answers)} test rows"
    )


def information(c: Competition, kind: str) -> str:
    """What a player is told of a competition; nothing of it comes from the answers."""
    sample = c.public.get("sample_submission.csv", b"").decode(errors="replace")
    sections = {
        "name": c.name,
        "overview": c.description,
        "metadata": metadata(c),
        "sample_submission": "\n".join(sample.splitlines()[:4]) or "There is no sample.",
        "data_structure": "\n".join(
            f"{n} ({len(b)} bytes){head(n, b)}" for n, b in c.public.items()
        ),
    }
    return (
        "\n\n".join(f"{k}:\n{v}" for k, v in sections.items()) if kind == "all" else sections[kind]
    )


def head(name: str, content: bytes) -> str:
    """The first two lines of a table."""
    if not name.endswith((".csv", ".tsv")):
        return ""
    lines = content[:2000].decode(errors="replace").splitlines()[:2]
    return "".join(f"\n    {line[:200]}" for line in lines)


def history(state: CompetitionState) -> str:
    lines = [
        f"{n}. {s.action or 'no action'}: {s.status}"
        + ("" if s.raw is None else f", raw {s.raw:.6g}, position {s.position:.3f}")
        for n, s in enumerate(state.steps[state.since :], 1)
    ]
    return "\n".join(lines) or "Nothing was done yet."


def facts(state: CompetitionState) -> Mapping[str, Any]:
    ran = [s for s in state.steps if s.action in (VALIDATE, EXECUTE) and s.status != "no code"]
    log = tuple((n, *call) for n, s in enumerate(state.steps, 1) if (call := logged(s)))
    graded = [s.position for s in state.steps if s.position is not None]
    malformed = sum(s.status in ("no action", "no code", "unknown") for s in state.steps)
    raw = {} if state.best_raw is None else {"raw_score": state.best_raw}
    return {
        "turns": len(state.steps),
        "tool_calls": len(ran),
        "tool_malformed": malformed,
        "malformed": malformed,
        "tool_errors": sum(s.status not in ("ok", "graded") for s in ran),
        **log_facts(log, None, (VALIDATE, EXECUTE)),
        "position": state.best,
        "first_position": graded[0] if graded else 0.0,
        "competition_actions": tuple(s.action for s in state.steps),
        "graded": len(graded),
        **raw,
    }


def logged(step: CompetitionStep) -> tuple[str, CallOutcome] | None:
    """A step as a log of calls has it: programs are calls, and so is what could not be read."""
    if step.status in ("no action", "no code", "unknown"):
        return "", "malformed"
    if step.action not in (VALIDATE, EXECUTE):
        return None
    return step.action, "result" if step.status in ("ok", "graded") else "error"
