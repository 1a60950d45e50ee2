"""A game in which a model does not write a move but chooses one: the candidates among the legal replies
are scored side by side, and one of them is said. So an illegal move cannot be said.

With `strategies` a reply is a strategy and a move, "block c2", and every pair of both is a
candidate; the game hears the move alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from palaestra.abilities import HoldsEpisodes
from palaestra.errors import UserError
from palaestra.rollout.play import await_if_needed, frame_of
from palaestra.types import Act, Ask, Frame, Key, Task, World, stage
from palaestra.worlds.legal import candidate_replies


@stage
class Candidates:
    """Another world, whose turns may be answered with its candidates alone.

    Args:
        world: the game, which lists the legal replies: `palaestra.worlds.legal`.
        strategies: words that may stand before a move; () = none do.
        note: stands below what the game shows in a turn; "" = nothing.
    """

    world: World
    strategies: tuple[str, ...] = ()
    note: str = ""

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    async def reset(self, task: Task, key: Key) -> Frame:
        return self._restrict(await frame_of(self.world.reset(task, key)))

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        moves = tuple(replace(act, text=self._move(act.text)) for act in acts)
        return self._restrict(await frame_of(self.world.step(state, moves, key)))

    async def leave(self, state: Any) -> None:
        if isinstance(self.world, HoldsEpisodes):
            await await_if_needed(self.world.leave(state))

    def _move(self, text: str) -> str:
        """A reply without the strategy before it."""
        word, _, move = text.partition(" ")
        return move if word in self.strategies else text

    def _restrict(self, frame: Frame) -> Frame:
        return replace(frame, asks=tuple(self._offer(frame.state, ask) for ask in frame.asks))

    def _offer(self, state: Any, ask: Ask) -> Ask:
        moves = candidate_replies(self.world, state, ask)
        if not moves:
            raise UserError(
                f"{type(self.world).__name__} does not list its legal replies, so there are no "
                "candidates; give its class a method legal(state), or legal_for(state, seat), that "
                "returns them"
            )
        pairs = tuple(f"{s} {m}" for s in self.strategies for m in moves)
        say = ask.say
        if self.note and say:
            last = replace(say[-1], content=f"{say[-1].content}\n{self.note}")
            say = (*say[:-1], last)
        return replace(ask, say=say, choices=pairs or moves)
