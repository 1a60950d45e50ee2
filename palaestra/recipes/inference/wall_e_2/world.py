"""A world in which an action is imagined before it is done: where the world model expects it to fail,
the agent is told why and acts anew.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import palaestra as pl
from palaestra.recipes.inference.wall_e_2.rules import (
    LoggedAction,
    failure_pieces,
    said_action,
    scene_facts,
)

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
        blamed: pieces of the text by which the last action that was done is known to have failed.
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
    blamed: tuple[str, ...] = ()


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
    where a piece of what the world says matches `failure` and did not stand there before the action
    ("You cannot carry more than 2 things" may always stand there), or where nothing that it shows has
    changed. An action that ends the episode worked where that is paid as solved; of any other ending
    it is not known, and not logged.

    An action is the last line of a message that says something, without markdown, "Action:" before it
    and thinking.

    Args:
        world: the user's.
        predict: the world model.
        turns: actions that may be done; imagined ones are not counted.
        tries: imagined actions in a row at most; 0 = none is imagined.
        failure: a regular expression, of what the world says of an action that failed.
        say: what the agent is told of an imagined failure: {action}, {feedback}, {suggestion} and
            {state}.
        look: whether a fork of the world is asked what an imagined action would have done, to
            measure; the agent is not told. The fork has a copy of the world's state, which `step` may
            change in place; UserError where it does so and the state cannot be copied.
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
        action = said_action(acts[0].text)
        forecast = await self.predict(state.text, action, state.scene)
        if forecast.fails and state.tries < self.tries:
            really = None
            if self.look:
                worked = self.worked(state, await self._fork(state, acts, key))
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
            state = replace(state, log=(*state.log, done), blamed=self._blamed(state, frame))
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
        success = frame.facts.get("success")
        if isinstance(success, bool):
            return success
        if not frame.asks:
            right = 1.0 if self.solved is None else self.solved
            paid = sum(frame.pay.values()) >= right - 1e-9
            return True if paid and frame.status == "finished" else None
        text = _text(frame.asks[0].say)
        if self._blamed(state, frame):
            return False
        if state.key is not None and frame.state_key is not None:
            return frame.state_key != state.key
        return text != state.text

    def _blamed(self, state: Imagination, frame: pl.Frame) -> tuple[str, ...]:
        """The pieces of a frame's text by which the action that led to it failed."""
        text = _text(frame.asks[0].say) if frame.asks else ""
        return failure_pieces(text, state.text, state.blamed, self.failure)

    async def _fork(self, state: Imagination, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        """What an action would lead to, on a copy of the state."""
        try:
            inner = copy.deepcopy(state.inner)
        except Exception:  # a state of any kind: it may hold a process, a lock or a generator
            inner = state.inner
        before = repr(inner)
        frame: pl.Frame = await _awaited(self.world.step(inner, acts, key))
        if inner is state.inner and repr(inner) != before:
            raise pl.UserError(
                "this environment changes its state in place, and the state cannot be copied, so asking "
                "it what an action would do does the action; give look=False"
            )
        return frame

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
        role = state.ask.say[-1].role if state.ask.say else "user"
        content = self.say.format(
            action=action, feedback=forecast.feedback, suggestion=forecast.suggestion,
            state=state.text,
        )  # fmt: skip
        choices = state.ask.choices
        if choices is not None:
            choices = tuple(c for c in choices if said_action(c) != action) or choices
        ask = replace(
            state.ask, say=(pl.Message(role=role, content=content),), choices=choices,
            new_row=False, begins=None,
        )  # fmt: skip
        state = replace(state, ask=replace(state.ask, choices=choices))
        return pl.Frame(state=state, asks=(ask,), facts=self._facts(state), state_key=state.key)

    def _facts(self, state: Imagination) -> dict[str, Any]:
        return {"logged": state.log, "vetoes": state.vetoes}


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _text(say: Sequence[pl.Message]) -> str:
    return say[-1].content if say else ""
