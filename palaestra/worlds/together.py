"""Several environments as one: each task is played in the one that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaestra.abilities import (
    HoldsEpisodes,
    KnowsSolved,
    OffersTools,
    Remarks,
    Solves,
    bounds_of,
    solves,
)
from palaestra.context import Bench
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.rollout.play import await_if_needed, frame_of
from palaestra.tasks.mixture import Mixture
from palaestra.types import Act, Frame, Key, Task, ToolSchema, World, stage, value_class

CUT = "truncated:turns"


@value_class
class Placed:
    """A state of the world of a part. `turns`: how many acts there were."""

    part: str
    state: Any
    turns: int = 0


@value_class
class PartWorld:
    """An environment among several.

    Args:
        name: the domain of its tasks.
        max_tokens: of a turn whose ask sets no limit.
        max_turns: acts after which an episode is cut.
    """

    name: str
    world: World
    max_tokens: int
    max_turns: int


@declare(facts=("*",))
@stage
class TogetherWorlds:
    """Environments of one seat each, in which tasks are played by their domain."""

    parts: tuple[PartWorld, ...]
    seats: tuple[str, ...] = ("policy",)

    @property
    def solved(self) -> float | None:
        """The pay from which all agree that an episode is solved; None = they do not."""
        known = {w.solved if isinstance(w, KnowsSolved) else None for w in self._worlds}
        return known.pop() if len(known) == 1 else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest pay of all; None where one does not know its own."""
        known = [bounds_of(world) for world in self._worlds]
        pairs = [b for b in known if b is not None]
        if len(pairs) < len(known):
            return None
        return min(low for low, _ in pairs), max(high for _, high in pairs)

    @property
    def has_oracle(self) -> bool:
        return all(map(solves, self._worlds))

    async def oracle(self, state: Placed) -> Any:
        world = self._part(state.part).world
        if not isinstance(world, Solves):
            raise Fault("environment", f"{state.part} has no oracle")
        return await await_if_needed(world.oracle(state.state))

    async def remarks(self) -> Sequence[str]:
        remarking = [w for w in self._worlds if isinstance(w, Remarks)]
        return [line for world in remarking for line in await world.remarks()]

    async def open(self) -> tuple[ToolSchema, ...]:
        """Begins the tools of all parts. An episode is shown those of its own."""
        for world in self._worlds:
            if isinstance(world, OffersTools):
                await world.open()
        return ()

    def close(self) -> None:
        for world in self._worlds:
            if isinstance(world, OffersTools):
                world.close()

    async def reset(self, task: Task, key: Key) -> Frame:
        part = self._part(task.domain)
        return _placed(await frame_of(part.world.reset(task, key)), part, 0)

    async def step(self, state: Placed, acts: tuple[Act, ...], key: Key) -> Frame:
        part = self._part(state.part)
        frame = await frame_of(part.world.step(state.state, acts, key))
        return _placed(frame, part, state.turns + len(acts))

    async def leave(self, state: Placed) -> None:
        world = self._part(state.part).world
        if isinstance(world, HoldsEpisodes):
            await await_if_needed(world.leave(state.state))

    @property
    def _worlds(self) -> tuple[World, ...]:
        return tuple(part.world for part in self.parts)

    def _part(self, name: str) -> PartWorld:
        return next(part for part in self.parts if part.name == name)


def _placed(frame: Frame, part: PartWorld, turns: int) -> Frame:
    """A frame of a part's world as one of the whole, with the limits of the part."""
    asks = tuple(
        ask if ask.max_tokens is not None else replace(ask, max_tokens=part.max_tokens)
        for ask in frame.asks
    )
    status = frame.status
    if asks and turns >= part.max_turns:
        asks, status = (), CUT
    return replace(
        frame,
        state=Placed(part=part.name, state=frame.state, turns=turns),
        asks=asks,
        status=status,
    )


def mix_benches(name: str, benches: Sequence[tuple[Bench, float]]) -> Bench:
    """Environments with their own tasks as one bench; every block of tasks holds each of them in its
    exact share.

    Args:
        benches: with their weights.

    Raises:
        UserError: one has several seats, a reward beside its world, or another form of calls than
            the rest.
    """
    for bench, _ in benches:
        if tuple(bench.world.seats) != ("policy",):
            seats = ", ".join(bench.world.seats)
            raise UserError(f"{bench.name} has the seats {seats}; a game of several stands alone")
        if bench.reward is not None:
            raise UserError(
                f"{bench.name} is a task whose answers a reward judges; only environments, which pay "
                "themselves, are mixed by --env"
            )
    names = [bench.tasks.name for bench, _ in benches]
    if twice := [n for i, n in enumerate(names) if n in names[:i]]:
        raise UserError(
            f"{name}: two environments are called {twice[0]!r}; name one once with the sum of the "
            "weights, or give one class another name"
        )
    if len({repr(bench.dialect) for bench, _ in benches}) > 1:
        raise UserError(f"{name}: one of the environments writes calls in a form of its own")
    parts = tuple(
        PartWorld(
            name=bench.tasks.name,
            world=bench.world,
            max_tokens=bench.max_tokens,
            max_turns=bench.max_turns,
        )
        for bench, _ in benches
    )
    return Bench(
        name=name,
        tasks=Mixture(tuple((bench.tasks, weight) for bench, weight in benches)),
        world=TogetherWorlds(parts),
        max_tokens=max(part.max_tokens for part in parts),
        max_turns=max(part.max_turns for part in parts),
        dialect=benches[0][0].dialect,
    )
