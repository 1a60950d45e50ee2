"""What the built-in model is shown first: the players made of word vectors, and the form of the probes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.games.decrypto.play import WithOwnPlayer, check_world, game_of
from palaestra.recipes.games.decrypto.probes import (
    BEFORE,
    NAME,
    OTHER,
    belief_prompt,
    prediction_prompt,
    state_at,
)


@pl.stage
class ShowDecrypto:
    """Demonstrates `n` turns of a game that the vector players play: a hint, the two guesses, or with the
    chance `probes` an answer to a probe. What the demonstrated interceptor believes is the keywords that
    the vectors give, before and after the reveal, and of another one.
    """

    n: int = 4
    probes: float = 0.3
    recorded: ClassVar[bool] = True
    brings_reward: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = check_world(ctx)
        rng = pl.rng_of((*key, "show"))
        pairs = self.pairs(world, group.task, key, rng)
        made = [
            pl.recorded_episode(
                ctx, "policy", (pl.Message(role="user", content=asked),), reply, 1.0, judged=False
            )
            for asked, reply in pairs
        ]
        return replace(group, episodes=(*group.episodes, *made))

    def pairs(
        self, world: pl.worlds.Decrypto, task: pl.Task, key: pl.Key, rng: np.random.Generator
    ) -> list[tuple[str, str]]:
        """Prompts and replies of one game."""
        facts = WithOwnPlayer(world, world.seats).reset(task, key).facts
        game = game_of(("vectors", "vectors", "vectors"), 0, task, facts)
        return [self._pair(world, game, rng) for _ in range(self.n)]

    def _pair(self, world: Any, game: Any, rng: np.random.Generator) -> tuple[str, str]:
        at = int(rng.integers(len(game.turns)))
        turn, state = game.turns[at], state_at(world, game, at)
        guessing = replace(state, hints=turn.hints)
        if rng.random() < self.probes:
            text = str(rng.choice(["predict", NAME, BEFORE, OTHER]))
            if text == "predict":
                code = pl.worlds.code_text(turn.intercepted)
                return prediction_prompt(world, game, at), code
            believed = world.guessed_keywords(state_at(world, game, at + 1))
            return belief_prompt(world, game, at, text), ", ".join(believed)
        ways: Sequence[tuple[str, str]] = (
            (world.shown(state, "encoder"), ", ".join(turn.hints)),
            (world.shown(guessing, "decoder"), pl.worlds.code_text(turn.decoded)),
            (world.shown(guessing, "interceptor"), pl.worlds.code_text(turn.intercepted)),
        )
        return ways[int(rng.integers(3))]
