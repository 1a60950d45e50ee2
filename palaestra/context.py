"""The door to effects, and the signatures of the stages, which get at everything outside through
it.

A stage knows this protocol; what stands behind it is `run.context`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
    runtime_checkable,
)

from palaestra.errors import Fault, PalaestraError
from palaestra.types import (
    Batch,
    ChatRequest,
    Completion,
    Dialect,
    Example,
    Group,
    Groups,
    Key,
    Meter,
    Metrics,
    Need,
    Objective,
    Outputs,
    Player,
    Reply,
    Result,
    Reward,
    Sampling,
    Signals,
    State,
    Task,
    Tasks,
    World,
    stage,
    value_class,
)  # fmt: skip

if TYPE_CHECKING:
    from pydantic import BaseModel
    from torch import Tensor
    from torch.nn import Parameter

    from palaestra.models.dialect import Chat
    from palaestra.models.master import Optimizer
    from palaestra.models.model import Model

M = TypeVar("M", bound="BaseModel")
R = TypeVar("R")  # a recipe, or another value with schedules in it


@runtime_checkable
class Engine(Protocol):
    """Samples from one model, for any number of coroutines at a time."""

    @property
    def version(self) -> int:
        """Of the weights, as every sampled token carries it. Set anew when they have moved."""
        ...

    @version.setter
    def version(self, version: int) -> None: ...

    @property
    def exact(self) -> bool:
        """Samples come from the trainer's own weights, in float32 arithmetic: there is no mismatch
        to measure.
        """
        ...

    @property
    def dialect(self) -> Chat: ...
    @property
    def busy(self) -> bool: ...
    @property
    def seconds(self) -> float:
        """Spent in this engine so far."""
        ...

    @property
    def sampled_tokens(self) -> int: ...

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling, key: Key) -> Completion:
        """Continues `prompt` with the random stream of `key`. Raises `Fault`."""
        ...

    def forget(self) -> None:
        """To be told that the weights move, before anybody asks again. Memory that held what they
        computed is given back.
        """
        ...

    def close(self) -> None: ...


class Client(Protocol):
    """Whoever answers. A failure of infrastructure is a `Fault`, never an empty reply."""

    @property
    def name(self) -> str: ...
    @property
    def meter(self) -> Meter: ...

    async def chat(self, request: ChatRequest) -> Reply: ...


class Source(Protocol):
    """A client as a setting of a recipe: frozen, printable; `open` gives the client of a run."""

    def open(self, ctx: Context | None = None) -> Client: ...


@value_class
class Ticket:
    """Groups of one attempt that are collected together, and share forward passes with no others.

    It is a value: whoever collects it, wherever and whenever, finds the same groups, since keys,
    weights and schedules are the ticket's. So a lost one is collected again. Only one that is to
    `renew` its weights finds others, as newer ones come under it sooner or later.
    """

    key: Key  # of the attempt, the groups of one draw
    first: int  # place of its first group in the attempt; a group's key is (*key, place)
    starts: tuple[Group, ...]
    step: int  # whose weights sample and whose schedules hold
    renew: bool = False  # newer weights are taken as they come, also under its sequences

    @property
    def name(self) -> str:
        """Its own in the run."""
        return "/".join(map(str, (*self.key, self.first)))


class Collects(Protocol):
    """What of a recipe a ticket needs."""

    @property
    def collect(self) -> Collect: ...


class Flight(ABC):
    """An attempt that is collected elsewhere."""

    @property
    @abstractmethod
    def tickets(self) -> tuple[Ticket, ...]: ...

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether all of its groups are here, or it has failed."""

    @property
    @abstractmethod
    def groups(self) -> list[Group]:
        """In order, once it is over. Raises what collecting them raised."""

    @property
    @abstractmethod
    def sampled_tokens(self) -> int:
        """What it took, once it is over."""

    @abstractmethod
    async def land(self) -> list[Group]:
        """Waits for its groups, as often as it is asked."""

    def split(self) -> tuple[Flight, ...]:
        """The attempt in parts that come each for itself, in order."""
        return (self,)

    async def first_over(self, others: Sequence[Any]) -> None:
        """Waits until it is over, well or not, or one of other flights of its kind."""
        with suppress(PalaestraError):
            await self.land()


# an entry of the queue: an attempt that was collected, is under way, or is to be handed out anew
Attempt: TypeAlias = "list[Group] | Flight | tuple[Ticket, ...]"


@dataclass
class Usage:
    """What was sampled and asked in other processes, in sums over them."""

    sampled_tokens: int = 0
    engine_seconds: float = 0.0
    meters: dict[str, Meter] = field(default_factory=dict)  # by name of the client


class Carrier(Protocol):
    """Where rollouts happen: in this process, or in others."""

    @property
    def waves(self) -> int:
        """Tickets that an attempt is cut into, at most."""
        ...

    @property
    def counts(self) -> Usage:
        """Of other processes, so far."""
        ...

    async def submit(
        self, recipe: Collects, ctx: Context, tickets: tuple[Ticket, ...]
    ) -> list[Group] | Flight:
        """The groups of an attempt, or what will bring them. The weights of `ctx` are those of the
        tickets' step.
        """
        ...

    def numbers(self) -> Metrics:
        """Of what happened since it was last asked."""
        ...

    def close(self) -> None: ...


class Optimises(Protocol):
    """How the weights of a learner move."""

    @property
    def clip_norm(self) -> float: ...
    def build(self, parameters: Sequence[Parameter]) -> Optimizer: ...
    def set(self, optimiser: Optimizer, clock: int) -> None: ...
    def rate(self, clock: int) -> float: ...


class Learns(Protocol):
    """What of a learner its update needs; see `method.Learner`, a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def objective(self) -> Objective: ...
    @property
    def optimiser(self) -> Optimises: ...


RewardFn: TypeAlias = Callable[
    ["Context", Group], Awaitable[Sequence[Reward | Fault]]
]  # one per episode, in order; a fault leaves the episode unscored


@stage
class Bench:
    """What is to be learned: problems, the world they are played in, and the reward (None = the
    world pays).
    """

    name: str
    tasks: Tasks
    world: World
    reward: RewardFn | None = None
    max_tokens: int = 64  # of one turn
    max_turns: int = 64
    # where there is no last task: the number of the first that is measured, and of the first drawn
    first_held_out: int = 0
    first_drawn: int = 0
    dialect: Dialect | None = None  # of calls; None = as the model's family writes them


class Context(Protocol):
    """What a stage or a program may ask of a run: its problem, models, engines, measurements,
    clocks and place.
    """

    @property
    def bench(self) -> Bench: ...
    @property
    def seed(self) -> int: ...
    @property
    def step(self) -> int:
        """The step under way, from 0."""
        ...

    @property
    def out(self) -> Path | None:
        """The run folder; None = the run keeps nothing."""
        ...

    @property
    def folder(self) -> Path:
        """The run folder. Raises ValueError where there is none."""
        ...

    @property
    def sampling(self) -> bool:
        """Whether a model is sampling, or is asked to."""
        ...

    @property
    def sampled_tokens(self) -> int:
        """Tokens all engines have sampled, evaluations included."""
        ...

    @property
    def carrier(self) -> Carrier:
        """Where the run's rollouts happen."""
        ...

    # ---- parts

    def at(self, recipe: R, step: int, version: int | None = None) -> R:
        """The recipe with its schedules as numbers; what is sampled from here on carries the
        version, that of the step if none is given.
        """
        ...

    def model(self, name: str) -> Model:
        """A model by the name of its learner or reference. Raises UserError for an unknown one."""
        ...

    def engine(self, name: str = "policy") -> Engine:
        """What samples from a model."""
        ...

    def cast(self, model: str, sampling: Sampling) -> dict[str, Player]:
        """Who fills the seats of the bench's world: its own players, and the model in
        all others.
        """
        ...

    def snapshots(self, name: str) -> Mapping[str, int]:
        """The models of a reference that keeps snapshots, by name, and the steps that they are of,
        the oldest first; none of another reference.
        """
        ...

    def client(self, source: Source) -> Client:
        """The run's one client of a source."""
        ...

    def with_bench(self, bench: Bench, players: Mapping[str, Player] | None = None) -> Context:
        """The same run with another problem: its models, engines and clients are shared. `players`:
        of its seats that are not the policy's; None = as before.
        """
        ...

    def optimiser(self, name: str, learner: Learns) -> Optimizer:
        """The optimiser of a learner's model, made when it is first asked for."""
        ...

    def moving(self, name: str) -> None:
        """To be told before a model's weights change."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the policy's tokens."""
        ...

    def learning(self, state: State, ready: Groups, seen: Groups) -> AbstractContextManager[None]:
        """To be entered where a step learns from its groups. A learner on several ranks tells the
        others here, so that they learn the same.
        """
        ...

    # ---- measuring

    def forward(self, name: str, needs: Sequence[str]) -> Callable[[Batch], Outputs]:
        """The training forward pass of a model, with gradients."""
        ...

    def backward(
        self, name: str, objective: Objective, batch: Batch, budget: int
    ) -> dict[str, Tensor]:
        """Accumulates the gradient of an objective on a model's weights, in forward passes of at
        most `budget` tokens. Returns the metrics of the whole batch, the loss among them.
        """
        ...

    def measure(self, groups: Groups, needs: Sequence[Need]) -> Signals:
        """What frozen or unmoved models say of every row, as arrays by name."""
        ...

    def describe(self, seen: Groups, ready: Groups) -> Metrics:
        """Numbers about the episodes of a step."""
        ...

    def record(
        self, seen: Groups, examples: Mapping[str, list[Example]], kept: Mapping[Key, str]
    ) -> None:
        """Keeps a step's episodes for the run folder, with their credit, and what became of the
        episode of each row, by its key.
        """
        ...

    def attempted(self, label: str, groups: Groups) -> None:
        """Keeps the attempts of an evaluation for the run folder."""
        ...

    def dump(self, name: str, learner: Learns, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Writes what is needed to see a failed update again."""
        ...

    # ---- clocks

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charges the time of a synchronous block to a phase."""
        ...

    def judging(self) -> AbstractContextManager[None]:
        """Charges the time in which a reward is awaited to the phase "reward"."""
        ...

    # ---- judging

    async def verdicts(self, reward: RewardFn, group: Group) -> Sequence[Reward | Fault]:
        """What a reward says of a group's episodes, wherever it is asked. Raises `Fault`."""
        ...

    # ---- runs

    def say(self, text: str) -> None:
        """A note to the person at the terminal."""
        ...

    async def train(self, recipe: Runnable) -> Result:
        """Runs a recipe in this context: the driver's steps, evaluations and checkpoints."""
        ...

    def key(self, *path: int | str) -> Key:
        """The path of a random stream that belongs to this run, part and seed."""
        ...

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Adds a line to metrics.jsonl, for a program: its steps are counted from 1."""
        ...

    @property
    def budget(self) -> Mapping[str, float]:
        """What the run may spend at most, by meter, where that is limited: "sampled_tokens",
        "steps", "env_steps", "calls", "forwards" or a program's own.
        """
        ...

    def spend(self, meter: str, amount: float = 1) -> None:
        """Counts what a program takes; the sums stand in its summary as "spent"."""
        ...

    async def ask(self, source: Source, question: str | ChatRequest, *, seed: int = 0) -> str:
        """The reply of a language model, counted as one of "calls". Raises `Fault`."""
        ...

    async def ask_for(
        self,
        source: Source,
        question: str | ChatRequest,
        form: type[M],
        *,
        asks: int = 2,
        fallback: M | None = None,
    ) -> M:
        """The reply as an object of a pydantic model; one that does not fit is asked for again, and
        after `asks` the `fallback` stands for it, counted as one of "fallbacks".

        Raises `Fault` "chat-format" where there is no fallback.
        """
        ...

    @overload
    async def once(self, name: str, runnable: Callable[[], Any]) -> Any: ...
    @overload
    async def once(
        self,
        name: str,
        runnable: Runnable,
        model: str | None = None,
        models: Mapping[str, str] | None = None,
        problem: Mapping[str, str] | None = None,
        *,
        shared: bool = False,
        seed: int | None = None,
    ) -> Result: ...
    async def once(
        self,
        name: str,
        runnable: Runnable | Callable[[], Any],
        model: str | None = None,
        models: Mapping[str, str] | None = None,
        problem: Mapping[str, str] | None = None,
        *,
        shared: bool = False,
        seed: int | None = None,
    ) -> Any:
        """A durable part of a longer run: executed in a folder of its own, from another model, on
        another problem (settings: task, or data, test_data, columns) and with another seed if
        given, and not twice; a `shared` one not twice in all cells of experiments.

        A function, which may be a coroutine function, gives plain data: what JSON holds.
        """
        ...


@runtime_checkable
class Runnable(Protocol):
    """A recipe, a pipeline, or a program: anything else that runs in a context."""

    async def run(self, ctx: Context) -> Result: ...


# ---- the signatures of the stages

Draw: TypeAlias = Callable[["Context", Key, int, State], tuple[list[Task], State]]
# a draw that has to attempt something first, e.g. to see how hard a task is today
AsyncDraw: TypeAlias = Callable[["Context", Key, int, State], Awaitable[tuple[list[Task], State]]]
Collect: TypeAlias = Callable[["Context", Key, Group], Awaitable[Group]]
Pool: TypeAlias = Callable[
    ["Context", list[Group], State], Awaitable[tuple[list[Group] | None, list[Group], State]]
]
Credit: TypeAlias = Callable[[Groups, Signals, State], tuple[list[Example], State]]
# plain data: numbers, records of `HeldOut.json`, and mappings of these
Evaluator: TypeAlias = Callable[[Any], Awaitable[Mapping[str, Any]]]
Observe: TypeAlias = Callable[[Groups, Mapping[str, list[Example]], State], State]


class Update(Protocol):
    """Moves the weights of one learner: packs, splits, accumulates, steps the optimiser."""

    def __call__(
        self, ctx: Context, name: str, learner: Learns, batch: Batch, state: State
    ) -> tuple[Metrics, State]: ...
