"""What a user or a language model says of a simulator, in a file: its goal, and names for the numbers
of an observation and for the actions, so that rewards, factors and subgoals can name them.

O numbers of an observation, K actions.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from palaestra.context import Client
from palaestra.control.language import Quantity
from palaestra.control.simulators import Acting, Box, Paths, Simulator, play_games
from palaestra.control.words import DescribedView, action_words
from palaestra.errors import UserError
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.structured import ask
from palaestra.types import ChatRequest, Key

SAMPLE = 16  # games of random actions, for bounds and examples
MOST = 128  # numbers of an observation that anybody would name
LARGEST = 1e6  # a bound beyond is none
LONGEST = 6_000  # characters of what an environment's author says of it
SHOWN = 4  # steps that a question shows

Word = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=60)]


class ObservedNumber(BaseModel):
    """A number of an observation: its name, bounds, and what it is in words."""

    model_config = ConfigDict(extra="forbid")
    name: Word
    low: float
    high: float
    about: str = ""


class NamedNumber(BaseModel):
    """What a language model says of a number; bounds where it knows better ones."""

    name: Word
    about: str = ""
    low: float | None = None
    high: float | None = None


class SimulatorDescription(BaseModel):
    """What a file says of a simulator.

    Args:
        simulator: as `--env` names it; a file is seen from the description's folder.
        about: one paragraph: who acts, what happens.
        goal: what is wanted, in words.
        observations: the O numbers of an observation in their order; () where it names them itself.
        actions: the names of the K actions that can be counted, in their order.
    """

    model_config = ConfigDict(extra="forbid")
    simulator: str
    about: str = ""
    goal: str = ""
    observations: tuple[ObservedNumber, ...] = ()
    actions: tuple[str, ...] = ()

    @field_validator("observations")
    @classmethod
    def _told_apart(cls, given: tuple[ObservedNumber, ...]) -> tuple[ObservedNumber, ...]:
        names = [o.name for o in given]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"{twice[0]!r} names two numbers")
        if odd := [o.name for o in given if not o.low < o.high]:
            raise ValueError(f"{odd[0]}: low has to be below high")
        return given


def read_description(file: Path) -> SimulatorDescription:
    """A description of a TOML file. Raises UserError for one that cannot be read."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
        made = SimulatorDescription.model_validate(given)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    path, colon, name = made.simulator.rpartition(":")
    if colon and path.endswith(".py"):
        made = made.model_copy(update={"simulator": f"{file.parent / path}:{name}"})
    return made


def describe(sim: Simulator, description: SimulatorDescription, source: str) -> Simulator:
    """The simulator with what a description says of it; the rest is as it was. `source` names the
    description in errors.

    Raises UserError where numbers or actions are more or fewer than the simulator has.
    """
    discrete = not isinstance(sim.actions, Box)
    for what, names, there in (
        ("observations", description.observations, sim.observation),
        ("actions", description.actions, sim.actions if discrete else 0),
    ):
        if names and len(names) != there:
            raise UserError(f"{source} names {len(names)} {what}, and the simulator has {there}")
    base = DescribedNumbers if description.observations else DescribedGoal
    own = {n for n in dir(base) if not n.startswith("_")} | {"action_names"}
    rest = {n: _passed(n) for n in dir(sim) if not n.startswith("_") and n not in own}
    if description.actions or hasattr(sim, "action_names"):
        names = tuple(description.actions) or action_words(sim)
        rest["action_names"] = property(lambda self: names)
    made: Any = type(base.__name__, (base,), rest)(sim, description)
    if description.actions:
        action_words(made)  # of equal names
    return made


def _passed(name: str) -> property:
    return property(lambda self: getattr(self.inner, name))


class DescribedGoal:
    """A simulator with what is wanted in words."""

    def __init__(self, inner: Simulator, description: SimulatorDescription):
        self.inner, self.description = inner, description

    @property
    def about(self) -> str:
        first = self.description.about or str(getattr(self.inner, "about", ""))
        words = self.description.goal.strip()
        end = "" if words.endswith((".", "!", "?")) else "."
        goal = f"What is wanted: {words}{end}" if words else ""
        return " ".join(x.strip() for x in (first, goal) if x)


class DescribedNumbers(DescribedGoal):
    """A simulator whose observations are numbers with names; a reward may read each after the step,
    and what it changed by.
    """

    @property
    def visible(self) -> Mapping[str, Quantity]:
        return {
            o.name: Quantity(low=o.low, high=o.high, about=o.about)
            for o in self.description.observations
        }

    def view(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        return {o.name: obs[..., i] for i, o in enumerate(self.description.observations)}

    @property
    def declared(self) -> Mapping[str, Quantity]:
        changes = {
            f"change_of_{name}": Quantity(
                low=q.low - q.high, high=q.high - q.low, about=f"what the step changed {name} by"
            )
            for name, q in self.visible.items()
        }
        return {**self.visible, **changes}

    def quantities(self, paths: Paths) -> dict[str, np.ndarray]:
        after, before = self.view(paths["next_obs"]), self.view(paths["obs"])
        changes = {f"change_of_{name}": x - before[name] for name, x in after.items()}
        return {**after, **changes}


def state_goal(sim: Simulator, goal: str) -> Simulator:
    """The simulator with what is wanted in words, which language models are told; it takes the place of
    the goal of a description. "" = the simulator as it is.
    """
    if not goal.strip():
        return sim
    if isinstance(sim, DescribedGoal):
        description = sim.description.model_copy(update={"goal": goal})
        return describe(sim.inner, description, "--goal")
    return describe(sim, SimulatorDescription(simulator="", goal=goal), "--goal")


@runtime_checkable
class BoundedView(Protocol):
    """A simulator that knows the least and the largest that each number of an observation may be."""

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]: ...


def random_acting(sim: Simulator) -> Acting:
    """Any legal action, all alike; of a continuous one a number between its bounds, which are cut
    at 1 where they are infinite.
    """

    def act(obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator) -> Any:
        shape = obs.shape[:2]
        if isinstance(sim.actions, Box):
            low, high = (np.clip(x, -1, 1) if np.isinf(x).any() else np.array(x)
                         for x in (sim.actions.low, sim.actions.high))  # fmt: skip
            return {"act": rng.uniform(low, high, (*shape, sim.actions.size))}
        may = np.ones((*shape, sim.actions), bool) if legal is None else legal
        return {"act": np.where(may, rng.random(may.shape), -1.0).argmax(-1)}

    return act


def sample_games(sim: Simulator, key: Key) -> Paths:
    """A few games of random actions."""
    return play_games(sim, random_acting(sim), SAMPLE, (*key, "described"))


def blank_description(sim: Simulator, spec: str, goal: str, games: Paths) -> SimulatorDescription:
    """A description to be filled in: numbers without a meaning, with the bounds of their space where
    there are some, else those that they had in games, twice as wide, and actions as the simulator
    names them.

    Raises UserError for observations of more numbers than anybody would name.
    """
    names = () if isinstance(sim, DescribedView) else tuple(range(sim.observation))
    if len(names) > MOST:
        raise UserError(
            f"{spec}: an observation has {len(names)} numbers; up to {MOST} can be named"
        )
    seen = games["obs"].reshape(-1, games["obs"].shape[-1]).astype(float)
    low, high = seen.min(0), seen.max(0)
    more = np.where(high > low, (high - low) / 2, 1.0)
    low, high = low - more, high + more
    if isinstance(sim, BoundedView):
        least, most = sim.bounds
        low = np.where(np.abs(least) < LARGEST, least, low)
        high = np.where(np.abs(most) < LARGEST, most, high)
    numbers = [
        ObservedNumber(
            name=f"number_{i}", low=round(float(low[i]), 4), high=round(float(high[i]), 4)
        )
        for i in names
    ]
    return SimulatorDescription(
        simulator=spec,
        goal=goal,
        observations=tuple(numbers),
        actions=() if isinstance(sim.actions, Box) else action_words(sim),
    )


def manual_of(sim: Simulator) -> str:
    """What the author of a simulator, or of the environment in it, says of it."""
    inner = getattr(sim, "environment", sim)
    return (inspect.getdoc(type(inner)) or "")[:LONGEST]


def question_about(blank: SimulatorDescription, manual: str, games: Paths) -> str:
    """What a language model is asked."""
    numbers = "\n".join(f"- {o.name}: about {o.low:g} to {o.high:g}" for o in blank.observations)
    obs, act = games["obs"][0, 0], games["act"][0, 0]
    steps = "\n".join(
        f"- saw {obs[t].astype(float).round(3).tolist()}, did {act[t].round(3).tolist()}, "
        f"was paid {float(games['reward'][0, 0, t]):.3g}"
        for t in range(min(SHOWN, len(obs)))
    )
    parts = [
        f"A simulator is called {blank.simulator}. What is wanted in it: {blank.goal or 'not told'}.",
        f"Its author says:\n{manual}" if manual else "",
        f"An agent observes these numbers, in this order:\n{numbers}" if numbers else "",
        f"Its actions, in this order: {', '.join(blank.actions)}." if blank.actions else "",
        f"The first steps of a game of random actions:\n{steps}",
        "Say what it is about in one paragraph for somebody who writes rewards for it, and give each "
        "number and each action a short name that says what it is, in the same order. Names of "
        "numbers are of letters, digits and underscores; give low and high where you know better bounds. "
        "Say what you do not know as unknown.",
    ]
    return "\n\n".join(p for p in parts if p)


def reply_form(blank: SimulatorDescription) -> type[BaseModel]:
    """What a reply has to fit: a name for each number and each action."""
    several = lambda kind, n: (list[kind], Field(min_length=n, max_length=n))
    fields: dict[str, Any] = {"about": (str, Field(min_length=1))}
    if n := len(blank.observations):
        fields["observations"] = several(NamedNumber, n)
    if n := len(blank.actions):
        fields["actions"] = several(str, n)
    return create_model("DescriptionReply", **fields)


async def ask_for_description(
    client: Client, blank: SimulatorDescription, manual: str, games: Paths, asks: int = 3
) -> SimulatorDescription:
    """A description with the names that a language model gives, and its bounds where it has some.

    Raises Fault "chat-format" where no reply of `asks` fits.
    """
    request = ChatRequest(messages=question_messages(question_about(blank, manual, games)))
    reply: Any = await ask(client, request, reply_form(blank), asks=asks)
    named = getattr(reply, "observations", ())
    numbers = [
        {**o.model_dump(), **_bounds(o, r), "name": _apart(r.name, i, named), "about": r.about}
        for i, (o, r) in enumerate(zip(blank.observations, named, strict=True))
    ]
    return SimulatorDescription.model_validate(
        {
            **blank.model_dump(),
            "about": reply.about,
            "observations": numbers,
            "actions": getattr(reply, "actions", ()),
        }
    )


def _bounds(own: ObservedNumber, number: Any) -> dict[str, float]:
    low = own.low if number.low is None else number.low
    high = own.high if number.high is None else number.high
    return {"low": low, "high": high} if low < high else {}


def _apart(name: str, i: int, others: Sequence[Any]) -> str:
    """The name, with its place behind it where another number has it too."""
    return f"{name}_{i}" if [o.name for o in others].count(name) > 1 else name
