"""PettingZoo's environments of several agents as worlds: `pettingzoo:classic/connect_four-v3`, or
`PettingZooWorld`. An action mask, where there is one, says what is legal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.suggest import suggestion_or_all
from palaestra.types import stage
from palaestra.worlds.adapters.base import (
    AdaptedWorld,
    Live,
    Opponent,
    Scene,
    Trail,
    label_of,
    library_call,
    missing_library,
    show,
)
from palaestra.worlds.adapters.spaces import Speech, mask_of

OPPONENTS = ("self", "random")


@stage
class PettingZooWorld(AdaptedWorld):
    """An environment of PettingZoo whose agents act one after the other
    (https://pettingzoo.farama.org/api/aec).

    Args:
        make: the environment's id, or a function that makes the environment.
        settings: keywords for it.
        against: who plays the other seats. "self": the policy has all, under the agents' names.
            "random" or a function `(messages, rng) -> text`: then it has one, another one from task
            to task.
        render: the text for `(observation, agent)`. Without it its numbers, and the legal actions.
        read: the action that a reply means; ValueError for none.
        actions: names of the actions of a Discrete space, in their order, apart by blanks.
    """

    make: str | Callable[[], Any]
    settings: tuple[tuple[str, Any], ...] = ()
    against: Opponent = "self"
    render: Callable[[Any, str], str] | None = None
    read: Callable[[str], Any] | None = None
    actions: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.against, str) and self.against not in OPPONENTS:
            near = suggestion_or_all(self.against, OPPONENTS)
            raise UserError(f"{self.label}: no opponent {self.against!r}{near}")
        made = self.make_environment()
        self.speech(made, made.possible_agents[0]).check(self.label)
        made.close()

    @property
    def label(self) -> str:
        return label_of("pettingzoo", self.make)

    @property
    def sides(self) -> tuple[str, ...]:
        return agents_of(self.make_environment)

    @property
    def opponent(self) -> Opponent:
        return self.against

    def open_live(self) -> Live:
        return PettingZooEpisode(self, self.make_environment())

    def legal(self, state: Trail) -> tuple[str, ...]:
        """The legal actions of the agent to move, as they are said; () = they have no names."""
        episode = PettingZooEpisode(self, self.make_environment())
        try:
            episode.start(state.seed)
            for action in state.actions:
                episode.act(action)
            return () if self.read else tuple(episode.speech.names(episode.mask))
        finally:
            episode.close()

    def make_environment(self) -> Any:
        """Raises UserError where there is none."""
        if not isinstance(self.make, str):
            return self.make()
        try:
            import pettingzoo
            from pettingzoo.env_registry.exceptions import FailedToImport
        except ImportError as error:
            raise missing_library(self.label, "PettingZoo", "pettingzoo", error) from None
        if self.make not in pettingzoo.aec_registry:
            near = suggestion_or_all(self.make, pettingzoo.aec_registry)
            raise UserError(f"PettingZoo has no environment {self.make!r}{near}")
        try:
            return pettingzoo.make("aec", self.make, **dict(self.settings))
        except (ImportError, FailedToImport) as error:
            what = " ".join(str(error).split()).rstrip(".")
            raise UserError(
                f"{self.label}: {what}; install what this family needs, pygame-ce for the classic "
                "one"
            ) from None
        except (TypeError, ValueError, AssertionError) as error:
            raise UserError(f"{self.label}: {error}; change its settings") from None

    def speech(self, made: Any, agent: str) -> Speech:
        """How an agent's actions are said."""
        return Speech(made.action_space(agent), tuple(self.actions.split()), self.read)


@lru_cache(maxsize=32)
def agents_of(make: Callable[[], Any]) -> tuple[str, ...]:
    """The names of the agents of an environment."""
    made = make()
    made.close()
    return tuple(made.possible_agents)


@dataclass
class PettingZooEpisode:
    """One episode. `cut` is whether an agent was stopped before its end."""

    world: PettingZooWorld
    environment: Any
    cut: bool = False

    def start(self, seed: int) -> Scene:
        with library_call(self.world.label):
            self.environment.reset(seed=seed)
        return self.scene({})

    def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            self.environment.step(self.speech.value(action))
            pay = {agent: float(x) for agent, x in self.environment.rewards.items()}
        return self.scene(pay)

    def scene(self, pay: dict[str, float]) -> Scene:
        """What the next agent sees who is still there; those who are not make their empty step."""
        made = self.environment
        with library_call(self.world.label):
            while made.agents and self.has_left(made.agent_selection):
                self.cut = self.cut or bool(made.truncations[made.agent_selection])
                made.step(None)
        if not made.agents:
            return Scene(pay=pay, status="truncated:environment" if self.cut else "finished")
        agent = made.agent_selection
        with library_call(self.world.label):
            observation = made.observe(agent)
        return Scene(seat=agent, text=self.text(observation, agent), pay=pay)

    def has_left(self, agent: str) -> bool:
        return self.environment.terminations[agent] or self.environment.truncations[agent]

    def text(self, observation: Any, agent: str) -> str:
        if self.world.render is not None:
            return self.world.render(observation, agent)
        if isinstance(observation, dict) and "observation" in observation:
            observation = observation["observation"]
        ways = self.speech.ways(self.mask)
        return f"You are {agent}.\n{show(observation)}\n\n{ways}".rstrip()

    @property
    def speech(self) -> Speech:
        return self.world.speech(self.environment, self.environment.agent_selection)

    @property
    def mask(self) -> Any:
        agent = self.environment.agent_selection
        return mask_of(self.environment.observe(agent), self.environment.infos[agent])

    def read(self, text: str) -> str:
        return self.speech.read(text, self.mask)

    def sample(self, rng: np.random.Generator, how: str) -> str:
        return self.speech.sample(rng, self.mask)

    def close(self) -> None:
        self.environment.close()
