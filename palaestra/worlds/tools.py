"""Questions that are answered with tools: the model asks, calls, reads the results, and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Self, TypeAlias

from palaestra.chat.reply import forged_mark
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.types import (
    Act,
    Ask,
    Call,
    Episode,
    Frame,
    Key,
    Malformed,
    Task,
    ToolSchema,
    need_at_least,
    stage,
)
from palaestra.worlds.outage import Outage
from palaestra.worlds.tool_log import USED, CallOutcome, LoggedCall, log_facts, log_numbers
from palaestra.worlds.toolbox import CalledTool, close_toolbox, toolbox
from palaestra.worlds.uptake import Uptake, passed

# messages with calls, and the counts of the calls in them; by turn, whether it was executed; names of
# the tools that gave a result without an error; each call, and the seconds that it took; which results were
# used
ToolState: TypeAlias = tuple[
    tuple[int, ...], tuple[bool, ...], tuple[str, ...], tuple[tuple[LoggedCall, float], ...], Uptake
]
DETAILS = ("tools/seconds/", "tools/turn/")
COUNTS = ("tool_calls", "tool_malformed", "tool_errors")  # facts of an episode


@declare(
    facts=(
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "executed",
        "answered",
        "tools_used",
        "tool_log",
        "tool_seconds",
        "tools_offered",
        "tool_used",
    )
)
@stage
class WithTools:
    """A question whose answer is the first message without a call; what is called is done, and the
    results are the next message. It pays nothing: a verifier scores the answer later. The state of
    a turn is what its results say, so that turns after equal results can be compared. A turn is
    executed (the fact "executed", by turn) where its calls could be read and gave no error, or it
    answers.

    An episode that calls after `turns` messages with calls is cut, and has no answer. Neither has
    one whose last message is cut by its length, or one that writes what only a host may write, such
    as `<tool_response>`, which ends there. What a tool does beside its result happens again where
    an episode is branched.

    Args:
        tools: their names, see `palaestra.worlds.toolbox`.
        turns: messages with calls that an episode may have.
        seconds: that a call may take.
        chars: characters that a result may have.
        outage: calls of one tool that fail on purpose; None = none.
    """

    tools: tuple[str, ...]
    turns: int = 8
    seconds: float = 10.0
    chars: int = 2000
    outage: Outage | None = None
    trained: int = field(default=0, repr=False, compare=False)  # steps before this one
    seats: ClassVar[tuple[str, ...]] = ("policy",)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, chars=1)
        toolbox(self.tools)

    def at_step(self, step: int) -> Self:
        return replace(self, trained=step) if self.outage else self

    async def open(self) -> tuple[ToolSchema, ...]:
        schemas = await toolbox(self.tools).schemas()
        names = [t.name for t in schemas]
        if self.outage and self.outage.tool not in names:
            raise UserError(
                f"--break-tool {self.outage.tool}: there is no such tool; there are {', '.join(names)}"
            )
        return schemas

    async def reset(self, task: Task, key: Key) -> Frame:
        asked = Uptake().heard(*(m.shown for m in task.prompt))
        return await self._ask(task.prompt, ((0, 0, 0, 0), (), (), (), asked), "start")

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        (turn, *counts), done, used, log, uptake = state
        calls = acts[0].calls
        uptake = uptake.said(acts[0].text, *passed(calls))
        if end := end_of(acts[0]):
            end_facts = facts(
                counts, (*done, end[1]), used, answered=end[1], **await self._log(log, uptake)
            )
            return Frame(state=state, facts=end_facts, status=end[0])
        if turn == self.turns:
            cut = facts(counts, (*done, False), used, **await self._log(log, uptake))
            return Frame(state=state, facts=cut, status="truncated:turns")
        results = await toolbox(self.tools).answer(
            calls, self.seconds, self.chars, broken=self._broken(calls, key)
        )
        malformed = [isinstance(c, Malformed) for c in calls]
        failed = [r[1] and not m for r, m in zip(results, malformed, strict=True)]
        more = (1, len(calls), sum(malformed), sum(failed))
        after = tuple(a + b for a, b in zip(state[0], more, strict=True))
        messages = tuple(r[0] for r in results)
        worked = not any(r[1] for r in results)
        used, log = used_tools(used, results), (*log, *logged(calls, results, turn + 1))
        text = "\n".join(m.content for m in messages)
        uptake = uptake.returned(*("" if r[1] else r[0].content for r in results))
        return await self._ask(messages, (after, (*done, worked), used, log, uptake), text)

    def _broken(self, calls: Sequence[Call | Malformed], key: Key) -> frozenset[int]:
        """Places of the calls that the outage takes."""
        outage = self.outage
        if outage is None:
            return frozenset()
        return frozenset(
            n
            for n, c in enumerate(calls)
            if isinstance(c, Call)
            and c.name == outage.tool
            and outage.fails((*key, n), self.trained)
        )

    async def _log(
        self, log: tuple[tuple[LoggedCall, float], ...], uptake: Uptake
    ) -> dict[str, Any]:
        offered = [t.name for t in await self.open()]
        seconds = tuple(s for _, s in log)
        return log_facts(tuple(c for c, _ in log), seconds, offered, uptake.used)

    async def _ask(self, say: tuple[Any, ...], state: ToolState, key: str) -> Frame:
        ask = Ask(seat="policy", say=say, tools=await self.open())
        counts, done, used, log, uptake = state
        tool_facts = facts(counts[1:], done, used, **await self._log(log, uptake))
        return Frame(state=state, asks=(ask,), facts=tool_facts, state_key=key)

    def close(self) -> None:
        """Ends the tools' servers."""
        close_toolbox(self.tools)


def end_of(act: Act) -> tuple[str, bool] | None:
    """How a message ends its episode: the status, and whether it is an answer. None = it calls."""
    if forged_mark(act.text):
        return "finished", False
    if act.calls:
        return None
    return ("truncated:length", False) if act.finish == "length" else ("finished", True)


def used_tools(before: tuple[str, ...], results: Iterable[CalledTool]) -> tuple[str, ...]:
    """Names of the tools that gave a result without an error so far, each once."""
    return tuple(dict.fromkeys((*before, *(r[0].name for r in results if not r[1] and r[0].name))))


def logged(
    calls: Sequence[Call | Malformed], results: Sequence[CalledTool], turn: int
) -> list[tuple[LoggedCall, float]]:
    """The calls of a message as a log has them, each with the seconds that it took."""
    log: list[tuple[LoggedCall, float]] = []
    for call, (message, failed, seconds) in zip(calls, results, strict=True):
        unread = isinstance(call, Malformed)
        outcome: CallOutcome = "malformed" if unread else "error" if failed else "result"
        log.append(((turn, "" if unread else message.name, outcome), seconds))
    return log


def facts(
    counts: Iterable[int],
    executed: tuple[bool, ...],
    used: tuple[str, ...],
    answered: bool = False,
    **log: Any,
) -> dict[str, Any]:
    """The facts of an episode; `log`: see `log_facts`."""
    named = dict(zip(COUNTS, counts, strict=True))
    return {**named, "executed": executed, "answered": answered, "tools_used": used, **log}


def tool_numbers(episodes: Iterable[Episode], brief: bool = False) -> dict[str, float]:
    """How tools were used: calls an episode, the share of them that could not be read, of the others
    the share that gave an error; of all calls the share whose result was used later, as `Uptake`
    defines it, where the world tells; of each tool the share of episodes in which it gave a result.
    Nothing where there were no tools. And those of `log_numbers`, of which `brief` leaves out
    times, which are of the clock, and turns.
    """
    episodes = list(episodes)
    each: list[Mapping[str, Any]] = [e.facts for e in episodes if COUNTS[0] in e.facts]
    if not each:
        return {}
    calls, malformed, errors = (sum(f[name] for f in each) for name in COUNTS)
    read, useful = calls - malformed, [u for f in each for u in f.get(USED, ())]
    used = Counter(name for f in each for name in f.get("tools_used", ()))
    return {
        "tools/calls": calls / len(each),
        "tools/malformed": malformed / calls if calls else float("nan"),
        "tools/errors": errors / read if read else float("nan"),
        **({"tools/useful": sum(useful) / len(useful)} if useful else {}),
        **{f"tools/used/{name}": n / len(each) for name, n in sorted(used.items())},
        **{k: x for k, x in log_numbers(episodes).items() if not (brief and k.startswith(DETAILS))},
    }
