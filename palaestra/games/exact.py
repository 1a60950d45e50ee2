"""How much a best response earns from a player, exactly, where the game is small enough."""

from __future__ import annotations

from palaestra.api.loops import run_blocking
from palaestra.errors import UserError
from palaestra.games.seats import MODEL
from palaestra.run.context import RunContext
from palaestra.run.exploitability import ExactWorld, Exploitability

MOST = 1_000  # situations in which a model is read without being asked to; Leduc poker has 936


def exploitability_of(ctx: RunContext, name: str, exact: bool = False) -> float | None:
    """NashConv over seats, in the game's own pay (`palaestra.run.exploitability`), at temperature 1
    and given that replies are legal. None for a player that is no table of probabilities (an
    endpoint, a function), and in a world that is too large or says nothing exact.

    Args:
        exact: also for a model in more than MOST situations, which takes minutes.
    """
    world = ctx.bench.world
    if not isinstance(world, ExactWorld):
        return None
    try:
        situations = world.situations()
        if name == "random":
            table = {
                s: dict.fromkeys(words, 1 / len(words)) for s, (_, words) in situations.items()
            }
            return world.exact_play(table)["exploitability"]
        if name == "policy" or name.startswith(MODEL):
            if len(situations) > MOST and not exact:
                raise UserError(
                    f"{name} would be read in {len(situations):,} situations; --exact does"
                )
            return float(run_blocking(Exploitability(model=name)(ctx))["exploitability"])
    except UserError as error:
        ctx.say(f"note: no exploitability: {error}")
    return None
