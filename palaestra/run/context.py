"""What a step reaches the outside through: models, engines, measurements, clocks. One object a run;
it holds no method.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

from palaestra.abilities import HasBudget, OffersTools
from palaestra.context import (
    Bench,
    Carrier,
    Client,
    Collects,
    Engine,
    Learns,
    RewardFn,
    Runnable,
    Source,
)
from palaestra.engines import select
from palaestra.errors import Fault, UserError
from palaestra.markdown import escape_controls
from palaestra.models.forward import forward
from palaestra.models.load import Model, frozen_copy, load, load_heads
from palaestra.models.lora import LoRA
from palaestra.models.master import Optimizer
from palaestra.models.threads import use_threads
from palaestra.rollout.player import EnginePlayer
from palaestra.rollout.tickets import InProcess
from palaestra.run import programs
from palaestra.run.cases import dump_case
from palaestra.run.checks import check_bench
from palaestra.run.clocks import Clocks
from palaestra.run.describe import describe
from palaestra.run.measuring import measure
from palaestra.run.mismatch import mismatch
from palaestra.run.moves import TokenMoves, trace_of
from palaestra.run.plan import PartRun, Plan
from palaestra.schedule import resolve
from palaestra.store.rollouts import NOTHING
from palaestra.trackers.feed import Trackers
from palaestra.types import (  # fmt: skip
    Batch,
    ChatRequest,
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
    Result,
    Reward,
    Sampling,
    Signals,
    State,
)
from palaestra.update import backward

if TYPE_CHECKING:
    from pydantic import BaseModel

M = TypeVar("M", bound="BaseModel")
R = TypeVar("R")  # a recipe, or another value with schedules in it
Opened: TypeAlias = tuple[Bench, Mapping[str, Player]]
Asks: TypeAlias = Callable[["RunContext", RewardFn, Group], Awaitable[Sequence[Reward | Fault]]]
# of a user: takes the number of a step and its metrics; True = the run ends after it
OnStep: TypeAlias = Callable[[int, Metrics], object]
Drive: TypeAlias = Callable[[Any, "RunContext"], Awaitable[Result]]


@dataclass
class RunContext:
    """A run's door to effects. `models` holds the trainable ones by learner name and frozen ones by
    reference name.
    """

    bench: Bench
    seed: int
    models: dict[str, Model]
    drive: Drive  # runs a recipe here: `run.driver.train`
    out: Path | None = None
    players: Mapping[str, Player] = field(default_factory=dict)  # seats that are not the policy's
    plan: Plan = field(default_factory=Plan)
    talk: bool = False  # progress and notes on standard error
    resumed: bool = False  # the user expects to go on from a checkpoint
    engine_name: str = "own"  # what samples; see `engines`
    slots: int = 256  # sequences that an engine runs at a time
    cache_mb: int = 4096  # of an engine's keys and values
    # adapters of the models that parts load; None = all weights are trained
    lora: LoRA | None = None
    # the bench of a part's own problem, from its settings
    open_problem: Callable[[Mapping[str, str]], Opened] | None = None
    # and what the numbers on it depend on; see `origin.conditions`
    problem_conditions: Callable[[Mapping[str, str]], dict[str, str]] = dict
    # where a recipe's rollouts happen, from its first step on
    open_carrier: Callable[[Collects, RunContext], Carrier] = lambda recipe, ctx: InProcess()
    planned: Plan | None = None  # the plan before the data left something out of it
    trackers: Trackers = field(default_factory=Trackers)  # the parts of a pipeline share them
    place: Key = ()  # names of the parts that this one lies in
    # the folder of a part that cells share; None = each run has its own
    share: Callable[[PartRun], Path] | None = None
    on_step: OnStep | None = None

    def __post_init__(self) -> None:
        self.engines: dict[str, Engine] = {}
        self.optimisers: dict[str, Optimizer] = {}
        self.clients: dict[Source, Client] = {}
        self.versions: dict[str, int] = {}
        # of references that move: the steps that their models are of, the oldest first
        self.held: dict[str, dict[str, int]] = {}
        self.clocks = Clocks(self.on_gpu, lambda: self.engine_seconds)
        self.seconds = self.clocks.seconds
        self.step = 0
        self.seen: list[Group] = []
        self.trace = NOTHING
        self.moves: dict[str, TokenMoves] = {}  # of the step under way, by learner
        # of the evaluation under way, by their labels; None = nobody keeps them
        self.attempts: dict[str, list[Group]] | None = None
        self.spent: dict[str, float] = {}  # by meter
        self.lines: programs.ProgramLog | None = None
        self.carrier: Carrier = InProcess()
        # of budgets: which of how many, where processes share them
        self.part: tuple[int, int] = (0, 1)
        self.ask_elsewhere: Asks | None = None  # rewards in other processes; None = in this one
        use_threads(self.models.values())

    # ---- parts

    def at(self, recipe: R, step: int, version: int | None = None) -> R:
        """The recipe with its schedules as numbers. Tokens sampled from here on carry the version,
        that of the step if none is given.
        """
        self.step = step
        self.renew(step if version is None else version)
        return resolve(recipe, step)

    def renew(self, version: int) -> None:
        """The weights are those of a version. What is under way goes on with them."""
        for model in self.models:
            self.versions[model] = version
        for name, engine in self.engines.items():
            engine.version = self.versions[name]
            engine.forget()  # so a run that goes on from here finds the same

    def model(self, name: str) -> Model:
        try:
            return self.models[name]
        except KeyError:
            raise UserError(
                f"no model {name!r} in this run; there are {', '.join(self.models)}"
            ) from None

    def engine(self, name: str = "policy") -> Engine:
        if name not in self.engines:
            self.engines[name] = select.build(
                self.engine_name, self.model(name), slots=self.slots, cache_mb=self.cache_mb
            )
            self.engines[name].version = self.versions.get(name, 0)
        return self.engines[name]

    def cast(self, model: str, sampling: Sampling) -> dict[str, Player]:
        """Who fills the seats of the bench's world: its own players, and the model in
        all others.
        """
        player: Player = EnginePlayer(
            engine=self.engine(model), sampling=sampling, policy=model, dialect=self.bench.dialect
        )
        return {seat: self.players.get(seat, player) for seat in self.bench.world.seats}

    def with_bench(self, bench: Bench, players: Mapping[str, Player] | None = None) -> RunContext:
        """This context with another problem: the same models, engines and clients. `players`: of
        its seats that are not the policy's; None = as before.
        """
        other = copy.copy(self)
        other.bench = bench
        other.players = self.players if players is None else players
        return other

    def client(self, source: Source) -> Client:
        """The run's one client of a source: its budget, its cache and its counts are the run's."""
        if source not in self.clients:
            client = self.clients[source] = source.open(self)
            if isinstance(client, HasBudget):
                client.take_part(
                    *self.part, lambda: self.carrier.counts.meters.get(client.name) or Meter()
                )
        return self.clients[source]

    def snapshots(self, name: str) -> Mapping[str, int]:
        """The models of a reference that keeps snapshots, and the steps that they are of."""
        return self.held.get(name, {})

    def reference(self, name: str, source: str) -> None:
        """Adds a frozen model: a copy of the run's model `source` as it is at the call, else the
        one of that name or folder.
        """
        self.models[name] = frozen_copy(self.models.get(source) or self.load(source))
        use_threads(self.models.values())

    def load(self, name: str, lora: LoRA | None = None) -> Model:
        """A further model, of the policy's dtype and on its device."""
        start = self.model("policy")
        return load(
            name, dtype=str(start.dtype).removeprefix("torch."), device=start.device, lora=lora
        )

    def optimiser(self, name: str, learner: Learns) -> Optimizer:
        if name not in self.optimisers:
            self.optimisers[name] = learner.optimiser.build(self.model(name).trainable())
        return self.optimisers[name]

    def whole(self, name: str) -> Model:
        """A model with all its present weights in this process, as files hold it."""
        return self.model(name)

    def optimiser_state(self, name: str) -> dict[str, Any]:
        """What an optimiser needs to go on, whole, as files hold it."""
        return self.optimisers[name].state_dict()

    def restore(self, name: str, learner: Learns, folder: Path, optimiser: dict[str, Any]) -> None:
        """Sets a learner's weights, heads and optimiser to those of a checkpoint."""
        load_heads(self.model(name), folder)
        self.model(name).load_weights(folder)
        self.optimiser(name, learner).load_state_dict(optimiser)

    def moving(self, name: str) -> None:
        """To be told before a model's weights change: its engine forgets what it knows of the old
        ones.
        """
        if name in self.engines:
            self.engines[name].forget()

    def learning(self, state: State, ready: Groups, seen: Groups) -> AbstractContextManager[None]:
        """Engines give back the memory that they can. One process has nobody else to tell."""
        for engine in self.engines.values():
            if isinstance(engine, select.Rests):
                engine.rest()
        return nullcontext()

    def close(self) -> None:
        """Ends what engines and the world run elsewhere."""
        for engine in self.engines.values():
            engine.close()
        if isinstance(self.bench.world, OffersTools):
            self.bench.world.close()

    # ---- measuring

    def forward(self, name: str, needs: Sequence[str]) -> Callable[[Batch], Outputs]:
        """The training forward pass of a model, timed."""
        model = self.model(name)

        def run(batch: Batch) -> Outputs:
            with self.phase("forward"):
                return forward(model, batch, needs)

        return run

    def backward(
        self, name: str, objective: Objective, batch: Batch, budget: int
    ) -> dict[str, Tensor]:
        """`update.backward` on a model of this process; what moves each token is kept."""
        model, run = self.model(name), self.forward(name, objective.needs)
        run = self.moves.setdefault(name, TokenMoves()).watch(run)
        return backward(run, objective, batch.to(model.device), budget, model.packs)

    def outputs(
        self, name: str, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> Iterable[dict[str, np.ndarray]]:
        """What a model says of each part of a batch, in order, as float64 arrays."""
        run, device = self.forward(name, needs), self.model(name).device
        for rows in parts:
            out = run(batch.part(rows).to(device))
            yield {k: v.double().cpu().numpy() for k, v in out.items()}

    def measure(self, groups: Groups, needs: Sequence[Need]) -> Signals:
        return measure(self, groups, needs)

    @property
    def learners_engines(self) -> dict[str, Engine]:
        """The engines that sample from what is trained."""
        return {n: e for n, e in self.engines.items() if n in self.optimisers}

    def describe(self, seen: Groups, ready: Groups) -> Metrics:
        engines = self.learners_engines
        chats = {
            f"chat/{name}/{k}": v
            for name, meter in self.meters().items()
            for k, v in meter.numbers().items()
        }
        gaps = mismatch(self, engines, len(self.optimisers), ready)
        return describe(seen, ready, self.bench.name) | gaps | chats | self.carrier.numbers()

    def meters(self) -> dict[str, Meter]:
        """What was asked of each client of the run, also by other processes."""
        found = {name: copy.deepcopy(m) for name, m in self.carrier.counts.meters.items()}
        for client in self.clients.values():
            found.setdefault(client.name, Meter()).add(client.meter)
        return found

    # ---- clocks

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charges the time of a synchronous block to a phase, without what inner phases take."""
        return self.clocks.phase(name)

    async def verdicts(self, reward: RewardFn, group: Group) -> Sequence[Reward | Fault]:
        """What a reward says of a group's episodes, in this process or where `ask_elsewhere` asks."""
        if self.ask_elsewhere is None:
            return await reward(self, group)
        return await self.ask_elsewhere(self, reward, group)

    def judging(self) -> AbstractContextManager[None]:
        """Charges to "reward" the time in which at least one reward is awaited, without what
        engines take meanwhile.
        """
        return self.clocks.judging()

    def on_gpu(self) -> bool:
        """Whether some of its models are."""
        return any(m.device.type == "cuda" for m in self.models.values())

    @property
    def sampling(self) -> bool:
        """Whether a model is sampling, or is asked to."""
        return any(e.busy for e in self.engines.values())

    @property
    def sampled_tokens(self) -> int:
        """Tokens all engines have sampled, evaluations and other processes included."""
        engines = tuple(self.engines.values())  # another thread may ask while one is made
        return sum(e.sampled_tokens for e in engines) + self.carrier.counts.sampled_tokens

    @property
    def engine_seconds(self) -> float:
        """Of this process."""
        return sum(e.seconds for e in self.engines.values())

    # ---- the run's place

    @property
    def folder(self) -> Path:
        if self.out is None:
            raise ValueError("this run has no folder")
        return self.out

    def say(self, text: str) -> None:
        """A note to the person at the terminal."""
        if self.talk:
            # escaped here too: beside a live display it does not pass the program's stream
            print(escape_controls(text), file=sys.stderr, flush=True)

    def decode(self, ids: Sequence[int]) -> str:
        return self.engine().dialect.decode(ids)

    async def train(self, recipe: Runnable) -> Result:
        """Runs a recipe in this context."""
        return await self.drive(recipe, self)

    def key(self, *path: int | str) -> Key:
        """The path of a random stream that belongs to this run, part and seed."""
        return (self.seed, *self.place, *path)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Adds a line to metrics.jsonl, for a program: its steps are counted from 1."""
        self.lines = self.lines or programs.ProgramLog(self)
        self.lines.add(metrics)

    @property
    def budget(self) -> Mapping[str, float]:
        """What the run may spend at most, by meter, where that is limited."""
        tokens = {} if self.plan.tokens is None else {"sampled_tokens": self.plan.tokens}
        steps = {} if self.plan.steps is None else {"steps": self.plan.steps}
        return {**tokens, **steps, **self.plan.budget}

    def spend(self, meter: str, amount: float = 1) -> None:
        """Counts what a program takes; the sums stand in its summary as "spent"."""
        self.spent[meter] = self.spent.get(meter, 0) + amount

    async def ask(self, source: Source, question: str | ChatRequest, *, seed: int = 0) -> str:
        """The reply of a language model, counted as one of "calls". Raises `Fault`."""
        return await programs.ask(self, source, question, seed=seed)

    async def ask_for(
        self,
        source: Source,
        question: str | ChatRequest,
        form: type[M],
        *,
        asks: int = 2,
        fallback: M | None = None,
    ) -> M:
        """The reply as an object of a pydantic model, see `Context.ask_for`."""
        return await programs.ask_for(self, source, question, form, asks=asks, fallback=fallback)

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
        """A durable part of a longer run, see `Context.once`.

        `models` are paths of frozen models that the part finds by name, `problem` the settings of
        a problem of its own.
        """
        if not isinstance(runnable, Runnable):
            return await programs.once(self, name, runnable)
        part = PartRun(
            name=name,
            runnable=runnable,
            model=model,
            models=dict(models or {}),
            problem=dict(problem or {}),
            shared=shared,
            seed=seed,
        )
        return await programs.run_part(self, part)

    async def change_problem(self, problem: Mapping[str, str]) -> None:
        """Goes on with a problem of its own, as this run was planned before its data was known."""
        if self.open_problem is None:
            raise UserError(
                f"{programs.named_problem(problem)}: this run's problem is given; leave the part's data or "
                "task out"
            )
        bench, players = self.open_problem(problem)
        own = self.bench
        bench = replace(bench, first_held_out=own.first_held_out, first_drawn=own.first_drawn)
        if bench == own:
            return
        self.bench, self.players = bench, players
        self.plan = self.planned or self.plan
        labels = {**self.plan.labels, "task": programs.named_problem(problem)}
        depends = {**self.plan.conditions, "problem": self.problem_conditions(problem)}
        self.plan = replace(self.plan, labels=labels, conditions=depends)
        await check_bench(self)

    def record(
        self, seen: Groups, examples: Mapping[str, list[Example]], kept: Mapping[Key, str]
    ) -> None:
        """Keeps the step's episodes and what it made of them for the run folder."""
        self.seen = list(seen)
        self.trace = trace_of(seen, examples, kept, self.moves)
        self.moves.clear()

    def attempted(self, label: str, groups: Groups) -> None:
        """Keeps the attempts of an evaluation for the run folder."""
        if self.attempts is not None:
            self.attempts.setdefault(label, []).extend(groups)

    def dump(self, name: str, learner: Learns, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Writes what is needed to see a failed update again."""
        if self.out is not None:
            dump_case(
                self.out / "cases" / f"step-{self.step}-{name}",
                self.whole(name),
                learner,
                batch,
                metrics,
            )
