"""Plays adapted worlds as `play` does, with scripted replies."""

import asyncio
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
from palaestra.types import Act, Frame, rng_of
from palaestra.worlds.adapters.base import AdaptedWorld

Reply = str | Callable[[Frame], str]


async def stepped(world: AdaptedWorld, frame: Frame, text: str) -> Frame:
    act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)
    return await world.step(frame.state, (act,), ("any", "key"))


async def frames_of(world: AdaptedWorld, replies: Sequence[Reply], index: int = 0, split: str = "train") -> list[Frame]:
    """All frames of an episode, as far as the replies go."""
    frames = [await world.reset(world.task(split, index), ("k",))]
    for reply in replies:
        if not frames[-1].asks:
            break
        text = reply if isinstance(reply, str) else reply(frames[-1])
        frames.append(await stepped(world, frames[-1], text))
    return frames


@pytest.fixture
def episode():
    """episode(world, replies, index=0) -> its frames."""

    def play(world, replies, index=0, split="train"):
        return asyncio.run(frames_of(world, replies, index, split))

    return play


@pytest.fixture
def repeats():
    """Asserts that a world's state is a value: the same seed gives the same frames, also where every
    step is gone from anew, on a world of its own, and a state that was left is still where it was.
    """

    def check(make: Callable[[], AdaptedWorld], replies: Sequence[Reply], index: int = 0) -> list[Frame]:
        async def twice() -> list[Frame]:
            frames = await frames_of(make(), replies, index)
            assert len(frames) >= 2
            for before, reply, after in zip(frames, replies, frames[1:], strict=False):
                text = reply if isinstance(reply, str) else reply(before)
                fresh = make()
                assert await stepped(fresh, before, text) == after
                assert await stepped(fresh, before, text) == after
                await closed(fresh)
            return frames

        return asyncio.run(twice())

    return check


async def closed(world: AdaptedWorld) -> None:
    for _, live, _ in world.lives.kept:
        await world.lives.end(live)


def at_random(*, legal: str = "legal actions: ") -> Callable[[Frame], str]:
    """A legal action that is named in the last line of what is shown, drawn from what is shown."""

    def choose(frame: Frame) -> str:
        said = frame.asks[0].say[-1].content
        ways = said.rpartition(legal)[2].split("\n")[0].split(", ")
        return str(rng_of((said,)).choice(ways))

    return choose


@pytest.fixture
def drawing(monkeypatch):
    """PettingZoo's games import pygame, which is LGPL and not among the tests' packages, to draw."""
    import sys

    if "pygame" not in sys.modules:
        monkeypatch.setitem(sys.modules, "pygame", ModuleType("pygame"))
