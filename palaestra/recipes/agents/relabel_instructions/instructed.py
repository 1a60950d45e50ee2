"""An environment in which an instruction is followed, and what was achieved in it.

An instruction is made of names of achievements, or it is any other text. "a, b" and "a and b" are done in
any order, "a then b" in this one. The environment says in the fact `achievements` what has been achieved so
far, and maybe in `achievement_names` all that can be.
"""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import palaestra as pl

Achieved: TypeAlias = tuple[tuple[int, str], ...]  # action from 1, 0 = at the start; name
Told: TypeAlias = tuple[tuple[str, str], ...]  # role and text of each message
BETWEEN = re.compile(r"\s*(?:,|\band then\b|\bthen\b|\band\b)\s*")
LINE = "instruction: {}\n"


def plain_name(text: str) -> str:
    """A name without case, underscores and punctuation at its ends."""
    return " ".join(re.sub(r"[_\s]+", " ", text).strip(" .!\"'*`").casefold().split())


def parts_of(instruction: str, known: Iterable[str]) -> list[str]:
    """The achievements that it would be made of; `known` names are plain ones, and stay whole where they
    have a word such as "and" in them.
    """
    text = plain_name(instruction)
    whole = sorted((n for n in known if BETWEEN.search(n)), key=len, reverse=True)
    for i, name in enumerate(whole):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f"\0{i}\0", text)
    parts = [p for p in BETWEEN.split(text) if p]
    return [re.sub(r"\0(\d+)\0", lambda m: whole[int(m[1])], p) for p in parts]


def completion(instruction: str, achieved: Achieved) -> int | None:
    """The action that completed an instruction of achievements; None where one of them is missing, or
    the order is another one.
    """
    when = {plain_name(name): at for at, name in reversed(achieved)}
    parts = parts_of(instruction, when)
    if not parts or any(p not in when for p in parts):
        return None
    times = [when[p] for p in parts]
    ordered = re.search(r"\bthen\b", plain_name(instruction)) is None or times == sorted(times)
    return max(times) if ordered else None


def is_of_names(instruction: str, names: Iterable[str]) -> bool:
    """Whether each of its parts is an achievement."""
    known = set(map(plain_name, names))
    parts = parts_of(instruction, known)
    return bool(parts) and all(p in known for p in parts)


def with_line(messages: Sequence[pl.Message], instruction: str) -> tuple[pl.Message, ...]:
    """Messages with the instruction before the last one that is no system message; nothing changes
    without an instruction.
    """
    if not instruction:
        return tuple(messages)
    line = LINE.format(instruction)
    at = max((i for i, m in enumerate(messages) if m.role != "system"), default=None)
    if at is None:
        return (*messages, pl.Message(role="user", content=line.rstrip()))
    message = replace(messages[at], content=line + messages[at].content)
    return (*messages[:at], message, *messages[at + 1 :])


@pl.value_class
class InstructedState:
    """The environment's state, and what has happened so far."""

    inner: Any
    instruction: str = ""
    said: tuple[Told, ...] = ()  # by turn, what the policy was told, without the instruction
    done: tuple[str, ...] = ()  # by turn, what it did
    achieved: Achieved = ()


@pl.declare(
    facts=(
        ("instruction", str, 'what was to be done; "" = what the environment asks for itself'),
        ("told", tuple, "by turn, (role, text) of the messages that the policy read"),
        ("acted", tuple, "by turn, what the policy said"),
        ("achieved", tuple, "(number of the action, name) of what was achieved"),
        "*",
    )
)
@pl.stage
class Instructed:
    """An environment of one seat under the instruction of the task's meta, which is told at the
    beginning of each row. The episode ends, and pays 1, where achievements complete it; its own pay counts
    without an instruction alone.
    """

    world: pl.World

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        frame = await frame_of(self.world.reset(task, key))
        text = str(task.meta.get("instruction") or "").strip()
        return self._next(InstructedState(inner=None, instruction=text), frame)

    async def step(self, state: InstructedState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        frame = await frame_of(self.world.step(state.inner, acts, key))
        state = replace(state, done=(*state.done, acts[0].text.strip()))
        return self._next(state, frame)

    async def leave(self, state: InstructedState) -> None:
        leave: Any = getattr(self.world, "leave", None)
        left = leave(state.inner) if leave else None
        await left if inspect.isawaitable(left) else None

    def _next(self, state: InstructedState, frame: pl.Frame) -> pl.Frame:
        if len(frame.asks) > 1:
            raise pl.UserError(
                "relabel-instructions follows one player's actions, and this environment asks several at once"
            )
        known = {name for _, name in state.achieved}
        names = [str(n) for n in frame.facts.get("achievements") or ()]
        fresh = dict.fromkeys(n for n in names if n not in known)
        achieved = (*state.achieved, *((len(state.done), n) for n in fresh))
        state = replace(state, inner=frame.state, achieved=achieved)
        if frame.asks:
            messages = tuple((m.role, m.content) for m in frame.asks[0].say)
            state = replace(state, said=(*state.said, messages))
        facts = {
            **frame.facts,
            "instruction": state.instruction,
            "told": state.said,
            "acted": state.done,
            "achieved": achieved,
        }
        if not state.instruction:
            return replace(frame, state=state, facts=facts)
        at, seat = completion(state.instruction, achieved), self.world.seats[0]
        if at is not None and state.done:
            return pl.Frame(state=state, pay={(seat, ""): 1.0}, facts=facts)
        asks = tuple(self._told(a, first=len(state.said) == 1, state=state) for a in frame.asks)
        pay: Mapping[tuple[str, str], float] = {} if asks else {(seat, ""): 0.0}
        return replace(frame, state=state, asks=asks, pay=pay, facts=facts)

    def _told(self, ask: pl.Ask, *, first: bool, state: InstructedState) -> pl.Ask:
        if not (first or ask.new_row):
            return ask
        return replace(ask, say=with_line(ask.say, state.instruction))


async def frame_of(given: Any) -> pl.Frame:
    """What an environment's method returned, once it is there."""
    return await given if inspect.isawaitable(given) else given


def cut_rows(rows: Sequence[pl.Row], actions: int) -> tuple[pl.Row, ...]:
    """The rows up to an action, the last one that counts; those that begin later are left out."""
    cut = (replace(r, segments=tuple(s for s in r.segments if s.turn < actions)) for r in rows)
    return tuple(r for r in cut if any(s.trained for s in r.segments))


def relabel_rows(
    ctx: pl.Context,
    rows: Sequence[pl.Row],
    messages_by_turn: Sequence[Told],
    instruction: str,
    actions: int,
) -> tuple[pl.Row, ...]:
    """The rows as if another instruction had been given: the same observations and actions up to one
    of them. The tokens of the actions have no age and no behaviour log-prob, since nobody sampled them behind
    this instruction.
    """
    dialect, made = ctx.engine().dialect, list[pl.Row]()
    for row in cut_rows(rows, actions):
        at = next(i for i, s in enumerate(row.segments) if s.trained or s.replies)
        say = [pl.Message(role=r, content=c) for r, c in messages_by_turn[row.segments[at].turn]]
        turn = row.segments[at].turn
        heard = dialect.extend(
            tuple(with_line(say, instruction)), first=True, closed=False, tools=()
        )
        head = (
            pl.Segment(ids=p.ids, author=p.author, text=p.text, turn=turn, pictures=p.pictures)
            for p in heard
        )
        tail = (
            replace(s, logp=None, version=None, moved=(), choices=None) if s.trained else s
            for s in row.segments[at:]
        )
        made.append(replace(row, segments=(*head, *tail)))
    return tuple(made)
