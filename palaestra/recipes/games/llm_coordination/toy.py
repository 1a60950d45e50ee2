"""What the built-in model is shown first: the best joint plan in short prompts, in the form of each call
of an agent, and questions with their answers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.games.llm_coordination.agent import CAC, Mind, MindsState, TeamOfMinds
from palaestra.recipes.games.llm_coordination.questions import TYPES, RoomQuestions

SHOWN = pl.worlds.CollabEscape(turns=8, brief=True)
STAGES = ("direct", "partner", "plan", "verify", "question")


@pl.stage
class ShowCoordination:
    """Demonstrates `n` calls of a game in rooms: an action of the best plan, what the partner does in it, whether an action
    is of it, or the answer to a question. A demonstrated place is one that a game can come to.

    Half of the verified actions are ones of the best plan and are "okay", the others are not. A plan is
    shown with what the partner does in it.
    """

    n: int = 4
    world: pl.worlds.CollabGame = SHOWN
    recorded: ClassVar[bool] = True
    brings_reward: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of((*key, "show"))
        made = [
            pl.recorded_episode(
                ctx, "policy", (pl.Message(role="user", content=asked),), reply, 1.0, judged=False
            )
            for asked, reply in (self.pair(rng) for _ in range(self.n))
        ]
        return replace(group, episodes=(*group.episodes, *made))

    def pair(self, rng: np.random.Generator) -> tuple[str, str]:
        """A prompt and what is said to it."""
        world = self.world
        stage = STAGES[int(rng.integers(len(STAGES)))]
        if stage == "question":
            task = RoomQuestions(world).task("train", int(rng.integers(len(TYPES) * 10_000)))
            return task.prompt[-1].content, task.answer
        places = list(world.plan().index)
        place = places[int(rng.integers(len(places)))]
        at = int(rng.integers(2))
        seat = world.seats[at]
        moves = world.plan().best(place, world.turns)[0]
        state = pl.worlds.CollabState(place=place)
        if stage == "direct":
            return world.shown(state, seat), moves[at]
        mind = Mind(pl.Ask(seat=seat), CAC, stage, belief=moves[1 - at], move=moves[at])
        replies: Mapping[str, str] = {
            "partner": moves[1 - at],
            "plan": f"Action: {moves[at]}",
            "verify": "okay",
        }
        able = [a for a in world.actions(place, seat) if a != moves[at]]
        if stage == "verify" and rng.random() < 0.5:
            mind = replace(mind, move=able[int(rng.integers(len(able)))])
            replies = {**replies, "verify": "not okay"}
        team = TeamOfMinds(world, (CAC, CAC))
        return team.prompt(MindsState(state), mind, world.shown(state, seat)), replies[stage]
