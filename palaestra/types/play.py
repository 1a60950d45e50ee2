"""Worlds, who plays in them, and what they tell each other; sources of tasks; what a run gives."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import field
from typing import (
    Any,
    Literal,
    Protocol,
    runtime_checkable,
)

from palaestra.types.base import (
    Key,
    value_class,
)
from palaestra.types.episodes import (
    Task,
)
from palaestra.types.rows import Choices, ExpertChoices, Moves, Replies, Row, Segment
from palaestra.types.talk import (
    Call,
    Malformed,
    Message,
    ToolSchema,
)


@value_class
class Ask:
    """A seat acts next. Several at once are simultaneous moves, or n solvers of one question (by
    `thread`).
    """

    seat: str
    say: tuple[Message, ...] = ()
    thread: str = ""
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None  # of this turn; None = what the bench allows
    new_row: bool = False  # the context is replaced, not extended (a summary, a stateless turn)
    prefix: str = ""  # forced start of the reply
    # what the world writes into an open reply, such as a program's output, before it goes on: it is
    # context, and no part of what the seat says
    shown: str = ""
    # what the seat may call, in the way of its model's family; the same in every turn of a row
    tools: tuple[ToolSchema, ...] = ()
    # the replies that are legal, which follow `prefix`: one of them is said, and then the turn
    # ends; None = any
    choices: tuple[str, ...] | None = None
    # a row that begins as another of the seat does: (its thread, replies of it), whose tokens are
    # context here, as they are; the thread has no row before
    begins: tuple[str, int] | None = None
    temperature: float | None = None  # of this turn; None = as the player samples


@value_class
class Act:
    """What a seat did. `text` is cut after the stop string; the tokens are in the row. `calls` are
    all it made, in order, and `call` is the first. `sample` is what the player produced, after
    `n_context` tokens at a `temperature`.
    """

    ask: Ask
    text: str
    call: Call | Malformed | None
    finish: str
    n_tokens: int
    calls: tuple[Call | Malformed, ...] = ()
    sample: Completion | None = field(default=None, compare=False, repr=False)
    n_context: int = field(default=0, compare=False, repr=False)
    temperature: float = field(default=1.0, compare=False, repr=False)


@value_class
class Frame:
    """A world's answer: its state (a value, so a fork is free), who acts next, and what was paid to
    (seat, thread).
    """

    state: Any
    asks: tuple[Ask, ...] = ()
    pay: Mapping[tuple[str, str], float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    state_key: Any = None  # equal keys = equal situations (anchor states)
    status: str = "finished"  # read when nobody is asked: "finished" | "truncated:WHY"


@runtime_checkable
class World(Protocol):
    """An environment. Methods may be plain or async; the same key gives the same randomness.

    The state in a frame is a plain value and `step` leaves it as it was: whoever kept one can go on
    from it, so every world can be forked. What a world may be able to do beside this: `Solves`,
    `SolvesSome`, `LimitsTurns`, `Casts`.
    """

    @property
    def seats(self) -> tuple[str, ...]: ...

    def reset(self, task: Task, key: Key) -> Frame | Awaitable[Frame]: ...
    def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame | Awaitable[Frame]: ...


@value_class
class Sampling:
    """How tokens are drawn. Temperature 0 is greedy. The recorded log-prob is under exactly this
    distribution.

    `choices`, where there are some, are the only replies, see `Choices`; of the other settings only
    the temperature bears on them.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 64
    stop: tuple[str, ...] = ()
    choices: Replies = ()


@value_class
class Completion:
    """What a player produced: `cut` is where the stop string ends in `text`; the tokens always stay
    whole.
    """

    ids: tuple[int, ...]
    logp: tuple[float, ...]
    text: str
    cut: int
    finish: Literal["", "eos", "stop", "length"]  # "" = left open, to be gone on with
    version: int | None = None  # of its first token
    moved: Moves = ()  # as of a `Segment`
    choices: Choices | None = None
    experts: ExpertChoices | None = None  # of its context and itself, with router replay


class Dialect(Protocol):
    """How a bench shows its tools and has calls written, in the place of the way of the model's
    family.
    """

    def show(self, say: tuple[Message, ...], tools: tuple[ToolSchema, ...]) -> tuple[Message, ...]:
        """The messages of a first turn, with what says how the tools are called."""
        ...

    def read(
        self, text: str, finish: str, tools: tuple[ToolSchema, ...]
    ) -> tuple[Call | Malformed, ...]:
        """All calls of a turn, in order."""
        ...

    def stops(self, tools: tuple[ToolSchema, ...]) -> tuple[str, ...]:
        """Strings that end a turn, beside those of the world."""
        ...


class Player(Protocol):
    """Whoever fills a seat: an engine, an endpoint, a script, a frozen snapshot."""

    @property
    def name(self) -> str: ...
    @property
    def policy(self) -> str:
        """The learner whose tokens these are; "" = nobody trains on them."""
        ...

    @property
    def temperature(self) -> float: ...

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        """What the row gains before the player speaks. `closed`: its last turn ended with its own
        end token.
        """
        ...

    async def act(
        self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key
    ) -> Completion: ...
    def parse(self, text: str, finish: str) -> Call | Malformed | None: ...


@runtime_checkable
class Tasks(Protocol):
    """Where problems come from. Splits "train" and "test" are disjoint; an index names one task.

    What a source may be able to do beside this: `HeldOutSize`, `Answers`, `Warns`, `Notes`,
    `Checks`, `Demonstrates`, `FindsMistakes`, `Mixes`.
    """

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int | None:
        """Training tasks; None = endless."""
        ...

    def task(self, split: str, index: int) -> Task: ...


@value_class
class Result:
    """What a run gives: numbers, and artifacts by name (folders of models, files)."""

    metrics: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
