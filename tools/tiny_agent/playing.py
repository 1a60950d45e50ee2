"""Episodes of the project's own worlds as conversations: the world asks and pays, a demonstrator
speaks, and a dialect reads what it calls, as in a run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from palaestra.chat.calls import TagCalls, read_hermes, with_rules
from palaestra.types import Act, Ask, Frame, Key, Message, Task
from tools.tiny_model.mixture import Conversation, said

Rng = np.random.Generator
LOOP = asyncio.new_event_loop()
Speaks = Callable[[Frame, Ask], str]


def wait_for(found: Any) -> Any:
    """What a world's method returns, plain or async."""
    return LOOP.run_until_complete(found) if inspect.isawaitable(found) else found


def played(
    world: Any,
    task: Task,
    speaks: Speaks,
    key: Key,
    dialect: TagCalls | None = None,
) -> list[Conversation]:
    """A whole game, a conversation for each row. Every seat is the demonstrator's.

    Args:
        dialect: how calls are written; None = as a model whose template shows no tools is told to.
    """
    frame: Frame = wait_for(world.reset(task, key))
    done: list[Conversation] = []
    live: dict[tuple[str, str], tuple[Message, ...]] = {}
    turn = 0
    while frame.asks:
        acts: list[Act] = []
        for ask in frame.asks:
            who, say = (ask.seat, ask.thread), ask.say
            if ask.new_row and who in live:
                done.append(live.pop(who))
            if ask.tools and who not in live:
                say = dialect.show(say, ask.tools) if dialect else with_rules(say, ask.tools)
            text = speaks(frame, ask)
            live[who] = (*live.get(who, ()), *say, said(text))
            calls = (
                ()
                if not ask.tools
                else (dialect.read if dialect else read_hermes)(text, "eos", ask.tools)
            )
            acts.append(
                Act(
                    ask=ask,
                    text=text,
                    call=calls[0] if calls else None,
                    calls=calls,
                    finish="eos",
                    n_tokens=len(text),
                )
            )
        turn += len(acts)
        frame = wait_for(world.step(frame.state, tuple(acts), (*key, turn)))
    return [*done, *live.values()]
