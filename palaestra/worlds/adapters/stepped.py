"""An environment in Gymnasium's form, one object with `reset` and `step(action)`, which needs no Gymnasium.

    class Thermostat:
        solved = 1.0                               # optional: this pay or more in an episode is solved
        max_tokens = 16                            # optional: of a reply
        def reset(self, seed=None, options=None):  # the first observation, or (observation, info)
            self.degrees = random.Random(seed).choice([16, 24])
            return f"It has {self.degrees} degrees. Say warmer or colder until it has 20.", {}
        def step(self, action):                    # action = the reply, as text
            self.degrees += 2 if action == "warmer" else -2
            done = self.degrees == 20
            return f"{self.degrees} degrees", float(done), done, False, {}

An `action_space` of Gymnasium says how a reply is read, as in `GymnasiumWorld`; without one the action is the reply without
blanks around it. `step` may return four values in the older form, (observation, reward, done, info). Observations that are
no text are shown as numbers. `terminated` ends an episode as "finished", `truncated` as "truncated:environment".

All randomness has to follow from `seed`, or from `random` and `numpy.random`, which `reset` finds seeded by the task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from palaestra.abilities import KnowsBounds, KnowsSolved, LimitsTurns
from palaestra.errors import UserError
from palaestra.tasks.user_code import accepts, load
from palaestra.types import stage
from palaestra.worlds.adapters.base import POLICY, AdaptedWorld, Live, Scene, show
from palaestra.worlds.adapters.methods import seeded
from palaestra.worlds.adapters.spaces import Speech
from palaestra.worlds.user import guard_call, is_finite, need

WHOLE = "return (observation, reward, terminated, truncated, info)"


@runtime_checkable
class HasActionSpace(Protocol):
    """An environment that says which actions it takes, by a space of Gymnasium."""

    action_space: Any


@runtime_checkable
class Closes(Protocol):
    """An environment that has something to close."""

    def close(self) -> None: ...


@runtime_checkable
class TakesSteps(Protocol):
    """What is looked for in a class."""

    def reset(self) -> Any: ...
    def step(self, action: Any) -> Any: ...


def is_stepped(spec: str) -> bool:
    """Whether `FILE.py:CLASS` is such an environment, and no world of ours, whose `step` takes more."""
    made = load(spec, "class")
    return (
        isinstance(made, type)
        and issubclass(made, TakesSteps)
        and not hasattr(made, "seats")
        and accepts(made.step, "self", "action")
        and not accepts(made.step, "self", "state", "acts", "key")
    )


@stage
class SteppedWorld(AdaptedWorld):
    """`FILE.py:CLASS`, an object in Gymnasium's form, as a world."""

    draws: ClassVar[bool] = False
    spec: str

    def __post_init__(self) -> None:
        made = load(self.spec, "class")
        if not accepts(made):
            raise UserError(
                f"{self.spec} must be made without arguments; give those of __init__ defaults"
            )
        live = SteppedEpisode(self.spec)
        if live.speech is not None:
            live.speech.check(self.label)
        live.close()

    @property
    def label(self) -> str:
        return self.spec.rpartition(":")[2]

    @property
    def max_tokens(self) -> int:
        """Of a reply; 0 = as other worlds."""
        made = load(self.spec, "class")
        return made.max_tokens if isinstance(made, LimitsTurns) else 0

    @property
    def bounds(self) -> tuple[float, float] | None:
        made = load(self.spec, "class")
        return made.bounds if isinstance(made, KnowsBounds) else None

    def open_live(self) -> Live:
        return SteppedEpisode(self.spec)


def stepped_world(spec: str) -> SteppedWorld:
    """The world of such a class."""
    made = load(spec, "class")
    return SteppedWorld(spec, solved=made.solved if isinstance(made, KnowsSolved) else None)


class SteppedEpisode:
    """One object, and where it is."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.object: Any = guard_call(spec, load(spec, "class"))
        space = self.object.action_space if isinstance(self.object, HasActionSpace) else None
        self.speech = None if space is None else Speech(space)

    def start(self, seed: int) -> Scene:
        reset = self.object.reset
        if takes_seed(reset):
            reset = wraps(reset)(partial(reset, seed=seed))
        with seeded(seed):
            begun = guard_call(self.spec, reset)
        paired = isinstance(begun, tuple) and len(begun) == 2 and isinstance(begun[1], Mapping)
        text = self.text(begun[0] if paired else begun, "reset", "return text, or (text, {})")
        ways = "" if self.speech is None else self.speech.ways()
        return Scene(text=f"{text}\n\n{ways}".rstrip())

    def read(self, text: str) -> str:
        return text.strip() if self.speech is None else self.speech.read(text)

    def act(self, action: str) -> Scene:
        given = action if self.speech is None else self.speech.value(action)
        made: Any = guard_call(self.spec, self.object.step, given)
        where = f"{self.spec}.step"
        good = isinstance(made, tuple) and len(made) in (4, 5) and isinstance(made[-1], Mapping)
        need(good, where, "what it returns", made, WHOLE)
        observation, paid, ended, *cut = made[:-1]
        need(is_finite(paid), where, "the reward", paid, "return a finite number")
        status = "finished" if ended else "truncated:environment" if any(cut) else ""
        text = self.text(observation, "step", WHOLE)
        return Scene(text=text, pay={POLICY: float(paid)}, status=status)

    def text(self, observation: Any, method: str, instead: str) -> str:
        need(observation is not None, f"{self.spec}.{method}", "the observation", None, instead)
        return show(observation)

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    def close(self) -> None:
        if isinstance(self.object, Closes):
            guard_call(self.spec, self.object.close)


def takes_seed(reset: Callable[..., Any]) -> bool:
    """Whether `reset` has an argument of that name."""
    given = signature(reset).parameters
    return "seed" in given or any(p.kind is Parameter.VAR_KEYWORD for p in given.values())
