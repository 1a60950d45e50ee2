"""A notebook as a world: an action is a cell of code, and what it shows is the observation.

    <think>k7</think><code>a = get('k7')</code>    tool: ok    ...    <think>sum</think><code>answer(a + b)</code>

Names live on from cell to cell, in a session of the sandbox (NB-Agent of L-Zero, arXiv:2506.23667).
The tools of a task are Python functions that its cells may call; `answer(value)` is the world's own
and ends the episode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from palaestra.declared import declare
from palaestra.services.sandbox.agents import SECONDS, SessionPool, session_pool
from palaestra.services.sandbox.values import Limits, Ran
from palaestra.types import Act, Ask, Frame, Key, Message, Task, need_at_least, stage, value_class

MARK = "\x1d"  # around an answer, in what a cell prints
ANSWER = f"def answer(value):\n    print({MARK!r} + str(value) + {MARK!r})\n"
CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)
ACTION = re.compile(r"\s*<think>(.*?)</think>\s*<code>(.*?)</code>\s*", re.DOTALL)
ANSWERED = re.compile(f"{MARK}(.*?){MARK}\n?", re.DOTALL)
SILENT, NO_CODE, LOST = "ok", "no code", "names are gone"
TAGS = ("<think>", "</think>", "<code>", "</code>")


@value_class
class NotebookState:
    task: Task
    session: int  # in the pool; one that stands elsewhere is played anew
    cells: tuple[str, ...] = ()  # code that was run, in order
    formed: tuple[bool, ...] = ()  # by turn: one thought and one piece of code, of useful length
    clean: tuple[float, ...] = ()  # by turn: 1 - errors / outputs; 0 without code
    answer: str | None = None

    @property
    def turns(self) -> int:
        return len(self.formed)


@declare(
    facts=(
        "turns",
        ("cells", int, "cells that were run"),
        ("formed", tuple, "by turn, whether it had the form"),
        ("clean", tuple, "by turn, whether its cell ran without an error"),
        "answered",
        "answer",
    )
)
@stage
class Notebook:
    """Pays 1 for the right answer, letter by letter. A turn without code is answered with that.

    Facts by turn, for rewards: "formed" (one thought and one piece of code, and no more) and
    "clean" (1 - errors / outputs of the cell). A task's `meta["tools"]` is Python that defines what
    its cells may call; the session is behind the walls of the sandbox, without network.

    Args:
        turns: that an episode may have.
        seconds: of a cell; what takes longer ends, and takes all names with it.
        lifetime: seconds of an episode, after which it is cut.
        memory_mb: of an episode's session.
        chars: of what a cell shows, and of a thought or code of useful length.
        sessions: at once, in this process; episodes beyond wait. 0 = two a core.
        beside: cells run beside the model that samples. False = in turn with it, which is slower
            where they take long, and a run repeats to the bit.
    """

    turns: int = 6
    seconds: float = 1.0
    lifetime: float = SECONDS
    memory_mb: int = 256
    chars: int = 200
    sessions: int = 0
    beside: bool = True
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, lifetime=1, chars=1, sessions=0)
        self._limits()

    async def reset(self, task: Task, key: Key) -> Frame:
        state = NotebookState(task=task, session=await self._open(task))
        return self._ask(state, task.prompt)

    async def step(self, state: NotebookState, acts: tuple[Act, ...], key: Key) -> Frame:
        text = acts[0].text
        match = CODE.search(text)
        state = replace(state, formed=(*state.formed, self._is_formed(text)))
        if match is None:
            return self._go_on(replace(state, clean=(*state.clean, 0.0)), NO_CODE)
        state, ran = await self._run(replace(state, session=await self._stand(state)), match[1])
        if ran.status == "refused":
            return self._end(replace(state, clean=(*state.clean, 0.0)), "truncated:seconds")
        answer, printed = ANSWERED.search(ran.stdout), ANSWERED.sub("", ran.stdout).strip()
        failed = ran.status != "ok"
        clean = 1 - failed / (failed + bool(printed)) if failed or printed else 1.0
        state = replace(state, clean=(*state.clean, clean), answer=answer and answer[1].strip())
        return self._end(state) if answer else self._go_on(state, output(ran, printed, self.chars))

    async def _run(self, state: Any, code: str) -> tuple[Any, Ran]:
        """Runs a cell in the session of the state; the state afterwards."""
        ran = await self._pool.run(state.session, code)
        return replace(state, cells=(*state.cells, code)), ran

    async def leave(self, state: NotebookState) -> None:
        """Ends the episode's session and all that it started."""
        await self._pool.close(state.session)

    @property
    def _pool(self) -> SessionPool:
        return session_pool(self.sessions, self.beside)

    def _limits(self) -> Limits:
        return Limits(
            seconds=self.seconds,
            memory_mb=self.memory_mb,
            output_bytes=20 * self.chars + 1000,
            file_mb=8,
            processes=16,
        )

    async def _open(self, task: Task) -> int:
        return await self._pool.open(self._prelude(task), self._limits(), self.lifetime)

    def _prelude(self, task: Task) -> str:
        """Python that a session begins with."""
        return ANSWER + task.meta.get("tools", "")

    async def _stand(self, state: NotebookState) -> int:
        """The session in which these cells were run, and no others: where somebody else went on in
        it, a new one in which they are run again.
        """
        if self._pool.cells(state.session) == state.cells:
            return state.session
        number = await self._open(state.task)
        for code in state.cells:
            await self._pool.run(number, code)
        return number

    def _is_formed(self, text: str) -> bool:
        match = ACTION.fullmatch(text)
        return (
            match is not None
            and all(text.count(tag) == 1 for tag in TAGS)
            and all(0 < len(part.strip()) <= self.chars for part in match.groups())
        )

    def _go_on(self, state: NotebookState, printed: str) -> Frame:
        if state.turns >= self.turns:
            return self._end(state, "truncated:turns")
        return self._ask(state, (Message(role="tool", content=printed),))

    def _ask(self, state: NotebookState, say: tuple[Message, ...]) -> Frame:
        return Frame(state=state, asks=(Ask(seat="policy", say=say),), facts=self._facts(state))

    def _end(self, state: NotebookState, status: str = "finished") -> Frame:
        pay = {("policy", ""): float(self._is_right(state))}
        return Frame(state=state, pay=pay, facts=self._facts(state), status=status)

    def _is_right(self, state: NotebookState) -> bool:
        return state.answer == str(state.task.answer)

    def _facts(self, state: Any) -> Mapping[str, Any]:
        return facts(state)


def output(ran: Ran, printed: str, chars: int) -> str:
    """What a cell shows: what it printed, and of an error the last line; a session that was ended
    says so.
    """
    last = ran.stderr.strip().rpartition("\n")[2]
    why = {"ok": "", "error": last or "error"}.get(ran.status, f"{ran.status}, {LOST}")
    return "\n".join(filter(None, (printed[:chars], why[:chars]))) or SILENT


def facts(state: NotebookState) -> Mapping[str, Any]:
    return {
        "turns": state.turns,
        "cells": len(state.cells),
        "formed": state.formed,
        "clean": state.clean,
        "answered": state.answer is not None,
        "answer": state.answer,
    }
