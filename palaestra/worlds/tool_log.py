"""What became of each call of an episode, and how that reads in numbers: by tool and by turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal, TypeAlias

from palaestra.types import Episode, value_class

CallOutcome: TypeAlias = Literal["result", "error", "malformed"]
LoggedCall: TypeAlias = tuple[int, str, CallOutcome]  # turn from 1, tool, what the call gave
LOG, SECONDS, OFFERED = "tool_log", "tool_seconds", "tools_offered"  # facts
USED = "tool_used"  # likewise
TURNS = 8  # that are counted one by one


@value_class
class ClockTimes:
    """Seconds by the clock. They say nothing of what an episode is, so any two are equal."""

    each: tuple[float, ...] = field(compare=False)

    def tolist(self) -> list[float]:
        """For JSON."""
        return list(self.each)


def log_facts(
    log: tuple[LoggedCall, ...],
    seconds: tuple[float, ...],
    offered: Iterable[str],
    used: Iterable[bool] | None = None,
) -> dict[str, Any]:
    """The facts of an episode that `log_numbers` reads.

    Args:
        log: the calls in order. The tool is "" where no tool has the name that was called, or the
            call could not be read.
        seconds: that each took, by the clock.
        offered: the tools that could be called.
        used: of each, whether its result was used later; None = that cannot be told here.
    """
    told = {} if used is None else {USED: tuple(used)}
    return {
        **told,
        LOG: log,
        SECONDS: ClockTimes(each=tuple(round(s, 4) for s in seconds)),
        OFFERED: tuple(offered),
    }


def log_numbers(episodes: Iterable[Episode]) -> dict[str, float]:
    """Numbers by tool and by turn, over the episodes that have a log.

    tools/calls/NAME: calls of this tool an episode. tools/errors/NAME: the share of them that gave
    an error. tools/useful/NAME: the share whose result was used later, as `Uptake` defines it; there
    is none where a world does not tell. tools/seconds/NAME: mean time of a call. tools/turn/N/calls: calls in turn N an episode, those that could not be read included;
    tools/turn/N/errors: of the others the share that gave an error. What has no call has calls of 0
    and no share.
    """
    each: list[Mapping[str, Any]] = [e.facts for e in episodes if LOG in e.facts]
    if not each:
        return {}
    by_tool: dict[str, list[tuple[str, float, bool | None]]] = {
        name: [] for f in each for name in f.get(OFFERED, ())
    }
    by_turn: dict[int, list[str]] = defaultdict(list)
    for f in each:
        told = f.get(USED, (None,) * len(f[LOG]))
        for call, seconds, used in zip(f[LOG], f[SECONDS].each, told, strict=True):
            turn, name, outcome = call
            by_turn[turn].append(outcome)
            if name:
                by_tool.setdefault(name, []).append((outcome, seconds, used))
    numbers: dict[str, float] = {}
    for name, calls in sorted(by_tool.items()):
        numbers[f"tools/calls/{name}"] = len(calls) / len(each)
        if calls:
            errors = sum(outcome != "result" for outcome, _, _ in calls) / len(calls)
            numbers[f"tools/errors/{name}"] = errors
            if told := [used for _, _, used in calls if used is not None]:
                numbers[f"tools/useful/{name}"] = sum(told) / len(told)
            numbers[f"tools/seconds/{name}"] = sum(s for _, s, _ in calls) / len(calls)
    for turn, outcomes in sorted(by_turn.items()):
        if turn > TURNS:
            break
        read = len(outcomes) - outcomes.count("malformed")
        numbers[f"tools/turn/{turn}/calls"] = len(outcomes) / len(each)
        if read:
            numbers[f"tools/turn/{turn}/errors"] = outcomes.count("error") / read
    return numbers
