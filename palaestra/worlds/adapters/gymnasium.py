"""Gymnasium's environments as worlds: `gym:FrozenLake-v1(is_slippery=False)`, or `GymnasiumWorld`.

An id of another package has its module in front: `gym:minigrid:MiniGrid-Empty-5x5-v0`. What is shown
is the environment's own text drawing where it has one ("ansi"), the view in words in MiniGrid and
BabyAI, else the observation as numbers. An action of a Discrete space is said by its number or its name, one of a Text space is
the reply, one of another space its JSON on the last line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.tasks.user_modules import import_registrar
from palaestra.types import stage
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Live,
    Scene,
    label_of,
    library_call,
    missing_library,
    show,
)
from palaestra.worlds.adapters.minigrid import is_view, view_in_words
from palaestra.worlds.adapters.spaces import Speech

# what the numbers mean, which Gymnasium says in its documentation alone
ACTIONS: Mapping[str, str] = {
    "FrozenLake": "left down right up",
    "CliffWalking": "up right down left",
    "Taxi": "south north east west pickup dropoff",
    "Blackjack": "stick hit",
    "CartPole": "left right",
    "MountainCar": "left none right",
    "Acrobot": "left none right",
    "MiniGrid": "left right forward pickup drop toggle done",
    "BabyAI": "left right forward pickup drop toggle done",
}
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
ESCAPE = re.compile(r"\x1b\[([\d;]*)m(.*?)\x1b\[0m", re.DOTALL)


@stage
class GymnasiumWorld(AdaptedWorld):
    """An environment of Gymnasium (https://gymnasium.farama.org).

    Args:
        make: the environment's id, or MODULE:ID where importing MODULE registers it, or a function
            that makes the environment.
        settings: keywords for its id.
        render: the text for `(observation, info)`. Without it the environment draws itself if it
            can, else its numbers are shown.
        read: the action that a reply means; ValueError for none.
        actions: names of the actions of a Discrete space, in their order, apart by blanks.

    `terminated` ends an episode as "finished", `truncated` as "truncated:environment".
    """

    make: str | Callable[[], Any]
    settings: tuple[tuple[str, Any], ...] = ()
    render: Callable[[Any, Mapping[str, Any]], str] | None = None
    read: Callable[[str], Any] | None = None
    actions: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        made = self.make_environment()
        self.speech(made).check(self.label)
        made.close()

    @property
    def label(self) -> str:
        return label_of("gym", self.make)

    @property
    def max_turns(self) -> int:
        """As many as the environment's own limit leaves, with the replies that are no action."""
        made = self.make_environment()
        limit = None if made.spec is None else made.spec.max_episode_steps
        made.close()
        return super().max_turns if limit is None else limit + self.retries + 1

    def open_live(self) -> Live:
        made = self.make_environment()
        return GymnasiumEpisode(self, made, self.speech(made))

    def describe(self) -> str:
        return self.intro or ("" if callable(self.make) else f"You are in {self.make}.")

    def make_environment(self) -> Any:
        """Raises UserError where there is none."""
        try:
            import gymnasium
        except ImportError as error:
            raise missing_library(self.label, "Gymnasium", "gymnasium", error) from None
        if not isinstance(self.make, str):
            return self.make()
        given = dict(self.settings)
        import_registrar(self.make, self.label)
        name = self.make.rpartition(":")[2]
        try:
            modes = gymnasium.spec(name).kwargs.get("render_mode"), given.get("render_mode")
            made = gymnasium.make(name, **given)
            if not any(modes) and not self.render and "ansi" in made.metadata["render_modes"]:
                made.close()
                made = gymnasium.make(name, **given, render_mode="ansi")
        except (gymnasium.error.Error, TypeError, ValueError, AssertionError, ImportError) as error:
            what = " ".join(str(error).split())
            raise UserError(f"{self.label}: {what}; change the id or its settings") from None
        return made

    def speech(self, made: Any) -> Speech:
        """How its actions are said."""
        name = "" if made.spec is None else made.spec.name
        known = ACTIONS.get(name) or ACTIONS.get(name.partition("-")[0], "")
        return Speech(made.action_space, tuple((self.actions or known).split()), self.read)


@dataclass
class GymnasiumEpisode:
    """One episode."""

    world: GymnasiumWorld
    environment: Any
    speech: Speech

    def start(self, seed: int) -> Scene:
        with library_call(self.world.label):
            observation, info = self.environment.reset(seed=seed)
        return Scene(text=self.text(observation, info, first=True))

    def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            done = self.speech.value(action)
            observation, reward, ended, cut, info = self.environment.step(done)
            paid = float(reward)
        status = "finished" if ended else "truncated:environment" if cut else ""
        return Scene(text=self.text(observation, info), pay={POLICY: paid}, status=status)

    def text(self, observation: Any, info: Mapping[str, Any], first: bool = False) -> str:
        if self.world.render is not None:
            return self.world.render(observation, info)
        with library_call(self.world.label):
            drawn = self.environment.render() if self.environment.render_mode == "ansi" else None
        if isinstance(drawn, str):
            text = name_colours(drawn).strip("\n")
        else:
            text = view_in_words(observation) if is_view(observation) else show(observation)
        return f"{text}\n\n{self.speech.ways()}".rstrip() if first else text

    def read(self, text: str) -> str:
        return self.speech.read(text)

    def sample(self, rng: np.random.Generator, how: str) -> str:
        return self.speech.sample(rng)

    def close(self) -> None:
        self.environment.close()


def name_colours(drawn: str) -> str:
    """A terminal's colours in words: "\\x1b[41mS\\x1b[0m" is "<red>S</red>"."""

    def in_words(match: re.Match[str]) -> str:
        codes = [int(c) for c in match[1].split(";") if c]
        colour = next((COLOURS[c % 10] for c in codes if 30 <= c < 48 and c % 10 < 8), "")
        return f"<{colour}>{match[2]}</{colour}>" if colour else match[2]

    return ESCAPE.sub(in_words, drawn)
