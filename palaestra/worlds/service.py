"""A service desk: an agent talks with a user and calls tools over a database, and is paid for what the
database holds at the end.

    user: order lion          agent: how many?          user: 7
    agent: <tool_call>...     tool: ordered 7 lion      agent: It is ordered.     user: ###STOP###

A message with a call goes to the tools, of which the user sees nothing; any other goes to the user.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from palaestra.chat.reply import forged_mark
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.tasks.phrasing import STOP
from palaestra.tasks.user_code import accepts, load, with_own_data
from palaestra.types import (
    Act,
    Ask,
    Call,
    Frame,
    Key,
    Malformed,
    Message,
    Task,
    ToolSchema,
    need_at_least,
    stage,
    value_class,
)
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.database import (
    DatabaseValue,
    as_database,
    close_database,
    database_digest,
    open_database,
    read_database,
)
from palaestra.worlds.tool_log import CallOutcome, LoggedCall, log_facts
from palaestra.worlds.toolbox import CalledTool, close_toolbox, toolbox
from palaestra.worlds.uptake import Uptake, passed
from palaestra.worlds.user import guard_call

NO_DATABASE = "{}"
UNKEPT = "error: the database could not be kept"
ACTION = '{"name": "order", "arguments": {"item": "lion", "amount": 7}}'
Talk: TypeAlias = tuple[tuple[str, str], ...]  # (role, text): "user" and "assistant"


class ServiceUser(Protocol):
    """Plays the user of a task."""

    async def __call__(self, task: Task, talk: Talk, key: Key) -> str:
        """What the user says next, with `STOP` in it where the talk ends. Raises Fault where nobody
        says anything.

        Args:
            task: with what the user wants in its column `user`.
            talk: what both said so far, the agent last, without calls and results.
        """
        ...


@stage
class ScriptUser:
    """`FILE.py:NAME`, a function (task, messages) -> text, as a user. The messages are dictionaries with
    "role" and "content", the agent's the last; `task.meta` has the columns.
    """

    spec: str

    def __post_init__(self) -> None:
        if not accepts(load(self.spec, "function"), "task", "messages"):
            raise UserError(f"{self.spec}: a user is a function, def NAME(task, messages) -> str")

    async def __call__(self, task: Task, talk: Talk, key: Key) -> str:
        messages = [{"role": role, "content": text} for role, text in talk]
        reply = guard_call(self.spec, load(self.spec, "function"), with_own_data(task), messages)
        if not isinstance(reply, str):
            raise UserError(f"{self.spec} returned {reply!r:.60}; a user says text, or {STOP!r}")
        if not reply.strip():
            raise Fault("user", f"{self.spec} said nothing; a user says text, or {STOP!r}")
        return reply


@value_class
class ServiceState:
    """A talk under way. `gold` is the digest of the database that the task's actions leave."""

    task: Task
    database: DatabaseValue
    gold: str
    talk: Talk
    turns: int = 0  # calls that were made, and replies of the user
    replies: int = 0  # of the user
    calls: int = 0
    malformed: int = 0
    errors: int = 0
    unkept: str = ""  # the first result of a call whose tool left a database that cannot be kept
    begun: int = 0  # messages of the talk that the prompt brought
    log: tuple[LoggedCall, ...] = ()
    seconds: tuple[float, ...] = field(default=(), compare=False)  # of the calls in the log
    uptake: Uptake = field(
        default=Uptake(), repr=False, compare=False
    )  # a result by call in the log


@declare(
    facts=(
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "tool_log",
        "tool_seconds",
        "tools_offered",
        "tool_used",
        ("replies", int, "messages of the user behind the first"),
        ("tool_unkept", str, "the first result of a call whose database could not be kept"),
        ("database_right", bool, "whether the final database is that of the gold actions"),
        ("outputs_said", bool, "whether the user was told all that the task requires"),
    ),
    reads_columns=("user", "actions", "outputs", "database"),
)
@stage
class Service:
    """Pays 1 at the end where the database is the one that the task's `actions` leave, and every text
    of its `outputs` was said in some message without a call (case and commas do not count); else 0.

    An episode has a copy of the database: the task's `database`, a JSON object or a file, or else the
    file `db`, JSON or SQLite. Of a message with calls the first is executed. A call that fails changes
    nothing, and its error is the result; one fails too if its tool leaves what cannot be kept, such as
    a number that is infinite or a connection that is closed. The talk ends where the user says `###STOP###`, after a tool of
    `last`, where a call cannot be read, a message is cut or forges a mark of the host, or calls and
    replies are `turns`; then it is paid as the database stands.

    Args:
        tools: their names, see `palaestra.worlds.toolbox`; functions are given the database as `db`.
        user: who plays the user.
        policy: what the agent must keep to, its system message; "" = none.
        turns: calls and replies of the user, together.
        static: the user's whole wish, the column `user`, is the first message, and nobody replies.
        seconds, chars: of a call, see `WithTools`.
    """

    tools: tuple[str, ...]
    user: ServiceUser
    policy: str = ""
    db: str = ""
    turns: int = 30
    static: bool = False
    last: tuple[str, ...] = ("transfer_to_human_agents",)
    seconds: float = 10.0
    chars: int = 2000
    seats: ClassVar[tuple[str, ...]] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, chars=1)
        toolbox(self.tools)
        if self.db:
            read_database(self.db)

    async def open(self) -> tuple[ToolSchema, ...]:
        return await toolbox(self.tools).schemas()

    def close(self) -> None:
        """Ends the tools' servers."""
        close_toolbox(self.tools)

    async def reset(self, task: Task, key: Key) -> Frame:
        if not task.prompt or task.prompt[-1].role != "user":
            raise UserError(f"task {task.id!r}: the prompt is what the user says first")
        prompt = with_policy(task.prompt, self.policy)
        if self.static:
            prompt = (*prompt[:-1], replace(prompt[-1], content=goal_of(task)))
        database = self._database(task)
        gold = database_digest(await self._after_actions(task, database))
        talk = tuple((m.role, m.content) for m in prompt if m.role in ("user", "assistant"))
        asked = Uptake().heard(*(m.shown for m in prompt))
        state = ServiceState(
            task=task, database=database, gold=gold, talk=talk, begun=len(talk), uptake=asked
        )
        return await self._ask(state, prompt)

    async def step(self, state: ServiceState, acts: tuple[Act, ...], key: Key) -> Frame:
        act = acts[0]
        if forged_mark(act.text) or act.finish == "length":
            return self._end(state)
        state = replace(state, uptake=state.uptake.said(act.text, *passed(act.calls)))
        if act.calls:
            return await self._call(state, act.calls[0])
        answer = strip_thinking(act.text).strip()
        state = replace(state, talk=(*state.talk, ("assistant", answer)))
        if self.static:
            return self._end(state)
        if state.turns >= self.turns:
            return self._end(state, "truncated:turns")
        reply = await self.user(state.task, state.talk, key)
        if STOP in reply:
            return self._end(state)
        after = replace(
            state,
            talk=(*state.talk, ("user", reply)),
            turns=state.turns + 1,
            replies=state.replies + 1,
            uptake=state.uptake.heard(reply),
        )
        return await self._ask(after, (Message(role="user", content=reply),))

    async def _call(self, state: ServiceState, call: Call | Malformed) -> Frame:
        state = replace(state, calls=state.calls + 1)
        if isinstance(call, Malformed):
            log = (*state.log, (state.calls, "", "malformed"))
            used = state.uptake.returned("")
            unread = replace(state, log=log, seconds=(*state.seconds, 0.0), uptake=used)
            return self._end(replace(unread, malformed=state.malformed + 1))
        if state.turns >= self.turns:
            return self._end(state, "truncated:turns")
        made, database = await self._execute(call, state.database)
        message, failed, seconds = made
        unkept = failed and message.content.startswith(UNKEPT)
        outcome: CallOutcome = "error" if failed else "result"
        state = replace(
            state,
            database=database,
            turns=state.turns + 1,
            errors=state.errors + failed,
            unkept=state.unkept or (message.content if unkept else ""),
            log=(*state.log, (state.calls, message.name, outcome)),
            seconds=(*state.seconds, seconds),
            uptake=state.uptake.returned("" if failed else message.content),
        )
        if call.name in self.last:
            return self._end(state)
        return await self._ask(state, (message,))

    async def _execute(self, call: Call, value: DatabaseValue) -> tuple[CalledTool, DatabaseValue]:
        """The answer to a call, and the database behind it."""
        database = open_database(value)
        (answer,) = await toolbox(self.tools).answer(
            [call], self.seconds, self.chars, database=database
        )
        if answer.failed:
            return answer, value
        try:
            return answer, close_database(database, f"tool {call.name}")
        except (UserError, sqlite3.Error) as error:
            what = f"{UNKEPT}; the call changed nothing: {' '.join(str(error).split())}"
            message = replace(answer.message, content=what)
            return answer._replace(message=message, failed=True), value

    def _database(self, task: Task) -> DatabaseValue:
        own = task.meta.get("database")
        if isinstance(own, str):
            return read_database(own)
        if own is not None:
            return as_database(own, f"task {task.id!r}")
        return read_database(self.db) if self.db else NO_DATABASE

    async def _after_actions(self, task: Task, database: DatabaseValue) -> DatabaseValue:
        """The database that the task's actions leave. Raises UserError where one cannot be executed."""
        for n, action in enumerate(actions_of(task), 1):
            made, database = await self._execute(action, database)
            if made.failed:
                text = made.message.content
                raise UserError(
                    f"task {task.id!r}: its action {n}, {action.name}, gives {text}; actions "
                    "are what the agent should do, in order"
                )
        return database

    async def check_task(self, task: Task) -> bool:
        """Whether a task asks for anything: without actions and outputs, who does nothing is paid.
        Raises UserError where its database or its actions are none.
        """
        await self._after_actions(task, self._database(task))
        return bool(actions_of(task) or task.meta.get("outputs"))

    async def _ask(self, state: ServiceState, say: tuple[Message, ...]) -> Frame:
        ask = Ask(seat="policy", say=say, tools=await self.open())
        return Frame(state=state, asks=(ask,), facts=facts(state), state_key=state.database)

    def _end(self, state: ServiceState, status: str = "finished") -> Frame:
        right, outputs_right = database_digest(state.database) == state.gold, outputs_said(state)
        end_facts = {**facts(state), "database_right": right, "outputs_said": outputs_right}
        return Frame(
            state=state,
            pay={("policy", ""): float(right and outputs_right)},
            facts=end_facts,
            status=status,
        )


def facts(state: ServiceState) -> dict[str, Any]:
    return {
        "tool_calls": state.calls,
        "tool_malformed": state.malformed,
        "tool_errors": state.errors,
        "replies": state.replies,
        **log_facts(state.log, state.seconds, (), state.uptake.used),
        **({"tool_unkept": state.unkept} if state.unkept else {}),
    }


def goal_of(task: Task) -> str:
    """What the user of a task wants. Raises UserError where it does not say."""
    goal = task.meta.get("user")
    if not isinstance(goal, str) or not goal.strip():
        raise UserError(
            f"task {task.id!r} has no 'user': what the user wants and knows, which the agent has to "
            "find out; or name your column: --columns THEIRS=user"
        )
    return goal


def with_policy(prompt: tuple[Message, ...], policy: str) -> tuple[Message, ...]:
    """A prompt behind what the agent must keep to, in its system message."""
    if not policy:
        return prompt
    if prompt[0].role == "system":
        first = replace(prompt[0], content=f"{policy}\n\n{prompt[0].content}")
        return (first, *prompt[1:])
    return (Message(role="system", content=policy), *prompt)


def actions_of(task: Task) -> list[Call]:
    """The calls that do what the user wants. Raises UserError for what is none."""
    given = task.meta.get("actions")
    given = read_json(given, task, "'actions'") if isinstance(given, str) else given
    rows: Sequence[Any] = given if isinstance(given, list | tuple) else [None]
    calls = list[Call]()
    for row in rows:
        arguments = (
            row.get("arguments", row.get("kwargs", {})) if isinstance(row, Mapping) else None
        )
        if isinstance(arguments, str):
            arguments = read_json(arguments, task, f"the arguments of {row.get('name')!r}")
        if not isinstance(arguments, Mapping) or not isinstance(row.get("name"), str):
            raise UserError(
                f"task {task.id!r}: 'actions' is a list of calls such as {ACTION}; [] = the database "
                "has to stay as it is"
            )
        # a column of structs has null for other calls' arguments
        calls.append(
            Call(name=row["name"], args={k: v for k, v in arguments.items() if v is not None})
        )
    return calls


def read_json(text: str, task: Task, what: str) -> Any:
    """The value of a text of JSON, as a CSV file holds it. Raises UserError that names the task."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(
            f"task {task.id!r}: {what} are no JSON ({error}): {text[:60]!r}; write them as in {ACTION}"
        ) from None


def outputs_said(state: ServiceState) -> bool:
    """Whether each required text was said in some message of the agent without a call. What the
    prompt has of an agent was not said by the policy.
    """
    required = state.task.meta.get("outputs") or ()
    texts = (required,) if isinstance(required, str) else required
    replies = [plain(text) for role, text in state.talk[state.begun :] if role == "assistant"]
    return all(any(plain(str(x)) in text for text in replies) for x in texts)


def plain(text: str) -> str:
    return text.lower().replace(",", "")
