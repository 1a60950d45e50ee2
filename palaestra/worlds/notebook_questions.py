"""Questions of one's own in the notebook, with one's own tools, and a notepad that stays when
earlier cells are left out (NB-Agent of L-Zero, arXiv:2506.23667).

    <think>Who wrote it?</think><code>pages = search(query='Emma'); notepad['facts'] = pages[:80]</code>
    <think>It is on the first page.</think><code>answer('Jane Austen')</code>

Cells run in the sandbox, and the tools run outside it, in the run's own process: a cell that calls
one waits in a thread of its session, its call goes out in what the session prints, and the result
comes in as the next thing that the session runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.sandbox.values import Ran
from palaestra.services.tools.names import SANDBOX
from palaestra.types import Call, Frame, Key, Message, Task, ToolSchema, stage, value_class
from palaestra.verifiers.answers.final import is_right_answer
from palaestra.worlds.notebook import ANSWER, Notebook, NotebookState, facts
from palaestra.worlds.tool_log import LoggedCall, log_facts
from palaestra.worlds.toolbox import close_toolbox, toolbox

CALLED, NOTED = "\x1e", "\x1f"  # around a call of a tool and around the notepad, in what is printed
CALL = re.compile(f"{CALLED}(.*?){CALLED}\n?", re.DOTALL)
NOTES = re.compile(f"{NOTED}(.*?){NOTED}\n?", re.DOTALL)
MOST_CALLS = 32  # of tools, in one cell
GO_ON = "host_.go_on("
TOO_MANY = f"RuntimeError: a cell may make {MOST_CALLS} calls of tools"
REFUSED = Ran(status="refused")

# what a session begins with: a cell runs in a thread, which waits where it calls a tool
BRIDGE = """
class Host_:
    def __init__(self, names):
        import queue
        self.names, self.events, self.waiting, self.fresh = names, queue.Queue(), None, True

    def call(self, name, args, keywords):
        import queue
        reply = queue.Queue()
        self.events.put((name, args, keywords, reply))
        return reply.get()

    def begin(self, code, notes):
        import threading
        if self.fresh and isinstance(self.names.get("notepad"), dict):
            self.names["notepad"].update(notes)
        self.fresh = False
        threading.Thread(target=self.work, args=(code,), daemon=True).start()
        self.wait()

    def work(self, code):
        import ast
        try:
            tree = ast.parse(code, "<cell>")
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "<cell>", "exec"), self.names)
            if last:
                exec(compile(ast.Interactive([last]), "<cell>", "single"), self.names)
            self.events.put(None)
        except BaseException as error:
            self.events.put(error)

    def go_on(self, result):
        self.waiting.put(result)
        self.wait()

    def wait(self):
        import json
        event = self.events.get()
        if isinstance(event, tuple):
            name, args, keywords, self.waiting = event
            call = {"name": name, "args": args, "keywords": keywords}
            print("\\x1e" + json.dumps(call, default=str) + "\\x1e")
            return
        notes = self.names.get("notepad")
        held = {str(k): str(v) for k, v in notes.items()} if isinstance(notes, dict) else {}
        print("\\x1f" + json.dumps(held) + "\\x1f")
        if event is not None:
            raise event
host_ = Host_(globals())
notepad = {}
"""
STUB = """
def {name}(*args, **keywords):
    return host_.call({name!r}, args, keywords)
"""
TOLD = """Answer the question by running Python, one cell a message, in this form and no other:
<think>what to do next</think><code>Python</code>
You are then shown what the cell printed. Names live on from cell to cell. \
answer(value) gives the final answer and ends. \
notepad is a dict of texts, such as notepad['facts'], which stays before you when earlier cells are \
left out."""
KEPT = "Earlier cells were left out; their names live on. Your notepad: {notes}\n{shown}"


@value_class
class QuestionState(NotebookState):
    """`cells` are all that the session ran: cells, and results of the tools that they called."""

    failed: tuple[bool, ...] = ()  # by call of a tool, whether its result is an error
    log: tuple[LoggedCall, ...] = ()  # of these calls
    seconds: tuple[float, ...] = field(default=(), compare=False)  # that each took
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
    chars: int = 0  # of the conversation since it last began anew
    trims: int = 0


@declare(
    facts=(
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "tool_log",
        "tool_seconds",
        "tools_offered",
        ("trimmed", int, "times that earlier cells were left out"),
    )
)
@stage
class NotebookQuestions(Notebook):
    """Pays 1 for the right answer, as `verifiers.answers` compares them, the best of several. The
    form and the tools are told before the question.

    Args:
        tools: their names, see `palaestra.worlds.toolbox`. They run outside the sandbox, and give
            text.
        context: characters of a conversation, after which it begins anew with the question, the
            notepad and what was shown last; 0 = never.
        told: the form, the notepad and the tools are explained first.
    """

    turns: int = 8
    seconds: float = 10.0
    chars: int = 2000
    tools: tuple[str, ...] = ()
    context: int = 12_000
    told: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if SANDBOX in self.tools:
            raise UserError(f"the tool {SANDBOX!r} is the notebook itself; leave it out of --tools")
        if self.tools:
            toolbox(self.tools)

    async def open(self) -> tuple[ToolSchema, ...]:
        """Begins the tools. Cells call them, messages do not, so that none is named here."""
        await self._schemas()
        return ()

    def close(self) -> None:
        """Ends the tools' servers."""
        close_toolbox(self.tools)

    async def reset(self, task: Task, key: Key) -> Frame:
        prompt = (
            above(task.prompt, explanation(await self._schemas())) if self.told else task.prompt
        )
        instructed = replace(task, prompt=prompt)
        state = QuestionState(
            task=instructed, session=await self._open(instructed), chars=size_of(prompt)
        )
        return self._ask(state, prompt)

    async def _schemas(self) -> tuple[ToolSchema, ...]:
        return await toolbox(self.tools).schemas() if self.tools else ()

    async def _open(self, task: Task) -> int:
        stubs = "".join(STUB.format(name=s.name) for s in await self._schemas())
        return await self._pool.open(ANSWER + BRIDGE + stubs, self._limits(), self.lifetime)

    async def _run(self, state: Any, code: str) -> tuple[Any, Ran]:
        """A cell, and the calls of tools that it makes."""
        sent, printed, ran = f"host_.begin({code!r}, {dict(state.notes)!r})", "", REFUSED
        for _ in range(MOST_CALLS + 1):
            ran = await self._pool.run(state.session, sent)
            state = replace(state, cells=(*state.cells, sent))
            call = CALL.search(ran.stdout)
            printed += CALL.sub("", ran.stdout)
            if call is None or ran.status != "ok":
                without_notes = replace(ran, stdout=NOTES.sub("", printed))
                return replace(state, notes=notes_in(printed, state.notes)), without_notes
            text, failed, name, seconds = await self._answer(call[1])
            logged: LoggedCall = (len(state.formed), name, "error" if failed else "result")
            state = replace(
                state,
                failed=(*state.failed, failed),
                log=(*state.log, logged),
                seconds=(*state.seconds, seconds),
            )
            sent = f"{GO_ON}{text!r})"
        return state, replace(ran, stdout=printed, status="error", stderr=TOO_MANY)

    async def _answer(self, written: str) -> tuple[str, bool, str, float]:
        """What a tool says to a call, whether that is an error, the tool ("" = none), and its seconds."""
        known = {s.name: list(parameters(s)) for s in await self._schemas()}
        try:
            asked = json.loads(written)
            name, args, keywords = asked["name"], asked["args"], asked["keywords"]
            if len(args) > len(known[name]):
                return f"error: {name} takes {len(known[name])} arguments", True, name, 0.0
            made = Call(name=name, args=dict(zip(known[name], args, strict=False)) | keywords)
        except (ValueError, KeyError, TypeError):
            return f"error: the call cannot be read: {written[:80]}", True, "", 0.0
        ((message, failed, seconds),) = await toolbox(self.tools).answer(
            [made], self.seconds, self.chars
        )
        return message.content, failed, name, seconds

    def _go_on(self, state: Any, printed: str) -> Frame:
        grown = state.chars + len(printed) + sum(map(len, state.cells[-1:]))
        if not self.context or grown <= self.context or state.turns >= self.turns:
            return super()._go_on(replace(state, chars=grown), printed)
        kept = KEPT.format(notes=json.dumps(dict(state.notes), ensure_ascii=False), shown=printed)
        *first, last = state.task.prompt  # one message: templates want turns that alternate
        say = (*first, replace(last, content=f"{last.content}\n\n{kept}"))
        frame = self._ask(replace(state, chars=size_of(say), trims=state.trims + 1), say)
        return replace(frame, asks=(replace(frame.asks[0], new_row=True),))

    def _is_right(self, state: NotebookState) -> bool:
        gold = state.task.answer
        golds = gold if isinstance(gold, list | tuple) else [gold]
        return any(is_right_answer(state.answer or "", str(g)) for g in golds)

    def _facts(self, state: Any) -> Mapping[str, Any]:
        calls = len(state.failed)
        return {
            **facts(state),
            "cells": len(state.cells) - sum(c.startswith(GO_ON) for c in state.cells),
            "tool_calls": calls,
            "tool_malformed": 0,
            "tool_errors": sum(state.failed),
            **log_facts(state.log, state.seconds, ()),
            "trimmed": state.trims,
        }


def size_of(messages: tuple[Message, ...]) -> int:
    """Characters of a conversation."""
    return sum(len(m.content) for m in messages)


def above(prompt: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """A prompt that says this first, in the system's message."""
    if prompt and prompt[0].role == "system":
        first = replace(prompt[0], content=f"{prompt[0].content}\n\n{text}")
        return (first, *prompt[1:])
    return (Message(role="system", content=text), *prompt)


def explanation(tools: tuple[ToolSchema, ...]) -> str:
    """What a model is told before a question: the form, and what its cells may call."""
    lines = [f"{s.name}({signature(s)}) gives text: {s.description}" for s in tools]
    return "\n".join([TOLD, *(["Cells may also call:", *lines] if lines else [])])


def signature(tool: ToolSchema) -> str:
    return ", ".join(f"{n}: {p.get('type', 'any')}" for n, p in parameters(tool).items())


def parameters(tool: ToolSchema) -> Mapping[str, Any]:
    """The parameters of a tool by name, in order."""
    return json.loads(tool.parameters).get("properties", {})


def notes_in(printed: str, before: Mapping[str, str]) -> Mapping[str, str]:
    """The notepad that a cell left; as it was where it left none that can be read."""
    try:
        held = json.loads(NOTES.findall(printed)[-1])
        return {str(k): str(v) for k, v in held.items()}
    except (IndexError, ValueError, AttributeError):
        return before
