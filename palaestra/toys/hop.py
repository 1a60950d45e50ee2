"""T-hop: a key-value store whose values are keys. Following a key n times takes n searches, then an
answer.

user: follow k7 2 times    SEARCH(k7)    tool: p2    SEARCH(p2)    tool: x9    ANSWER(x9)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Act, Ask, Frame, Key, Message, Task, rng_of, stage, value_class

ACTION = re.compile(r"(SEARCH|ANSWER)\(([a-z][0-9])\)", re.ASCII)
NOTHING, USAGE = "nothing", "use SEARCH(key) or ANSWER(key)"


@declare(columns=(("store", dict, "the entries that a search can find"), "path"))
@stage
class HopTasks:
    hops: tuple[int, int] = (1, 3)  # at least, at most
    entries: int = 8  # of the store
    name: str = "hop"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        hops = int(rng.integers(self.hops[0], self.hops[1] + 1))
        numbers = rng.choice(260, max(self.entries, hops) + 1, replace=False)
        keys = [f"{chr(97 + int(n) // 10)}{int(n) % 10}" for n in numbers]
        path, rest = keys[: hops + 1], keys[hops + 1 :]
        store = dict(pairwise(path)) | {k: str(rng.choice(path)) for k in rest}
        return question_task(
            self.name,
            f"follow {path[0]} {hops} times",
            path[-1],
            {"store": store, "path": tuple(path)},
        )


@value_class
class HopState:
    task: Task
    found: tuple[str, ...] = ()  # keys searched, in order
    malformed: int = 0
    # whether each action did something: an answer, or a search that found its key
    executed: tuple[bool, ...] = ()

    @property
    def turns(self) -> int:
        return len(self.executed)


@declare(
    facts=(
        "turns",
        ("searches", int, "searches that found an entry"),
        "malformed",
        "executed",
        "correct",
    ),
    reads_columns=("store",),
)
@stage
class Hop:
    """Pays 1 for the right answer. A malformed action costs a turn ("again") or ends the episode
    unpaid ("end").

    With probability `noise` the value that a search finds stands below a line with another key of
    the store. Turns have noise for all episodes of a group, or for none.
    """

    turns: int = 6
    malformed: Literal["again", "end"] = "again"
    seats: tuple[str, ...] = ("policy",)
    noise: float = 0.0
    solved: ClassVar[float] = 1.0

    def reset(self, task: Task, key: Key) -> Frame:
        return self._ask(HopState(task=task), task.prompt)

    def step(self, state: HopState, acts: tuple[Act, ...], key: Key) -> Frame:
        action = ACTION.fullmatch(acts[0].text.strip())
        done = action is not None and (
            action[1] == "ANSWER" or action[2] in state.task.meta["store"]
        )
        state = replace(
            state, executed=(*state.executed, done), malformed=state.malformed + (action is None)
        )
        if action is None:
            return (
                self._tool(state, USAGE)
                if self.malformed == "again"
                else self._end(state, 0.0, "finished")
            )
        verb, name = action.groups()
        if verb == "ANSWER":
            return self._end(state, float(name == state.task.answer), "finished")
        state = replace(state, found=(*state.found, name))
        return self._tool(state, self._results(state.task.meta["store"], name, key))

    def _results(self, store: Mapping[str, str], name: str, key: Key) -> str:
        if name not in store:
            return NOTHING
        rng = rng_of((*key, "noise"))
        if rng.random() >= self.noise:
            return store[name]
        return f"{rng.choice([k for k in store if k != store[name]])}\n{store[name]}"

    def oracle(self, state: HopState) -> str:
        """The next step of the shortest way."""
        path = state.task.meta["path"]
        unseen = [k for k in path[:-1] if k not in state.found]
        return f"SEARCH({unseen[0]})" if unseen else f"ANSWER({path[-1]})"

    def _ask(self, state: HopState, say: tuple[Message, ...]) -> Frame:
        return Frame(
            state=state,
            asks=(Ask(seat="policy", say=say),),
            facts=_facts(state),
            state_key=_key(state),
        )

    def _tool(self, state: HopState, content: str) -> Frame:
        if state.turns >= self.turns:
            return self._end(state, 0.0, "truncated:turns")
        return self._ask(state, (Message(role="tool", content=content),))

    def _end(self, state: HopState, pay: float, status: str) -> Frame:
        facts = _facts(state) | {"correct": pay == 1.0}
        return Frame(
            state=state,
            pay={("policy", ""): pay},
            facts=facts,
            state_key=_key(state),
            status=status,
        )


def _facts(state: HopState) -> dict[str, Any]:
    return {
        "turns": state.turns,
        "searches": len(state.found),
        "malformed": state.malformed,
        "executed": state.executed,
    }


def _key(state: HopState) -> tuple[str, ...]:
    """Situations are equal when the same keys are known."""
    return tuple(sorted(set(state.found)))
