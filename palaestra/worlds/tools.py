"""Questions that are answered with tools: the model asks, calls, reads the results, and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from palaestra.chat.reply import forged_mark
from palaestra.declared import declare
from palaestra.types import (
    Act,
    Ask,
    Episode,
    Frame,
    Key,
    Malformed,
    Message,
    Task,
    ToolSchema,
    need_at_least,
    stage,
)
from palaestra.worlds.toolbox import close_toolbox, toolbox

# messages with calls, and the counts of the calls in them; by turn, whether it was executed; names of
# the tools that gave a result without an error
ToolState: TypeAlias = tuple[tuple[int, ...], tuple[bool, ...], tuple[str, ...]]
COUNTS = ("tool_calls", "tool_malformed", "tool_errors")  # facts of an episode


@declare(
    facts=(
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "executed",
        "answered",
        "tools_used",
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
    """

    tools: tuple[str, ...]
    turns: int = 8
    seconds: float = 10.0
    chars: int = 2000
    seats: ClassVar[tuple[str, ...]] = ("policy",)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, chars=1)
        toolbox(self.tools)

    async def open(self) -> tuple[ToolSchema, ...]:
        return await toolbox(self.tools).schemas()

    async def reset(self, task: Task, key: Key) -> Frame:
        return await self._ask(task.prompt, ((0, 0, 0, 0), (), ()), "start")

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        (turn, *counts), done, used = state
        calls = acts[0].calls
        if end := end_of(acts[0]):
            end_facts = facts(counts, (*done, end[1]), used, answered=end[1])
            return Frame(state=state, facts=end_facts, status=end[0])
        if turn == self.turns:
            cut = facts(counts, (*done, False), used)
            return Frame(state=state, facts=cut, status="truncated:turns")
        results = await toolbox(self.tools).answer(calls, self.seconds, self.chars)
        malformed = [isinstance(c, Malformed) for c in calls]
        failed = [f and not m for (_, f), m in zip(results, malformed, strict=True)]
        more = (1, len(calls), sum(malformed), sum(failed))
        after = tuple(a + b for a, b in zip(state[0], more, strict=True))
        results_text = "\n".join(m.content for m, _ in results)
        worked = not any(f for _, f in results)
        used = used_tools(used, results)
        return await self._ask(
            tuple(m for m, _ in results), (after, (*done, worked), used), results_text
        )

    async def _ask(self, say: tuple[Any, ...], state: ToolState, key: str) -> Frame:
        ask = Ask(seat="policy", say=say, tools=await self.open())
        tool_facts = facts(state[0][1:], *state[1:])
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


def used_tools(before: tuple[str, ...], results: Iterable[tuple[Message, bool]]) -> tuple[str, ...]:
    """Names of the tools that gave a result without an error so far, each once."""
    return tuple(dict.fromkeys((*before, *(m.name for m, f in results if not f and m.name))))


def facts(
    counts: Iterable[int],
    executed: tuple[bool, ...],
    used: tuple[str, ...],
    answered: bool = False,
) -> dict[str, Any]:
    named = dict(zip(COUNTS, counts, strict=True))
    return {**named, "executed": executed, "answered": answered, "tools_used": used}


def tool_numbers(episodes: Iterable[Episode]) -> dict[str, float]:
    """How tools were used: calls an episode, the share of them that could not be read, of the others
    the share that gave an error, and of all the share that gave a result; of each tool the share of
    episodes in which it gave one. Nothing where there were no tools.
    """
    each: list[Mapping[str, Any]] = [e.facts for e in episodes if COUNTS[0] in e.facts]
    if not each:
        return {}
    calls, malformed, errors = (sum(f[name] for f in each) for name in COUNTS)
    read = calls - malformed
    used = Counter(name for f in each for name in f.get("tools_used", ()))
    return {
        "tools/calls": calls / len(each),
        "tools/malformed": malformed / calls if calls else float("nan"),
        "tools/errors": errors / read if read else float("nan"),
        "tools/useful": (read - errors) / calls if calls else float("nan"),
        **{f"tools/used/{name}": n / len(each) for name, n in sorted(used.items())},
    }
