"""The door to effects, and the signatures of the stages, which get at everything outside through
it.

A stage knows this protocol; what stands behind it is `run.context`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
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

from palaestra.attempts import Flight, Ticket, Usage
from palaestra.errors import Fault
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
)  # fmt: skip

if TYPE_CHECKING:
    import numpy as np
    from pydantic import BaseModel
    from torch import Tensor
    from torch.nn import Parameter

    from palaestra.chat.dialect import Chat
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


class Collects(Protocol):
    """What of a recipe a ticket needs."""

    @property
    def collect(self) -> Collect: ...


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


class LearnsEarly(Learns, Protocol):
    """What of a learner an update needs that begins with parts of a batch: it credits them itself."""

    @property
    def credit(self) -> Credit: ...
    @property
    def needs(self) -> tuple[Need, ...]: ...
    @property
    def privileged(self) -> Mapping[str, Rewrite]: ...


RewardFn: TypeAlias = Callable[
    ["Context", Group], Awaitable[Sequence[Reward | Fault]]
]  # one per episode, in order; a fault leaves the episode unscored


MOST_DRAWN = 1 << 20  # training tasks without an end that a seed has to itself


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
    data_seed: int | None = None  # of the order where tasks come to an end; None = the run's seed
    dialect: Dialect | None = None  # of calls; None = as the model's family writes them


class Situation(Protocol):
    """Where a stage is in the run: its problem, seed and step."""

    @property
    def bench(self) -> Bench: ...

    @property
    def seed(self) -> int: ...

    @property
    def step(self) -> int:
        """The step under way, from 0."""
        ...

    def say(self, text: str) -> None:
        """A note to the person at the terminal."""
        ...


class Models(Situation, Protocol):
    """What is asked of models that stand still: what they say, and how long it takes."""

    def model(self, name: str) -> Model:
        """A model by the name of its learner or reference. Raises UserError for an unknown one."""
        ...

    def engine(self, name: str = "policy") -> Engine:
        """What samples from a model."""
        ...

    def snapshots(self, name: str) -> Mapping[str, int]:
        """The models of a reference that keeps snapshots, by name, and the steps that they are of,
        the oldest first; none of another reference.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the policy's tokens."""
        ...

    def measure(
        self, groups: Groups, needs: Sequence[Need], privileged: Mapping[str, Rewrite] = ...
    ) -> Signals:
        """What frozen or unmoved models say of every row, as arrays by name.

        `privileged`: of models that read more of a task than the row does, how its prompt is put.
        """
        ...

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charges the time of a synchronous block to a phase."""
        ...


class Training(Models, Protocol):
    """What moves the weights of a learner."""

    def optimiser(self, name: str, learner: Learns) -> Optimizer:
        """The optimiser of a learner's model, made when it is first asked for."""
        ...

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

    def moving(self, name: str) -> None:
        """To be told before a model's weights change."""
        ...

    def learning(self, state: State, ready: Groups, seen: Groups) -> AbstractContextManager[None]:
        """To be entered where a step learns from its groups. A learner on several ranks tells the
        others here, so that they learn the same.
        """
        ...

    def dump(self, name: str, learner: Learns, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Writes what is needed to see a failed update again."""
        ...


class Rollouts(Situation, Protocol):
    """What attempts are sampled with, and where."""

    def cast(self, model: str, sampling: Sampling) -> dict[str, Player]:
        """Who fills the seats of the bench's world: its own players, and the model in
        all others.
        """
        ...

    @property
    def carrier(self) -> Carrier:
        """Where the run's rollouts happen."""
        ...

    def at(self, recipe: R, step: int, version: int | None = None) -> R:
        """The recipe with its schedules as numbers; what is sampled from here on carries the
        version, that of the step if none is given.
        """
        ...

    def with_bench(self, bench: Bench, players: Mapping[str, Player] | None = None) -> Context:
        """The same run with another problem: its models, engines and clients are shared. `players`:
        of its seats that are not the policy's; None = as before.
        """
        ...

    @property
    def sampling(self) -> bool:
        """Whether a model is sampling, or is asked to."""
        ...

    @property
    def sampled_tokens(self) -> int:
        """Tokens all engines have sampled, evaluations included."""
        ...


class Judging(Situation, Protocol):
    """Who judges an answer, and the language models that are asked for one."""

    def client(self, source: Source) -> Client:
        """The run's one client of a source."""
        ...

    async def verdicts(self, reward: RewardFn, group: Group) -> Sequence[Reward | Fault]:
        """What a reward says of a group's episodes, wherever it is asked. Raises `Fault`."""
        ...

    def judging(self) -> AbstractContextManager[None]:
        """Charges the time in which a reward is awaited to the phase "reward"."""
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


class Recording(Situation, Protocol):
    """What a run keeps of a step: its folder, numbers and episodes."""

    @property
    def out(self) -> Path | None:
        """The run folder; None = the run keeps nothing."""
        ...

    @property
    def folder(self) -> Path:
        """The run folder. Raises ValueError where there is none."""
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


class Programs(Situation, Protocol):
    """What a program does that runs recipes as parts of itself, within a budget."""

    async def train(self, recipe: Runnable) -> Result:
        """Runs a recipe in this context: the driver's steps, evaluations and checkpoints."""
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


class Context(Training, Rollouts, Judging, Recording, Programs, Protocol):
    """What a stage or a program may ask of a run. A stage that asks little names the face that it
    asks, such as `Models`.
    """


@runtime_checkable
class Runnable(Protocol):
    """A recipe, a pipeline, or a program: anything else that runs in a context."""

    async def run(self, ctx: Context) -> Result: ...


# ---- the signatures of the stages

Draw: TypeAlias = Callable[["Context", Key, int, State], tuple[list[Task], State]]
# a draw that has to attempt something first, e.g. to see how hard a task is today
AsyncDraw: TypeAlias = Callable[["Context", Key, int, State], Awaitable[tuple[list[Task], State]]]
Collect: TypeAlias = Callable[["Context", Key, Group], Awaitable[Group]]
# the task with more in its prompt, its answer and data as they are; None = there is nothing to show
Rewrite: TypeAlias = Callable[["Context", Group, "np.random.Generator"], Task | None]
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
