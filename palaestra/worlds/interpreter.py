"""Questions that are answered with Python inside the reply: a program stands in a fence, its output
follows in another one, and the same reply goes on.

    form "output" (ToRL, arXiv:2503.23383)        form "fence" (ZeroTIR, arXiv:2505.07773)

    ```python                                     ```python
    print(37 * 48)                                print(37 * 48)
    ```                                           ```
    ```output                <- sampling stops    <- sampling stops
    1776                     <- shown, masked     ```output, 1776, ``` shown, masked
    ```
    So it is \\boxed{1776}.                        So it is \\boxed{1776}.

No chat template and no format of calls is needed, so base models can do it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, Literal, Self

from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.services.sandbox import sandbox_kind
from palaestra.services.sandbox.agents import SessionPool, session_pool
from palaestra.services.sandbox.values import Limits, Ran
from palaestra.services.tools.names import SANDBOX
from palaestra.services.tools.sandboxed import SILENT, run_beside
from palaestra.tasks.phrasing import question_text
from palaestra.tasks.procedural import format_answer
from palaestra.types import Act, Ask, Frame, Key, Task, need_at_least, rng_of, stage, value_class
from palaestra.verifiers.answers.final import gold_of
from palaestra.worlds.outage import OUT, Outage
from palaestra.worlds.tool_log import CallOutcome, LoggedCall, log_facts
from palaestra.worlds.uptake import Uptake

FENCE, OPENED, OUTPUT = "```", "```python", "```output"
OPENING = re.compile(r"```py(?:thon)?3?\b", re.IGNORECASE)
PROGRAM = re.compile(OPENING.pattern + r"[ \t]*\r?\n(.*?)```(?!output)", re.DOTALL | re.IGNORECASE)
SUM = re.compile(r"[0-9+\-*/() ]*[0-9][0-9+\-*/() ]*")
BOX, BOXED = "\\boxed{", "Put the final answer in \\boxed{}."
TOO_LONG = "output too long"
MEMORY_MB = 512  # of a session


@value_class
class InterpreterState:
    task: Task
    session: int = -1  # in the pool; -1 = each program runs alone
    programs: tuple[str, ...] = ()  # that were run, in order
    outputs: tuple[str, ...] = ()  # of these, as the policy read them
    failed: tuple[bool, ...] = ()  # of these, whether it ended with an error
    malformed: int = 0  # stops without a program
    opened: int = 0  # fences of programs that the policy opened
    faked: int = 0  # output fences that the policy wrote where none is read
    executed: tuple[bool, ...] = ()  # by turn
    inside: bool = False  # the next turn is code
    log: tuple[LoggedCall, ...] = ()
    seconds: tuple[float, ...] = field(default=(), compare=False)  # of the calls in the log
    uptake: Uptake = field(default=Uptake(), repr=False, compare=False)  # a result by call in the log

    @property
    def stops(self) -> int:
        return len(self.programs) + self.malformed


@declare(
    facts=(
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "executed",
        "answered",
        "tool_log",
        "tool_seconds",
        "tools_offered",
        "tool_used",
        ("failures", tuple, "by program, whether it ended with an error"),
        ("outputs", tuple, "by program, what was shown of its output"),
        ("code_fences", int, "fences of programs that the policy opened"),
        ("faked_outputs", int, "output fences that the policy wrote itself"),
    )
)
@stage
class Interpreter:
    """Pays nothing: a verifier scores what is said after the last output. The output is context and
    carries no gradient; the fence that asks for it is the policy's own.

    A program that fails shows what it printed and the last line of its error. A stop without a
    whole program shows nothing and uses up a call; of form "output" its fence may also be ```py,
    ```Python or ```python3, and ```output does not close it. After `calls` the stop strings are gone, and code
    is text like any other. A reply whose last part is empty or was cut has no answer.

    Args:
        calls: programs that a reply may run; 0 = none, the same questions without the tool.
        form: what asks for the output, see above.
        keep: names live on from program to program, in a session of the sandbox; else each program
            begins in an empty world.
        seconds: that a program may take.
        chars: of an output.
        long: what becomes of an output of at least that many: "middle" keeps the first and the last
            chars / 2 with "..." between them, "notice" says that it is too long.
        told: how programs are run stands behind the question.
        worked: the share of questions to which the oracle writes a program: the column `program`,
            or of a question that is a sum, its print; to others it says the answer. 0 = no oracle.
        fails: share of the programs that are not run and give an error, see `Outage`.
        fails_from: the step of training from which on they do.
    """

    calls: int = 1
    form: Literal["output", "fence"] = "output"
    keep: bool = False
    seconds: float = 10.0
    chars: int = 256
    long: Literal["middle", "notice"] = "middle"
    told: bool = False
    worked: float = 0.0
    fails: float = 0.0
    fails_from: int = 0
    trained: int = field(default=0, repr=False, compare=False)  # steps before this one
    seats: ClassVar[tuple[str, ...]] = ("policy",)

    def __post_init__(self) -> None:
        need_at_least(self, calls=0, chars=2, worked=0)
        Outage(share=self.fails, since=self.fails_from)
        for name, known in (("form", ("output", "fence")), ("long", ("middle", "notice"))):
            if (given := getattr(self, name)) not in known:
                raise UserError(f"interpreter: {name} is {' or '.join(known)}, not {given!r}")
        self._limits()
        if self.calls and (refusal := sandbox_kind().refusal()):
            raise UserError(f"an interpreter needs the sandbox: {refusal}")

    def closed(self) -> Interpreter:
        """The same questions without the tool."""
        return replace(self, calls=0)

    def at_step(self, step: int) -> Self:
        return replace(self, trained=step) if self.fails else self

    @property
    def turns(self) -> int:
        """That an episode may have."""
        return 1 + self.calls * (2 if self.form == "fence" else 1)

    async def reset(self, task: Task, key: Key) -> Frame:
        asked = Uptake().said(*(m.shown for m in task.prompt))
        state = InterpreterState(task=task, uptake=asked)
        if self.keep and self.calls:
            state = replace(state, session=await self._pool.open("", self._limits()))
        *before, last = task.prompt
        usage = self.usage if BOX in last.content else f"{self.usage} {BOXED}"
        content = f"{last.content}\n\n{usage}" if self.told and self.calls else last.content
        return self._ask(state, say=(*before, replace(last, content=content)))

    async def step(self, state: InterpreterState, acts: tuple[Act, ...], key: Key) -> Frame:
        act = acts[0]
        state = replace(state, uptake=state.uptake.said(act.text))
        if act.finish != "stop":
            return self._end(state, act)
        if self.form == "fence" and not state.inside:
            state = self._count(state, act.text.removesuffix(OPENED), opened=1)
            return self._ask(replace(state, inside=True, executed=(*state.executed, True)))
        code = self._program(act.text)
        if not state.inside:
            state = self._count(state, act.text.removesuffix(OUTPUT))
        state = replace(state, inside=False)
        if code is None:
            done = (*state.executed, False)
            unread = self._logged(state, "", "malformed", 0.0, "")
            return self._ask(replace(unread, malformed=state.malformed + 1, executed=done))
        begin = time.perf_counter()
        if Outage(share=self.fails, since=self.fails_from).fails(key, self.trained):
            ran = Ran(status="error", stderr=OUT)
            # what was not run must leave no names in the session
            state = replace(state, programs=(*state.programs, "" if self.keep else code))
        else:
            state, ran = await self._run(state, code)
        took = time.perf_counter() - begin
        failed, output = ran.status != "ok", self._output(ran)
        state = self._logged(
            state, SANDBOX, "error" if failed else "result", took, "" if failed else output
        )
        state = replace(
            state,
            outputs=(*state.outputs, output),
            failed=(*state.failed, failed),
            executed=(*state.executed, not failed),
        )
        begin = "\n" if self.form == "output" else f"\n{OUTPUT}\n"
        return self._ask(state, shown=f"{begin}{output}\n{FENCE}\n")

    def _logged(
        self, state: InterpreterState, tool: str, outcome: CallOutcome, seconds: float, gave: str
    ) -> InterpreterState:
        call: LoggedCall = (len(state.executed) + 1, tool, outcome)
        return replace(
            state,
            log=(*state.log, call),
            seconds=(*state.seconds, seconds),
            uptake=state.uptake.returned(gave),
        )

    async def leave(self, state: InterpreterState) -> None:
        """Ends the session of an episode that has one."""
        if state.session >= 0:
            await self._pool.close(state.session)

    @property
    def usage(self) -> str:
        """How programs are run, in words."""
        ends = "" if self.form == "fence" else f" and then the line {OUTPUT}"
        names = "Names live on." if self.keep else "Each program starts anew."
        most = "one program" if self.calls == 1 else f"up to {self.calls} programs"
        return (
            f"While you reason you may run {most} in Python: write the program between {OPENED} and "
            f"{FENCE}{ends}. What it prints is shown behind it in {OUTPUT}, and you go on. {names}"
        )

    @property
    def has_oracle(self) -> bool:
        return self.worked > 0

    def oracle(self, state: InterpreterState) -> str:
        """A program for a share of the questions, then the answer; see `worked`."""
        task = state.task
        program = task.meta.get("program") or self._sum(task)
        draws = rng_of(("worked", question_text(task))).random() < self.worked
        if state.inside:
            return f"\n{program}\n{FENCE}"
        if not program or not draws or state.stops or not self.calls:
            return format_answer([], gold_of(task.answer))
        return OPENED if self.form == "fence" else f"{OPENED}\n{program}\n{FENCE}\n{OUTPUT}"

    def _sum(self, task: Task) -> str:
        asked = question_text(task).strip()
        return f"print({asked})" if SUM.fullmatch(asked) else ""

    def _program(self, text: str) -> str | None:
        """The last whole program of a turn; None = there is none."""
        if self.form == "fence":
            code = text.removesuffix(FENCE)
            return code if code.strip() else None
        programs = PROGRAM.findall(text)
        return programs[-1] if programs and programs[-1].strip() else None

    def _count(self, state: InterpreterState, text: str, opened: int = 0) -> InterpreterState:
        """The state with the fences of what was said outside of code."""
        # of "fence" no other fence asks for a program
        fences = text.count(OPENED) if self.form == "fence" else len(OPENING.findall(text))
        return replace(
            state,
            opened=state.opened + fences + opened,
            faked=state.faked + text.count(OUTPUT),
        )

    async def _run(self, state: InterpreterState, code: str) -> tuple[InterpreterState, Ran]:
        """Runs a program; the state afterwards. Raises Fault where nothing was run."""
        if state.session < 0:
            ran = await run_beside(code, self.seconds)
        else:
            state = replace(state, session=await self._stand(state))
            ran = await self._pool.run(state.session, code)
        if ran.status == "refused":
            raise Fault("sandbox", ran.stderr)
        return replace(state, programs=(*state.programs, code)), ran

    async def _stand(self, state: InterpreterState) -> int:
        """The session in which these programs were run, and no others; a new one for a branch."""
        if self._pool.cells(state.session) == state.programs:
            return state.session
        number = await self._pool.open("", self._limits())
        for code in state.programs:
            await self._pool.run(number, code)
        return number

    @property
    def _pool(self) -> SessionPool:
        return session_pool()

    def _limits(self) -> Limits:
        return Limits(seconds=self.seconds, memory_mb=MEMORY_MB, output_bytes=1_000_000)

    def _output(self, ran: Ran) -> str:
        """What a program shows."""
        last = ran.stderr.strip().rpartition("\n")[2] or "error"
        why = {"ok": "", "error": last, "timeout": f"TimeoutError: {self.seconds:g} s"}.get(
            ran.status, f"Error: {ran.status}"
        )
        text = "\n".join(filter(None, (ran.stdout.strip(), why))) or SILENT
        if len(text) < self.chars:
            return text
        half = self.chars // 2
        return TOO_LONG if self.long == "notice" else f"{text[:half]}...{text[-half:]}"

    def _ask(self, state: InterpreterState, shown: str = "", say: tuple[Any, ...] = ()) -> Frame:
        stop: tuple[str, ...] = ()
        if state.inside:
            stop = (FENCE,)
        elif state.stops < self.calls:
            stop = (OPENED if self.form == "fence" else OUTPUT,)
        ask = Ask(seat="policy", say=say, stop=stop, shown=shown)
        return Frame(state=state, asks=(ask,), facts=facts(state))

    def _end(self, state: InterpreterState, act: Act) -> Frame:
        state = state if state.inside else self._count(state, act.text)
        answered = act.finish == "eos" and not state.inside and bool(act.text.strip())
        state = replace(state, executed=(*state.executed, answered))
        status = "truncated:length" if act.finish == "length" else "finished"
        return Frame(state=state, facts={**facts(state), "answered": answered}, status=status)


def facts(state: InterpreterState) -> Mapping[str, Any]:
    return {
        "tool_calls": state.stops,
        "tool_malformed": state.malformed,
        "tool_errors": sum(state.failed),
        "executed": state.executed,
        "answered": False,
        **log_facts(state.log, state.seconds, (SANDBOX,), state.uptake.used),
        "failures": state.failed,
        "outputs": state.outputs,
        "code_fences": state.opened,
        "faked_outputs": state.faked,
    }
