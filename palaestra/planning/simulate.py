"""A discrete-event simulator of the training loop: tickets, rollout workers, a learner, versions.

An attempt is cut into `waves` tickets, which go to the workers in the order of issue; a worker
holds `depth` of them, so that its next one is there when one ends. Attempt s + lag is issued when
step s begins, under version s of the weights; where no more than `concurrent` tickets may be under
way, one is issued as one lands, under the version of that moment. A worker that holds another version loads that of its
next ticket between two tickets. Seconds are given (`Costs`); the schedule is the loop's own. It
needs the extra `ray`, which brings simpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from palaestra.errors import UserError
from palaestra.planning.costs import capacity
from palaestra.planning.trace import Span
from palaestra.types import rng_of, value_class

Share = Literal["space", "time"]


@value_class
class LogNormal:
    """Seconds whose logarithm is normal, none above `cap`: exp(log median + sigma z)."""

    median: float
    sigma: float = 0.0
    cap: float = math.inf

    def draw(self, rng: np.random.Generator) -> float:
        return min(self.cap, self.median * math.exp(self.sigma * rng.standard_normal()))


Seconds = float | LogNormal | Callable[..., float]


@value_class
class Costs:
    """What every piece of work takes, in seconds: a number, a distribution, or a function."""

    ticket: Seconds  # of wave w of attempt k on one worker: (k, w) -> seconds
    learn: Seconds  # of a whole step's batch: (s,) -> seconds
    # the learner's own work after a step, before tickets of the next version are issued
    publish: float = 0.0
    load: float = 0.0  # a worker's, of a version that it does not hold
    send: float = 0.0  # of a ticket to a worker, and of its groups back: each way
    switch: float = 0.0  # share "time" alone: of the devices from sampling to learning, or back


@value_class
class Forecast:
    """What the simulated run came to. Times in seconds, ages in versions, shares from 0 to 1."""

    makespan: float
    steps: Sequence[float]  # from the end of a step to the end of the next
    idle: dict[str, float]  # by role: the share of its workers' time without work
    ages: Sequence[int]  # of the trained tickets, in the order of training
    age_mean: float
    age_max: int
    slowest_tenth: float  # share of the trained tickets that are of the drawn ones' slowest tenth
    cost_ratio: float  # mean seconds of a trained ticket over that of a drawn one
    dropped: float  # share of the tickets taken from the buffer that were thrown away for age
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Issue:
    """A ticket as issued."""

    number: int  # in the order of issue
    version: int
    seconds: float


class Rule(Protocol):
    """Which of the landed tickets may be trained on now, first come first, and which go for age."""

    def __call__(
        self, landed: Sequence[Issue], oldest: int, step: int
    ) -> tuple[list[Issue], list[Issue]]: ...


def in_issue_order(waves: int) -> Rule:
    """The tickets of the step's own attempt: what is trained on does not depend on delays, and no
    age is above the lag.
    """
    return lambda landed, oldest, step: ([t for t in landed if t.number // waves == step], [])


def in_window(size: int) -> Rule:
    """Tickets may overtake inside a window of `size`, anchored at the oldest that is not taken. No
    age is above lag + ceil((size - 1) / waves).
    """
    return lambda landed, oldest, step: ([t for t in landed if t.number < oldest + size], [])


def in_landing_order(eta: int) -> Rule:
    """What is ready, oldest first, without what is older than `eta` versions (AsyncFlow: a row is
    consumed only if the trainer's version - v <= eta). It is fast because it throws the slow away,
    so what is trained on is not what was drawn; here for comparison.
    """

    def rule(landed: Sequence[Issue], oldest: int, step: int) -> tuple[list[Issue], list[Issue]]:
        fit = sorted((t for t in landed if step - t.version <= eta), key=lambda t: t.number)
        return fit, [t for t in landed if step - t.version > eta]

    return rule


ORDERS: dict[str, Callable[[int, int, float], Rule]] = {
    "issue": lambda waves, lag, window: in_issue_order(waves),
    "window": lambda waves, lag, window: in_window(
        max(1, math.floor(window * (lag + 1) * waves + 1e-9))
    ),
    "drop": lambda waves, lag, window: in_landing_order(lag),
}


def simulate(
    costs: Costs,
    *,
    workers: int,
    waves: int,
    steps: int,
    lag: int = 0,
    order: str = "issue",
    window: float = 0.3,
    streaming: bool = False,
    share: Share = "space",
    depth: int = 2,
    loads: int = 1,
    concurrent: int = 0,
    seed: int = 0,
) -> Forecast:
    """The run of `steps` steps, as it would go with these costs.

    Args:
        costs: seconds of every piece of work. Distributions are drawn by (seed, kind, number), so
            the arms of a comparison share their draws.
        workers: rollout workers; the learner is one more role.
        waves: tickets of an attempt.
        steps: the last of them publishes nothing. As in the loop itself, attempts beyond the last
            step are issued too, and what is under way when it ends is cut off.
        lag: attempts that are issued ahead.
        order: "issue", "window" or "drop", the rules of `ORDERS`.
        window: of order "window", the share of the (lag + 1) waves tickets in the buffer.
        streaming: the learner accumulates gradients of tickets as they land; else it waits for the
            whole batch.
        share: "space": rollout and learner have devices of their own; "time": the same ones, which
            asks for lag 0 without streaming.
        depth: tickets at a worker, the one under way included.
        loads: workers that load a version at the same time; 1 = one after another.
        concurrent: tickets that may be under way, C of `costs.capacity`; 0 = as many as the lag
            allows.
        seed: of what is drawn.

    Raises:
        UserError: for an unknown order, a count below its least, a window outside of (0, 1], or
            share "time" with lag or streaming.
    """
    _check(workers, waves, steps, lag, order, window, streaming, share, depth, loads)
    if concurrent < 0:
        raise UserError(f"simulate: concurrent must be at least 0, not {concurrent}")
    cluster = SimulatedLoop(
        costs=costs,
        workers=workers,
        waves=waves,
        lag=lag,
        rule=ORDERS[order](waves, lag, window),
        least=1 if streaming else waves,
        switch=costs.switch if share == "time" else 0.0,
        depth=depth,
        loads=loads,
        concurrent=concurrent or (lag + 1) * waves,
        seed=seed,
    )
    cluster.run(steps)
    return _forecast(cluster, share)


def _check(
    workers: int, waves: int, steps: int, lag: int, order: str, window: float,
    streaming: bool, share: Share, depth: int, loads: int,
) -> None:  # fmt: skip
    least = {"workers": workers, "waves": waves, "steps": steps, "depth": depth, "loads": loads}
    for name, n in least.items():
        if n < 1:
            raise UserError(f"simulate: {name} must be at least 1, not {n}")
    if lag < 0:
        raise UserError(f"simulate: lag must be at least 0, not {lag}")
    if order not in ORDERS:
        raise UserError(f"simulate: no order {order!r}; there are {', '.join(ORDERS)}")
    if not 0 < window <= 1:
        raise UserError(f"simulate: window must be in (0, 1], not {window}")
    if share == "time" and (lag or streaming):
        raise UserError('simulate: share "time" has nothing to overlap: lag 0 without streaming')


@dataclass(kw_only=True)
class SimulatedLoop:
    """A simulated cluster while it runs."""

    costs: Costs
    workers: int
    waves: int
    lag: int
    rule: Rule
    least: int  # tickets that the learner starts on
    switch: float
    depth: int
    loads: int
    concurrent: int
    seed: int
    version: int = 0  # of the weights that tickets are issued under
    spans: list[Span] = field(default_factory=list)
    issued: list[Issue] = field(default_factory=list)
    trained: list[tuple[Issue, int]] = field(default_factory=list)  # and the step that did
    dropped: int = 0
    running: int = 0  # tickets that were issued and have not landed
    ends: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        try:
            import simpy
        except ImportError:
            raise UserError("the simulator needs simpy: pip install 'palaestra[ray]'") from None
        self.clock: Any = simpy.Environment()
        self.inbox: list[Any] = [simpy.Store(self.clock) for _ in range(self.workers)]
        self.loading: Any = simpy.Resource(self.clock, capacity=self.loads)
        self.news: Any = self.clock.event()  # something has landed
        self.places = [i for _ in range(self.depth) for i in range(self.workers)]
        self.waiting: list[Issue] = []
        self.landed: list[Issue] = []  # and not taken, in the order of landing
        self.open: dict[int, Issue] = {}  # not taken, by number
        self.busy: dict[int, tuple[str, float, int]] = {}  # name, begin, version of work under way

    def run(self, steps: int) -> None:
        for i in range(self.workers):
            self.clock.process(self.worker(i))
        self.clock.run(until=self.clock.process(self.driver(steps)))
        now = float(self.clock.now)
        self.spans += [
            Span("rollout", i, name, begin, now, version)
            for i, (name, begin, version) in self.busy.items()
            if begin < now
        ]

    def seconds(self, cost: Seconds, kind: str, *key: int) -> float:
        if isinstance(cost, LogNormal):
            return cost.draw(rng_of((self.seed, kind, *key)))
        return cost(*key) if callable(cost) else cost

    def admit(self) -> None:
        """Issues as many tickets as may be under way, under the weights of this moment."""
        free = capacity(
            self.version,
            len(self.issued) - self.running - self.dropped,
            self.running,
            batch=self.waves,
            eta=self.lag,
            concurrent=self.concurrent,
        )
        for _ in range(free):
            number = len(self.issued)
            seconds = self.seconds(self.costs.ticket, "ticket", *divmod(number, self.waves))
            ticket = Issue(number, self.version, seconds)
            self.issued.append(ticket)
            self.open[number] = ticket
            self.waiting.append(ticket)
        self.running += free
        self.assign()

    def assign(self) -> None:
        while self.places and self.waiting:
            self.clock.process(self.deliver(self.places.pop(0), self.waiting.pop(0)))

    def deliver(self, worker: int, ticket: Issue) -> Generator[Any, Any, None]:
        yield self.clock.timeout(self.costs.send)
        yield self.inbox[worker].put(ticket)

    def worker(self, i: int) -> Generator[Any, Any, None]:
        version = 0  # workers are built with the first weights
        while True:
            ticket = yield self.inbox[i].get()
            if ticket.version != version:
                with self.loading.request() as turn:
                    yield turn
                    yield from self.work(i, "load", self.costs.load, ticket.version)
                version = ticket.version
            name = "{}.{}".format(*divmod(ticket.number, self.waves))
            yield from self.work(i, name, ticket.seconds, version)
            self.clock.process(self.give_back(i, ticket))

    def work(self, i: int, name: str, seconds: float, version: int) -> Generator[Any, Any, None]:
        begin = float(self.clock.now)
        self.busy[i] = name, begin, version
        yield self.clock.timeout(seconds)
        del self.busy[i]
        if seconds:
            self.spans.append(Span("rollout", i, name, begin, float(self.clock.now), version))

    def give_back(self, worker: int, ticket: Issue) -> Generator[Any, Any, None]:
        yield self.clock.timeout(self.costs.send)
        self.landed.append(ticket)
        self.running -= 1
        self.places.append(worker)
        self.admit()
        self.news.succeed()
        self.news = self.clock.event()

    def take(self, n: int, step: int) -> list[Issue]:
        """At most `n` tickets that the rule lets through; what it drops is drawn anew."""
        taken: list[Issue] = []
        while len(taken) < n:
            fit, old = self.rule(self.landed, min(self.open, default=0), step)
            for ticket in (gone := [*fit[: n - len(taken)], *old]):
                self.landed.remove(ticket)
                del self.open[ticket.number]
            taken += gone[: len(gone) - len(old)]
            self.dropped += len(old)
            self.admit()
            if len(gone) == len(old):
                break
        return taken

    def driver(self, steps: int) -> Generator[Any, Any, None]:
        for s in range(steps):
            self.version = s
            self.admit()
            held: list[Issue] = []
            left = self.waves
            while left:
                held += self.take(left - len(held), s)
                if len(held) < min(self.least, left):
                    yield self.news
                    continue
                yield self.clock.timeout(self.switch)
                share = len(held) / self.waves
                yield from self.learn(f"learn {s}", share * self.learning(s), s)
                self.trained += [(t, s) for t in held]
                left -= len(held)
                held = []
            if s < steps - 1:
                yield self.clock.timeout(self.switch)
                yield from self.learn(f"publish {s + 1}", self.costs.publish, s + 1)
            self.ends.append(float(self.clock.now))

    def learning(self, step: int) -> float:
        return self.seconds(self.costs.learn, "learn", step)

    def learn(self, name: str, seconds: float, version: int) -> Generator[Any, Any, None]:
        begin = float(self.clock.now)
        yield self.clock.timeout(seconds)
        if seconds:
            self.spans.append(Span("learner", 0, name, begin, float(self.clock.now), version))


def _forecast(cluster: SimulatedLoop, share: Share) -> Forecast:
    makespan = cluster.ends[-1]
    work = {role: sum(s.end - s.begin for s in cluster.spans if s.role == role) for role in ROLES}
    sampling, learning = work["rollout"] / cluster.workers / makespan, work["learner"] / makespan
    parts = {"rollout": sampling, "learner": learning}
    busy = parts if share == "space" else {"devices": sampling + learning}
    ages = [step - ticket.version for ticket, step in cluster.trained]
    drawn_N = np.array([t.seconds for t in cluster.issued])
    trained_N = np.array([t.seconds for t, _ in cluster.trained])
    return Forecast(
        makespan=makespan,
        steps=[float(x) for x in np.diff([0.0, *cluster.ends])],
        idle={role: max(0.0, 1 - part) for role, part in busy.items()},  # not -1e-15
        ages=ages,
        age_mean=float(np.mean(ages)),
        age_max=max(ages),
        slowest_tenth=float(np.mean(trained_N > np.quantile(drawn_N, 0.9))),
        cost_ratio=float(trained_N.mean() / drawn_N.mean()) if drawn_N.any() else 1.0,
        dropped=cluster.dropped / (cluster.dropped + len(ages)),
        spans=sorted(cluster.spans, key=lambda s: (s.begin, s.role, s.worker)),
    )


ROLES = ("rollout", "learner")
