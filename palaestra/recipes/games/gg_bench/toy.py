"""What the built-in model is shown first: good moves in games of the grammar that are not held out."""

from dataclasses import replace
from typing import ClassVar

import palaestra as pl


@pl.stage
class ShowMoves:
    """Demonstrates up to `n` moves of the exact solver, in positions of one game of which half of the
    moves are random. A game that breaks is left out.
    """

    n: int = 4
    iterations: int = 50
    recorded: ClassVar[bool] = True
    brings_reward: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, meta = ctx.bench.world, group.task.meta
        if not isinstance(world, pl.worlds.WrittenGame):
            raise pl.UserError(f"{ctx.bench.name} is no written game; take --task written-games")
        game = pl.worlds.WrittenRules(
            title=meta["title"],
            rules=meta["rules_told"],
            moves=meta["moves_told"],
            code=meta["code"],
        )
        rng = pl.rng_of((*key, "show"))
        seed = str(int(rng.integers(2**31)))
        turns = await pl.worlds.game_lessons(game.code, self.iterations, seed)
        if isinstance(turns, pl.worlds.GameVerdict):
            return group
        chosen = sorted(rng.permutation(len(turns))[: self.n].tolist())
        made = [self._episode(ctx, world, game, *turns[i]) for i in chosen]
        return replace(group, episodes=(*group.episodes, *made))

    def _episode(
        self,
        ctx: pl.Context,
        world: pl.worlds.WrittenGame,
        game: pl.worlds.WrittenRules,
        view: pl.worlds.GameView,
        move: int,
    ) -> pl.Episode:
        state = pl.worlds.WrittenState(game=game, view=view)
        asked = (pl.Message(role="user", content=world.shown(state)),)
        return pl.recorded_episode(ctx, "policy", asked, str(move), 1.0, judged=False)
