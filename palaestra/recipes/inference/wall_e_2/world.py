"""A world in which an action is imagined before it is done: where the world model expects it to fail,
the agent is told why and acts anew.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import palaestra as pl
from palaestra.recipes.inference.wall_e_2.rules import LoggedAction, scene_facts

FAILURE = (
    r"\b(?:cannot|can't|can not|could not|couldn't|nothing happens|fails?|failed|invalid|illegal|"
    r"impossible|not possible|not allowed|unknown action)\b"
)


@pl.value_class
class PredictedFrame:
    """What the world model expects of an action: `expected` by the model alone, and the feedback and
    suggestion of what forbids it; "" = nothing does.
    """

    expected: bool = True
    feedback: str = ""
    suggestion: str = ""

    @property
    def fails(self) -> bool:
        return bool(self.feedback)


# (state, action, scene) to what is expected
Predict: TypeAlias = Callable[[str, str, dict[str, str]], Awaitable[PredictedFrame]]


@pl.value_class
class Imagination:
    """The state of a world that is imagined first.

    Args:
        inner: the world's own state.
        ask: who acts, as the world asked last.
        text: what the world showed last.
        key: its state key, None where it has none.
        scene: the scene graph of the episode.
        tries: actions that were imagined since the last one that was done.
        done: actions that were done.
        log: what was done.
        vetoes: of each action that was only imagined, whether it would have failed; None = unknown.
    """

    inner: Any
    ask: pl.Ask
    text: str
    key: Any
    scene: dict[str, str]
    tries: int = 0
    done: int = 0
    log: tuple[LoggedAction, ...] = ()
    vetoes: tuple[bool | None, ...] = ()


@pl.declare(
    facts=(
        (
            "success",
            bool,
            "whether the action before the frame worked, where an environment says it",
        ),
        ("logged", tuple, "the actions that were done, with whether each worked"),
        ("vetoes", tuple, "of each action that was only imagined, whether it would have failed"),
    )
)
@pl.stage
class ImaginedFirst:
    """A world of one seat whose actions are imagined at most `tries` times before one is done.

    Whether an action worked: the fact `success` of the world's frame, if there is one; else it failed
    where what the world says matches `failure`, or where nothing that it shows has changed. What is
    cut by a limit of turns is not known, and not logged.

    Args:
        world: the user's.
        predict: the world model.
        turns: actions that may be done; imagined ones are not counted.
        tries: imagined actions in a row at most; 0 = none is imagined.
        failure: a regular expression, of what the world says of an action that failed.
        say: what the agent is told of an imagined failure: {action}, {feedback}, {suggestion} and
            {state}.
        look: whether a fork of the world is asked what an imagined action would have done, to
            measure; the agent is not told.
    """

    world: pl.World
    predict: Predict
    turns: int = 64
    tries: int = 5
    failure: str = FAILURE
    say: str = "Imagined, not done: {action}\n{feedback} {suggestion}\n{state}"
    look: bool = True

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def solved(self) -> float | None:
        """The pay of a solved task, as the world says."""
        solved: Any = getattr(self.world, "solved", None)
        return solved

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        frame = await _awaited(self.world.reset(task, key))
        first = Imagination(inner=frame.state, ask=pl.Ask(seat=""), text="", key=None, scene={})
        return self._frame(first, frame)

    async def step(self, state: Imagination, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        action = acts[0].text.strip()
        forecast = await self.predict(state.text, action, state.scene)
        if forecast.fails and state.tries < self.tries:
            really = None
            if self.look:
                fork = await _awaited(self.world.step(state.inner, acts, key))
                worked = self.worked(state, fork)
                really = None if worked is None else not worked
            state = replace(state, tries=state.tries + 1, vetoes=(*state.vetoes, really))
            return self._again(state, action, forecast)
        frame = await _awaited(self.world.step(state.inner, acts, key))
        worked = self.worked(state, frame)
        if worked is not None:
            done = LoggedAction(
                state=state.text, action=action, success=worked, scene=state.scene,
                expected=forecast.expected,
            )  # fmt: skip
            state = replace(state, log=(*state.log, done))
        after = self._frame(replace(state, tries=0, done=state.done + 1), frame)
        if after.asks and state.done + 1 >= self.turns:
            return replace(after, asks=(), status="truncated:turns")
        return after

    async def leave(self, state: Imagination) -> None:
        leave: Any = getattr(self.world, "leave", None)
        if leave is not None:
            await _awaited(leave(state.inner))

    def worked(self, state: Imagination, frame: pl.Frame) -> bool | None:
        """Whether the action that led to a frame worked; None where nobody knows."""
        told = frame.facts.get("success")
        if isinstance(told, bool):
            return told
        if not frame.asks:
            return None if frame.status.startswith("truncated") else True
        text = _text(frame.asks[0].say)
        if re.search(self.failure, text, re.IGNORECASE):
            return False
        if state.key is not None and frame.state_key is not None:
            return frame.state_key != state.key
        return text != state.text

    def _frame(self, state: Imagination, frame: pl.Frame) -> pl.Frame:
        """The world's frame around its own state."""
        if frame.asks:
            (ask,) = frame.asks
            text = _text(ask.say)
            scene = {**state.scene, **scene_facts(text)}
            state = replace(state, ask=ask, text=text, key=frame.state_key, scene=scene)
        state = replace(state, inner=frame.state)
        return replace(frame, state=state, facts={**frame.facts, **self._facts(state)})

    def _again(self, state: Imagination, action: str, forecast: PredictedFrame) -> pl.Frame:
        """Asks for another action. Where the world lists legal replies, this one is left out, but for
        the last.
        """
        said = state.ask.say[-1].role if state.ask.say else "user"
        told = self.say.format(
            action=action, feedback=forecast.feedback, suggestion=forecast.suggestion,
            state=state.text,
        )  # fmt: skip
        choices = state.ask.choices
        if choices is not None:
            choices = tuple(c for c in choices if c.strip() != action) or choices
        ask = replace(
            state.ask, say=(pl.Message(role=said, content=told),), choices=choices,
            new_row=False, begins=None,
        )  # fmt: skip
        state = replace(state, ask=replace(state.ask, choices=choices))
        return pl.Frame(state=state, asks=(ask,), facts=self._facts(state), state_key=state.key)

    def _facts(self, state: Imagination) -> dict[str, Any]:
        return {"logged": state.log, "vetoes": state.vetoes}


async def _awaited(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


def _text(say: Sequence[pl.Message]) -> str:
    return say[-1].content if say else ""
