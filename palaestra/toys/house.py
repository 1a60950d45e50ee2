"""T-house: a text game of containers, appliances and things. A thing lies in one of two containers; it
is to be heated, cooled or washed with the appliance that can do this, and put away.

    user: heat egg, put in desk / box oven sink bag desk icebox    open box    tool: yes, hold none
    open bag    tool: yes, bag has egg, hold none    take egg    use oven    put desk

Nothing that is shown says which appliance does what; `AFFORDANCES` says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from palaestra.declared import declare
from palaestra.services.triples import Triple
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.types import Act, Ask, Frame, Key, Message, Task, need_at_least, stage, value_class

APPLIANCES: Mapping[str, tuple[str, ...]] = {
    "heat": ("oven", "stove", "grill", "kettle"),
    "cool": ("fridge", "cellar", "icebox", "cooler"),
    "wash": ("sink", "tub", "basin", "shower"),
}
AFFORDANCES: tuple[Triple, ...] = tuple(
    (place, "can", deed) for deed, places in APPLIANCES.items() for place in places
)
CONTAINERS = ("box", "bag", "chest", "drawer")
TARGETS = ("desk", "shelf", "table", "bed")
THINGS = ("egg", "cup", "pear", "plate", "fork", "rag")
TAKEN, TREATED, PLACED = 0.25, 0.25, 0.5  # what the three steps that count are paid


@value_class
class HouseState:
    """`appliances` are the places that heat, cool and wash, by deed; `hidden` is where the thing lies."""

    thing: str
    deed: str
    target: str
    appliances: Mapping[str, str]
    containers: tuple[str, ...]
    hidden: str
    places: tuple[str, ...]  # in the order in which they are shown
    opened: tuple[str, ...] = ()
    holding: bool = False
    treated: bool = False
    placed: bool = False
    executed: tuple[bool, ...] = ()  # whether each action was possible
    score: float = 0.0

    @property
    def seen(self) -> bool:
        """Whether the thing lies in an open container."""
        return self.hidden in self.opened and not self.holding and not self.placed

    def __str__(self) -> str:
        where = f"{self.hidden} has {self.thing}, " if self.seen else ""
        return f"{where}hold {self.thing if self.holding else 'none'}"


@declare(columns=("start",))
@stage
class HouseTasks:
    """Houses with one appliance of each kind, two containers and one other place."""

    name: str = "house"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        pick = lambda names: str(names[int(rng.integers(len(names)))])
        appliances = {deed: pick(names) for deed, names in APPLIANCES.items()}
        containers = tuple(map(str, rng.permutation(CONTAINERS)[:2]))
        target = pick(TARGETS)
        places = tuple(map(str, rng.permutation([*appliances.values(), *containers, target])))
        start = HouseState(
            thing=pick(THINGS),
            deed=pick(tuple(APPLIANCES)),
            target=target,
            appliances=appliances,
            containers=containers,
            hidden=pick(containers),
            places=places,
        )
        text = f"{start.deed} {start.thing}, put in {target}\n{' '.join(places)}"
        return question_task(self.name, text, None, {"start": start})


@declare(
    facts=(
        "turns",
        "invalid",
        "executed",
        "correct",
        ("score", float, "what was reached of 1"),
        ("graph", tuple, "facts (head, relation, tail) that are seen of its state"),
    ),
    reads_columns=("start",),
)
@stage
class House:
    """Pays 0.25 where the thing is first taken, 0.25 where it is treated as asked, and 0.5 where it is put
    in its place after that. An action that is not possible costs a turn.
    """

    turns: int = 8
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1)

    def reset(self, task: Task, key: Key) -> Frame:
        return self._frame(task.meta["start"], task.prompt, 0.0)

    def step(self, state: HouseState, acts: tuple[Act, ...], key: Key) -> Frame:
        action = " ".join(acts[0].text.split()).lower().removesuffix(".")
        after = apply_house_action(state, action)
        answer = "no" if after is None else "yes"
        new = state if after is None else after
        paid = new.score - state.score
        new = replace(new, executed=(*state.executed, after is not None))
        say = (Message(role="tool", content=f"{answer}, {new}"),)
        return self._frame(new, say, paid)

    def oracle(self, state: HouseState) -> str:
        """An action of a shortest way that knows the appliances, and looks for the thing in the
        containers as they are shown.
        """
        if state.seen:
            return f"take {state.thing}"
        if not state.holding:
            closed = [c for c in state.places if c in state.containers and c not in state.opened]
            return f"open {closed[0]}"
        return f"put {state.target}" if state.treated else f"use {state.appliances[state.deed]}"

    def _frame(self, state: HouseState, say: tuple[Message, ...], paid: float) -> Frame:
        over = state.placed or len(state.executed) >= self.turns
        facts: dict[str, Any] = {
            "turns": len(state.executed),
            "invalid": state.executed.count(False),
            "executed": state.executed,
            "score": state.score,
            "graph": graph_of(state),
            "correct": state.placed,
        }
        return Frame(
            state=state,
            asks=() if over else (Ask(seat="policy", say=say),),
            pay={("policy", ""): paid} if paid or over else {},
            facts=facts,
            state_key=str(state),
            status="finished" if state.placed or not over else "truncated:turns",
        )


def graph_of(state: HouseState) -> tuple[Triple, ...]:
    """What is seen of a state, as facts."""
    opened = tuple((name, "is", "open") for name in state.opened)
    lies = ((state.hidden, "has", state.thing),) if state.seen else ()
    held = (("you", "hold", state.thing),) if state.holding else ()
    return (*opened, *lies, *held)


def apply_house_action(state: HouseState, action: str) -> HouseState | None:
    """The state after an action, None if it is impossible. What is held can be treated once."""
    verb, _, name = action.partition(" ")
    if verb == "open" and name in state.containers and name not in state.opened:
        return replace(state, opened=(*state.opened, name))
    if verb == "take" and name == state.thing and state.seen:
        return replace(state, holding=True, score=state.score + TAKEN)
    if not state.holding:
        return None
    if verb == "use" and name == state.appliances[state.deed] and not state.treated:
        return replace(state, treated=True, score=state.score + TREATED)
    if verb == "put" and name == state.target and state.treated:
        return replace(state, holding=False, placed=True, score=state.score + PLACED)
    return None
