"""The nouns. Frozen values; a stage takes some and returns others. (The file is longer than others:
it is the one vocabulary.)

Shape suffixes, here and everywhere: B rows, T tokens of a row's training view, E episodes, G group,
N observations, V vocabulary, D hidden. Log-probabilities are in nats, lengths in tokens, times in
seconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    runtime_checkable,
)  # fmt: skip

import numpy as np

from palaestra.errors import NOT_APPLICABLE, UserError
from palaestra.pictures import (
    FIRST_PLACE,
    PICTURE_MARK,
    Picture,
    by_digest,
    name_pictures,
    pictures_in,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor


C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(cls: C) -> C:
    """A class decorator for nouns: a frozen dataclass with slots, whose fields are given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def stage(cls: C) -> C:
    """A callable part of a recipe: frozen, printable, hashable, overridable by dotted path."""
    return dataclass(frozen=True)(cls)


def need_at_least(part: object, **least: float) -> None:
    """Raises UserError where a field is a number below its least; what follows a schedule is not
    known yet.
    """
    for name, bound in least.items():
        given = getattr(part, name)
        if isinstance(given, int | float) and not given >= bound:
            raise UserError(
                f"{type(part).__name__}: {name} must be at least {bound:g}, not {given}"
            )


# metadata of a stage's field that changes how a number is computed, but not which
EXACT = {"exact": True}


Key: TypeAlias = tuple[int | str, ...]  # a path: (run, step, task, sample, attempt, seat, n, ...)


def seed_of(key: Key) -> int:
    """63 bits of a path. Equal paths give equal seeds on every machine; there is no global random
    state.
    """
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big") >> 1


def rng_of(key: Key) -> np.random.Generator:
    """The counter-based random stream that belongs to a path."""
    return np.random.Generator(np.random.Philox(seed_of(key)))


HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair


@value_class
class Message:
    """One message of a conversation. `author` says who really wrote it; `trained` lets
    demonstrations be learned from. A tool's result has the tool's `name` and the call's `call_id`.

    A half of a surrogate pair, which no tokenizer takes, becomes U+FFFD: tools and environments give
    such text, e.g. file names. Where it has `pictures`, U+FFFC stands in the content at the place of each, in their order;
    ValueError where their number is another. Without, that is a character like others.
    """

    role: str
    content: str
    author: str = "environment"
    trained: bool = False
    hidden: bool = False  # seen when sampling, absent from the training view
    # of a tool's result alone, and left out of the text of all messages, by which tasks are drawn
    name: str = field(default="", repr=False)
    call_id: str = field(default="", repr=False)
    pictures: tuple[Picture, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.content, str) and not self.content.isascii():
            object.__setattr__(self, "content", HALF.sub("\ufffd", self.content))
        if self.pictures and self.content.count(PICTURE_MARK) != len(self.pictures):
            raise ValueError(
                f"a message has {len(self.pictures)} pictures and "
                f"{self.content.count(PICTURE_MARK)} places for them (U+FFFC) in its content"
            )

    @property
    def text(self) -> str:
        """The content, for who reads text alone. Raises UserError where there are pictures in it."""
        if self.pictures:
            raise UserError(
                f"a message holds a picture, and its text alone is read: {self.shown!r}"
            )
        return self.content

    @property
    def shown(self) -> str:
        """The content for the eye, with what each picture is called at its place."""
        return name_pictures(self.content, self.pictures)

    def __repr__(self) -> str:
        """Of a message without pictures as if there were none: tasks are drawn by it."""
        names = [f.name for f in fields(self) if f.repr] + ["pictures"] * bool(self.pictures)
        return f"Message({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@value_class
class Task:
    """A problem. `prompt` is shown to the policy, `answer` and `meta` are what a verifier or world
    needs to check it.
    """

    id: str
    prompt: tuple[Message, ...] = ()
    answer: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    bundle: str = ""  # tasks that travel together, e.g. one pair judged in both orders
    domain: str = ""
    # the data wrote its prompt as messages; what is drawn is named by the rest
    conversational: bool = field(default=False, repr=False)
    instruction: str = field(default="", repr=False)  # which a recipe put behind the question


Moves: TypeAlias = tuple[tuple[int, int], ...]  # (token, version) from which on it is newer
Replies: TypeAlias = tuple[tuple[int, ...], ...]  # token ids of whole turns, end tokens included


@value_class
class Choices:
    """The replies that a turn could be, and how likely they were without that.

    The turn is drawn from the policy p restricted to them, over whole replies c:

        q(c) = p(c) / sum_c' p(c'),  p(c) the product over the tokens of c at the temperature of the sampling

    A token's log-prob is that of q given the tokens before it: the share of p that the replies with
    this token have among all that begin like the turn so far. The log-probs of a turn sum to
    log q(c), and a token without an alternative has 0. (To mask illegal tokens one by one is another
    distribution: it prefers beginnings that lead to nothing likely.)

    `log_mass` is log sum_c p(c) in nats: how likely the unrestricted policy was to say one of them,
    spelled so.
    """

    ids: Replies
    log_mass: float


@value_class
class ExpertChoices:
    """Which experts the routers of a mixture chose for tokens of a sample's context, from `start` on:
    [n, layers, top] numbers in a byte each, `wide` ones in two. `digest` is a checksum of the ids of the
    context up to the last of these tokens. See `models.routing`.
    """

    start: int
    layers: int
    top: int
    wide: bool
    digest: int
    data: bytes = field(repr=False)

    @property
    def token_bytes(self) -> int:
        return self.layers * self.top * (2 if self.wide else 1)

    @property
    def end(self) -> int:
        """The first token that they say nothing of."""
        return self.start + len(self.data) // self.token_bytes


@value_class
class Segment:
    """A run of tokens with one author and turn.

    `trained` says that the tokens carry gradient, which is not the same as sampled. A `hidden`
    segment was in the context when sampling and is absent from the training view (a hint, a
    critique). `logp` is under the distribution really sampled from, in the context really seen;
    None = unknown. `version` is that of the weights that sampled its first token, None = offline
    data, which has no age; `moved` holds (token, version) where newer weights took over.
    """

    ids: tuple[int, ...]
    author: str = "environment"  # "policy" | "environment" | "demonstration" | "forced" | ...
    policy: str = ""  # the learner that owns the gradient
    turn: int = 0
    trained: bool = False
    hidden: bool = False
    logp: tuple[float, ...] | None = None
    temperature: float = 1.0  # of the sampling; the trainer's log-probs are taken at the same one
    version: int | None = None
    moved: Moves = ()
    text: str = ""
    finish: Literal["", "eos", "stop", "length"] = ""
    choices: Choices | None = None  # what it was restricted to; logp is under that restriction
    pictures: tuple[Picture, ...] = ()  # those that ids are places of
    experts: ExpertChoices | None = None  # of tokens up to its last but one, with router replay

    @property
    def versions(self) -> tuple[tuple[int, int], ...]:
        """(number of tokens, version) of each run under the same weights, in order."""
        if self.version is None or not self.ids:
            return ()
        begins = ((0, self.version), *self.moved)
        ends = (*(at for at, _ in self.moved), len(self.ids))
        return tuple((end - at, v) for (at, v), end in zip(begins, ends, strict=True))

    @property
    def replies(self) -> bool:
        """Whether it is part of a reply: it was sampled, or the reply had to begin with it."""
        return self.logp is not None or self.author == "forced"

    def __post_init__(self) -> None:
        if self.logp is not None and len(self.logp) != len(self.ids):
            raise ValueError(f"Segment.logp has {len(self.logp)} values for {len(self.ids)} tokens")


@value_class
class View:
    """What training sees of a row: numpy arrays over its T visible tokens."""

    ids_T: np.ndarray  # int64
    trained_T: np.ndarray  # bool
    logp_T: np.ndarray  # behaviour log-prob, NaN where unknown
    turn_T: np.ndarray  # int64
    temperature_T: np.ndarray


@value_class
class Row:
    """An append-only run of segments: one context that was really seen, by one seat in
    one thread.
    """

    segments: tuple[Segment, ...] = ()
    seat: str = ""
    thread: str = ""
    key: Key = ()  # of its own in the run, once a step has collected it

    def add(self, segment: Segment) -> Row:
        return replace(self, segments=(*self.segments, segment))

    def context(self) -> tuple[int, ...]:
        """All token ids so far, hidden ones included: what the next token is sampled after."""
        return tuple(i for s in self.segments for i in s.ids)

    def view(self, policy: str | None = None) -> View:
        """The training view; with `policy`, only that learner's tokens count as trained."""
        seen = [s for s in self.segments if not s.hidden]
        n, at = sum(len(s.ids) for s in seen), 0
        ids_T, turn_T = np.empty(n, np.int64), np.empty(n, np.int64)
        trained_T, logp_T, temperature_T = np.empty(n, np.bool_), np.empty(n), np.empty(n)
        for s in seen:
            of = slice(at, at := at + len(s.ids))
            ids_T[of], turn_T[of] = s.ids, s.turn
            trained_T[of] = s.trained and policy in (None, s.policy)
            logp_T[of] = np.nan if s.logp is None else s.logp
            temperature_T[of] = s.temperature
            if s.pictures:  # nobody chose their places
                trained_T[of] &= ids_T[of] < FIRST_PLACE
        return View(
            ids_T=ids_T,
            trained_T=trained_T,
            logp_T=logp_T,
            turn_T=turn_T,
            temperature_T=temperature_T,
        )

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All that are in its context, each once, hidden ones included. Raises UserError where the
        pixels of one are missing.
        """
        given = [p for s in self.segments for p in s.pictures]
        return pictures_in(self.context(), by_digest(given)) if given else ()

    @property
    def n_sampled(self) -> int:
        """Tokens a policy sampled, hidden ones included."""
        return sum(len(s.ids) for s in self.segments if s.logp is not None)

    def oldest(self) -> int | None:
        """The oldest policy version among its trained tokens; None = offline data only."""
        versions = [s.version for s in self.segments if s.trained and s.version is not None]
        return min(versions, default=None)


@value_class
class Event:
    """A reward at a token: `token` indexes the row's training view, -1 = the row's last trained
    token.
    """

    row: int
    token: int
    value: float
    part: str = ""


@value_class
class JudgeVote:
    """What one judge said of an episode, once. `score`: None = what it said could not be read."""

    judge: str
    score: float | None
    said: str = ""


# a total reward from here on counts as solved, where the reward does not say what does
SOLVED_TOTAL = 1 - 1e-9


@value_class
class Reward:
    """`total` is what advantages start from; `parts` are named shares or shadows of it; `events`
    place reward in time. `solved`: whether the answer is right, None where nobody said so. Not
    `judged`: the data only say what is to be imitated or preferred; the total measures nothing.

    What a seat was paid is the part `payment(seat)`, where several seats play. `silent` names parts
    that say nothing of this episode and so are left out of the total: they are unknown, while a
    part that is missing otherwise is 0.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    solved: bool | None = None
    silent: tuple[str, ...] = ()
    judged: bool = True
    verdicts: tuple[JudgeVote, ...] = ()  # of judges who were asked; nothing is computed from them
    labels: Mapping[str, str] = field(default_factory=dict)  # texts that a reward gave beside it

    @property
    def payees(self) -> tuple[str, ...]:
        """The seats that were paid, the first one first."""
        return tuple(p.removeprefix(PAY_PREFIX) for p in self.parts if p.startswith(PAY_PREFIX))


PAY_PREFIX = "seat:"


def payment(seat: str) -> str:
    """The part of a reward, and of its events, that a seat was paid."""
    return PAY_PREFIX + seat


@value_class
class Origin:
    """Where a forked episode comes from: the parent's index in its group and the turn
    it left at.
    """

    parent: int
    turn: int


@value_class
class Episode:
    """One attempt at a task. `facts` hold what the world knows and the transcript does not; never
    shown to a policy.

    status: "running" | "finished" | "truncated:WHY" | "error:CAUSE". A muted episode counts in
    statistics, not in the gradient.
    """

    rows: tuple[Row, ...] = ()
    reward: Reward | None = None
    status: str = "running"
    muted: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin | None = None
    # of the clock, from its beginning to its end, waiting for others included; None = not played.
    # Says nothing of what the episode is.
    seconds: float | None = field(default=None, compare=False, repr=False)
    # the prompt that was shown, where it was not that of the task; for those who read the run
    prompt: tuple[Message, ...] = field(default=(), compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """In the statistics: neither an infrastructure error nor without a reward."""
        return not self.status.startswith("error:")

    @property
    def unjudged(self) -> bool:
        """No reward says anything of it, and no infrastructure failed."""
        return self.status == f"error:{NOT_APPLICABLE}"

    @property
    def total(self) -> float:
        if self.reward is None:
            raise ValueError(f"an episode with status {self.status!r} has not been scored")
        return self.reward.total

    @property
    def solved(self) -> bool:
        """Whether its answer is right; where the reward does not say so, whether it is 1 or more.

        Raises ValueError where it has not been scored.
        """
        return self.is_right()

    def is_right(self, right: float | None = None) -> bool:
        """Whether its answer is right: as `solved` says, or where its total reward is `right` or
        more. What tells right from wrong asks this, and takes an argument `right`.
        """
        known = None if self.reward is None else self.reward.solved
        if right is not None or known is None:
            return self.total >= (1.0 if right is None else right) - (1 - SOLVED_TOTAL)
        return known

    @property
    def text(self) -> str:
        """What was sampled, all turns joined."""
        return "".join(s.text for r in self.rows for s in r.segments if s.logp is not None)

    @property
    def n_sampled(self) -> int:
        return sum(r.n_sampled for r in self.rows)

    @property
    def recorded(self) -> bool:
        """Whether nothing of it was sampled and its trained tokens come from data."""
        segments = [s for r in self.rows for s in r.segments]
        return any(s.trained for s in segments) and all(s.logp is None for s in segments)

    def oldest(self) -> int | None:
        """The oldest policy version among its trained tokens; None = offline data only."""
        versions = [version for r in self.rows if (version := r.oldest()) is not None]
        return min(versions, default=None)


@value_class
class Group:
    """Episodes of one task that are compared with one another."""

    task: Task
    episodes: tuple[Episode, ...] = ()

    @property
    def valid(self) -> tuple[Episode, ...]:
        return tuple(e for e in self.episodes if e.ok)


@value_class
class Example:
    """A row with its credit: scalars or [T] arrays by name. What a replay of stale
    credit stores.
    """

    row: Row
    # scalars, [T] arrays, features [1, D]; a "trained" column replaces the row's own mask
    columns: Mapping[str, Any]
    # rows of one unit share a micro-batch (a pair, a coupled group); "" = a unit of its own
    unit: str = ""


MARK_PREFIX = "is:"  # of columns that say which tokens are of a kind, 0 = it is none
# quantities of a model with another tokenizer: the number of each token's span of text, from 1 on, 0 =
# it is in none, and what the model says of that text
SPAN, SPAN_LOGP = "span", "span_logp"
TRACK_PREFIX = "track:"  # of columns whose mean over trained tokens is a number of the step


@value_class
class Batch:
    """Rows as tensors. The counts belong to the whole optimiser batch: a part of a batch keeps
    them.

    Columns are [B], [B, T], of features [B, 1, D], of distributions [B, T, V]. `totals` has the
    trained tokens, and the rows and units that have some, which a column "is:NAME" [B, T] marks;
    under "not:NAME" those of the others.
    """

    columns: Mapping[str, Tensor]  # always ids, trained, length, temperature, behaviour_logp
    unit_B: Tensor
    n_tokens: int
    n_rows: int
    n_units: int
    totals: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(
                f"the batch has no column {name!r}; it has {', '.join(sorted(self.columns))}"
            ) from None

    @property
    def mask(self) -> Tensor:
        """[B, T], 1.0 at trained tokens."""
        return self.columns["trained"]

    def part(self, rows: Tensor) -> Batch:
        """Some rows, cut to their longest; the denominators stay those of the whole."""
        columns = {k: v[rows] for k, v in self.columns.items()}
        longest = int(columns["length"].max())
        columns = {k: v[:, :longest] if v.dim() > 1 else v for k, v in columns.items()}
        return replace(self, columns=columns, unit_B=self.unit_B[rows])

    def only(self, on_BT: Tensor) -> Batch:
        """The same rows with no other trained tokens than those where `on` holds. What columns say
        of the others is 0, so that no NaN of theirs gets into a sum: NaN * 0 is NaN.
        """
        columns = dict(self.columns)
        for name, v in self.columns.items():
            if v.shape[1:2] == on_BT.shape[1:] and v.is_floating_point():
                other = 1.0 if name == "temperature" else 0.0
                columns[name] = v.where(on_BT if v.dim() == 2 else on_BT[..., None], other)
        return replace(self, columns=columns)

    def to(self, device: torch.device) -> Batch:
        return replace(
            self,
            columns={k: v.to(device) for k, v in self.columns.items()},
            unit_B=self.unit_B.to(device),
        )


# ---- worlds and players


@value_class
class Call:
    """A tool call parsed from policy text. `id` is what the policy called it by, where its format
    has such.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@value_class
class Malformed:
    """A call that did not parse: the policy's doing, so an outcome, not a fault."""

    kind: str
    text: str = ""


@value_class
class ToolSchema:
    """A tool as a model is told of it. `parameters` is a JSON schema of its arguments, as text."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'

    def json(self) -> dict[str, Any]:
        """As chat templates take it."""
        about = {"name": self.name, "description": self.description}
        return {"type": "function", "function": about | {"parameters": json.loads(self.parameters)}}


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


# ---- what flows between stages

State: TypeAlias = dict[str, Any]  # plain data, groups and arrays: everything a checkpoint can hold
Groups: TypeAlias = Sequence[Group]
# [group][episode][row]{"ref_logp": [T]}; features [1, D]
Signals: TypeAlias = list[list[list[dict[str, np.ndarray]]]]
# (model, quantity), e.g. ("ref", "logp"): measured once, before any update
Need: TypeAlias = tuple[str, str]

Outputs: TypeAlias = Mapping[
    str, "Tensor"
]  # what a forward pass gives: "logp" [B, T], "entropy" [B, T], "value" [B, T], ...
Metrics: TypeAlias = dict[str, Any]


class Objective(Protocol):
    """A loss. `needs` names the outputs it reads; `couples` says how far rows depend on one
    another.

    The loss and the metrics are sums over rows with the denominators of the whole batch, so that
    parts add up.
    """

    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def couples(self) -> Literal["row", "unit", "batch"]: ...

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]: ...


# ---- chat models


@value_class
class ChatRequest:
    """One call. Equal requests with different seeds are different samples.

    `choices` are words whose log-probability as the start of the reply is wanted, e.g. ("Yes",
    "No"). Raises UserError where a message holds a picture: text alone is sent.
    """

    messages: tuple[Message, ...]
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int = 0
    schema: Mapping[str, Any] | None = None  # JSON schema that the reply is asked to fit
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(m.pictures for m in self.messages):
            raise UserError(
                "a message to a chat model holds a picture, and text alone is sent; use a model of "
                "the run in its place"
            )

    def digest(self, *who: str) -> str:
        """sha256 of the request as it is put to `who`."""
        talk = [(m.role, m.content) for m in self.messages]
        rest = (
            self.temperature,
            self.top_p,
            self.max_tokens,
            self.stop,
            self.seed,
            self.schema,
            self.choices,
        )
        return hashlib.sha256(json.dumps([who, talk, rest], sort_keys=True).encode()).hexdigest()


@value_class
class Reply:
    """What was said. `choices` are log-probabilities in nats; None = the model shows none."""

    text: str
    finish: str = "stop"  # "stop" | "length" | what else the endpoint says
    prompt_tokens: int = 0
    reply_tokens: int = 0
    choices: Mapping[str, float] | None = None


@dataclass
class Meter:
    """Counts of one client. `calls` are requests sent, retries included; `faults` ends of requests
    by cause.
    """

    calls: int = 0
    retries: int = 0
    cached: int = 0
    tokens: int = 0  # of prompts and replies, as the endpoint counts them
    cost: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)

    def spend(self, reply: Reply, prices: tuple[float, float] = (0.0, 0.0)) -> None:
        """Counts a reply; `prices` are of a million tokens of prompts and of replies."""
        self.tokens += reply.prompt_tokens + reply.reply_tokens
        self.cost += (reply.prompt_tokens * prices[0] + reply.reply_tokens * prices[1]) / 1e6

    def count_fault(self, cause: str) -> None:
        self.faults[cause] = self.faults.get(cause, 0) + 1

    def add(self, other: Meter) -> None:
        """Counts what another one did."""
        for f in fields(self):
            if f.name != "faults":
                setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))
        for cause, n in other.faults.items():
            self.faults[cause] = self.faults.get(cause, 0) + n

    def since(self, before: Meter) -> Meter:
        """What was counted after an earlier state of it."""
        faults = {k: n - before.faults.get(k, 0) for k, n in self.faults.items()}
        counts = {
            f.name: getattr(self, f.name) - getattr(before, f.name)
            for f in fields(self)
            if f.name != "faults"
        }
        return Meter(**counts, faults={k: n for k, n in faults.items() if n})

    def numbers(self) -> dict[str, float]:
        """All counts; the faults summed, and by cause."""
        counts = {k: v for k, v in asdict(self).items() if k != "faults"}
        return {
            **counts,
            "faults": sum(self.faults.values()),
            **{f"faults/{k}": n for k, n in self.faults.items()},
        }
