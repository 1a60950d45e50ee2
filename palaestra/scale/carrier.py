"""Rollouts on Ray: tickets go to processes of their own, on this machine or on others.

The driver is the learner. A thread of it, the pump, hands tickets out and takes answers in all the
time, also while the learner works. The weights of a step are objects of Ray's store, one for each bucket
of tensors, which each machine holds once; a worker takes them between two of its tickets, and begins to
load them when all of them have come.

Exactly once: Ray says of a call that is lost that it may or may not have run, so nothing is built
on that. A ticket's answer is a function of the ticket, and the first one counts; one whose worker
ended or fell silent is handed out again.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import ray
from ray import exceptions

from palaestra.attempts import Flight, Ticket, Usage
from palaestra.context import Collects, Context
from palaestra.errors import Fault
from palaestra.planning.trace import Span, trace_of
from palaestra.scale.cluster import STARTING
from palaestra.scale.judges import AskJudges, JudgeProcess
from palaestra.scale.weights import Arrays, WrongWeights, publish
from palaestra.scale.worker import Brought, Worker, WorkerParts, add_usage
from palaestra.store.checkpoint import write_atomic
from palaestra.types import Group, Metrics

if TYPE_CHECKING:
    from palaestra.run.context import RunContext
    from palaestra.scale.cluster import Cluster

TRACE = "trace.json"  # in the run folder: who did what when, for ui.perfetto.dev
LOOK = 0.2  # seconds between two looks at who answers
MISSED = 2 * LOOK  # the most that counts as silence between two of its own looks
FATAL_KILLS = 2  # workers that may end under a ticket before it is its fault
DEATHS, WITHIN = 3, 600.0  # of one place, in seconds: after these it stays empty
COMES = 600.0  # seconds in which a bucket of weights must have come to the machine that asks for it


@dataclass(frozen=True)
class StoredBucket:
    """Some tensors of a publication as an object of Ray's store."""

    reference: Any

    @classmethod
    def of(cls, arrays: Arrays) -> StoredBucket:
        return cls(ray.put(arrays))

    def __call__(self) -> Arrays:
        """The arrays, on the memory of the store. Raises WrongWeights where they are lost."""
        try:
            return ray.get(self.reference, timeout=COMES)
        except exceptions.RayError as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise WrongWeights(f"some of the published weights did not come ({why})") from None


@dataclass(eq=False)
class Handed:
    """A ticket on its way."""

    ticket: Ticket
    answer: Future[Brought] = field(default_factory=Future)
    kills: int = 0  # workers that ended while they had it


@dataclass(eq=False)
class RayFlight(Flight):
    """An attempt under way."""

    handed: tuple[Handed, ...]
    carrier: RayCarrier
    counted: bool = False

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        return tuple(h.ticket for h in self.handed)

    @property
    def over(self) -> bool:
        return all(h.answer.done() for h in self.handed)

    @property
    def groups(self) -> list[Group]:
        return [group for h in self.handed for group in h.answer.result(0).groups]

    @property
    def sampled_tokens(self) -> int:
        return sum(h.answer.result(0).counts.sampled_tokens for h in self.handed)

    async def land(self) -> list[Group]:
        begin = time.time()
        await asyncio.gather(*(asyncio.wrap_future(h.answer) for h in self.handed))
        self.carrier.waited(begin, time.time())
        if not self.counted:
            # by who waits, not when answers come: the counts of a step are the same in every run
            self.counted = True
            for h in self.handed:
                add_usage(self.carrier.counts, h.answer.result(0).counts)
        return self.groups

    def split(self) -> tuple[RayFlight, ...]:
        return tuple(RayFlight((h,), self.carrier) for h in self.handed)

    async def first_over(self, others: Sequence[RayFlight]) -> None:
        begin, every = time.time(), [self, *others]
        while not any(f.over for f in every):
            answers = [h.answer for f in every for h in f.handed if not h.answer.done()]
            await asyncio.wait(map(asyncio.wrap_future, answers), return_when="FIRST_COMPLETED")
        self.carrier.waited(begin, time.time())


@dataclass(eq=False)
class Place:
    """Where a worker is, or the next one will be."""

    number: int
    role: str = "rollout worker"
    actor: Any = None
    version: int | None = None  # of the weights that it has, or will have before its next ticket
    calls: deque[tuple[Any, Handed]] = field(default_factory=deque)  # in order: (reference, ticket)
    look: Any = None  # reference of the question how it is
    heard: float = 0.0  # by the carrier's clock, when it last said anything
    about: Mapping[str, Any] = field(default_factory=dict)
    deaths: list[float] = field(default_factory=list)  # when workers here have ended
    open: bool = True
    counts: Usage = field(default_factory=Usage)  # of all workers here

    @property
    def name(self) -> str:
        where = f" on {self.about['host']}, process {self.about['pid']}" if self.about else ""
        return f"{self.role} {self.number}{where}"


class RayCarrier:
    """Rollouts in `cluster.workers` processes. Ray must be there; see `cluster.connect`."""

    def __init__(self, cluster: Cluster, recipe: Collects, ctx: RunContext):
        self.cluster, self.ctx = cluster, ctx
        self.learners: Mapping[str, Any] = getattr(recipe, "learners", {})
        self.waves = cluster.waves or cluster.workers
        self.counts = Usage()
        self.metrics_due: dict[str, float] = {}
        self.spans: list[Span] = []  # of the rollout workers; seconds since the epoch
        self.waits: list[tuple[float, float]] = []  # of the learner
        self.asked = time.time()  # when it last told its numbers
        self.versions: dict[int, Any] = {}  # references of weights, by step
        self.waiting: deque[Handed] = deque()
        self.clock = 0.0  # seconds in which it listened; not those in which it stood still itself
        self.looked = time.monotonic()
        self.lock, self.news, self.ended = threading.RLock(), threading.Event(), False
        self.failed: BaseException | None = None
        self.room = cluster.room()
        self.parts = ray.put(WorkerParts.of(recipe, ctx))
        self.judges = [Place(number=i, role="judge") for i in range(cluster.judges)]
        for place in self.judges:
            place.actor = cluster.actor(JudgeProcess, cluster.judge_gpus, restarts=-1).remote(
                self.parts, (place.number, cluster.judges)
            )
            self._expect(place)
        self.places = [Place(number=i) for i in range(cluster.workers)]
        for place in self.places:
            self._start(place)
        self.pump = threading.Thread(target=self._serve, name="rollout pump", daemon=True)
        self.pump.start()
        where = f"the cluster at {cluster.address}" if cluster.address else "this machine"
        more = f", rewards in {cluster.judges}" if cluster.judges else ""
        ctx.say(f"rollouts in {cluster.workers} processes of their own{more} on {where}, under Ray")

    # ---- what a step asks

    async def submit(
        self, recipe: Collects, ctx: Context, tickets: tuple[Ticket, ...]
    ) -> RayFlight:
        with self.lock:
            if self.failed is not None:
                raise self.failed
            for step in {t.step for t in tickets} - self.versions.keys():
                self._publish(step)
                self._renew(step)
            flight = RayFlight(tuple(map(Handed, tickets)), self)
            self.waiting += flight.handed
        self.news.set()
        return flight

    def numbers(self) -> Metrics:
        with self.lock:
            metrics, self.metrics_due = self.metrics_due, {}
            now, before = time.time(), self.asked
            self.asked = now
            roles = {"rollout": len(self.places)}
            roles |= {"judge": len(self.judges)} if self.judges else {}
            busy = dict.fromkeys(roles, 0.0)
            for s in self.spans:
                busy[s.role] += max(0.0, min(now, s.end) - max(before, s.begin))
        return metrics | {f"{k}_busy": x / (now - before) / roles[k] for k, x in busy.items()}

    def close(self) -> None:
        self.ended = True
        self.news.set()
        self.pump.join()
        for place in [*self.places, *self.judges]:
            ray.kill(place.actor)
        self.cluster.give_back(self.room)
        for handed in self._all_handed():
            handed.answer.cancel()
        if self.ctx.out is not None and self.spans:
            write_atomic(self.ctx.out / TRACE, json.dumps(trace_of(self.timeline())))

    def waited(self, begin: float, end: float) -> None:
        """Charges to the driver's clock that it waited for rollouts."""
        self.ctx.seconds["rollout"] += end - begin
        self.waits.append((begin, end))

    def timeline(self) -> list[Span]:
        """What workers and the learner did, in seconds since the first ticket was begun."""
        zero = min([s.begin for s in self.spans] + [b for b, _ in self.waits])
        learned = [
            Span("learner", 0, f"step {n}", before[1], after[0])
            for n, (before, after) in enumerate(pairwise([*self.waits, (time.time(), 0.0)]))
        ]
        every = [*self.spans, *learned]
        return [replace(s, begin=s.begin - zero, end=s.end - zero) for s in every]

    def _publish(self, step: int) -> None:
        """Puts the weights as they are now into the store; older ones that no ticket needs go."""
        begin = time.perf_counter()
        needed = {h.ticket.step for h in self._all_handed()}
        self.versions = {s: r for s, r in self.versions.items() if s in needed}
        self.versions[step] = ray.put(publish(self.ctx, self.learners, step, StoredBucket.of))
        self._tell("publish_seconds", time.perf_counter() - begin)

    def _renew(self, step: int) -> None:
        """Sends new weights to workers whose tickets take them under way."""
        for place in self.places:
            if any(h.ticket.renew for _, h in place.calls):
                to = place.actor.renew.options(concurrency_group="signs")
                to.remote(step, self.versions[step])

    def _all_handed(self) -> list[Handed]:
        return [*self.waiting, *(h for p in self.places for _, h in p.calls)]

    def _tell(self, name: str, more: float) -> None:
        self.metrics_due[name] = self.metrics_due.get(name, 0.0) + more

    # ---- the pump

    def _serve(self) -> None:
        try:
            while not self.ended:
                self.news.clear()
                with self.lock:
                    self._hand_out()
                self._take_in()
        except BaseException as error:  # whoever waits must hear of it
            with self.lock:
                self.failed = error
                for handed in self._all_handed():
                    if not handed.answer.done():
                        handed.answer.set_exception(error)

    def _hand_out(self) -> None:
        """The oldest ticket to the worker that has least to do, as long as one has room."""
        while self.waiting:
            room = [p for p in self.places if p.open and len(p.calls) < self.cluster.depth]
            if not room:
                if not any(p.open for p in self.places):
                    raise Fault("workers", f"all {len(self.places)} rollout workers are lost")
                return
            place, handed = min(room, key=lambda p: len(p.calls)), self.waiting.popleft()
            ticket = handed.ticket
            step = max(self.versions) if ticket.renew else ticket.step
            # a worker may have newer ones than were handed out with its tickets, or not yet
            has = place.version == step and not ticket.renew
            weights = self.versions[step]
            lent = [weights] if self.judges else []  # in a list it stays a reference
            call = place.actor.collect.remote(ticket, step, None if has else weights, lent)
            place.version = step
            place.calls.append((call, handed))

    def _take_in(self) -> None:
        """Waits a moment for answers, and asks those from whom none has come how they are."""
        references = [r for p in self.places for r, _ in p.calls]
        looks = [p.look for p in [*self.places, *self.judges] if p.look is not None]
        if not references and not looks:
            self.news.wait(LOOK)
        else:
            ray.wait([*references, *looks], num_returns=1, timeout=LOOK)
        now = time.monotonic()
        self.clock, self.looked = self.clock + min(now - self.looked, MISSED), now
        with self.lock:
            for place in self.places:
                if place.open:
                    self._hear(place)
            for place in self.judges:
                self._hear_judge(place)

    def _hear(self, place: Place) -> None:
        now = self.clock
        if place.look is not None and _is_here(place.look):
            place.about, place.heard, place.look = _value(place.look) or place.about, now, None
        while place.calls and _is_here(place.calls[0][0]):
            reference, handed = place.calls.popleft()
            place.heard = now
            try:
                answer: Brought = ray.get(reference)
            except exceptions.RayTaskError as error:
                if isinstance(error.cause, WrongWeights):
                    place.calls.appendleft((reference, handed))
                    return self._replace(place, f"had wrong {error.cause}")
                place.version = None
                handed.answer.set_exception(error.cause)
            except exceptions.RayError as error:
                place.calls.appendleft((reference, handed))
                if "creation task" in first_line(error):  # the next one would end as it did
                    raise Fault(
                        "worker", f"{place.name} could not be made: {last_line(error)}"
                    ) from None
                return self._replace(place, f"ended: {first_line(error)}")
            else:
                add_usage(place.counts, answer.counts)
                self._tell("load_seconds", answer.loaded - answer.begin)
                step, name = handed.ticket.step, f"groups from {handed.ticket.first} on"
                span = Span("rollout", place.number, name, answer.begin, answer.end, step)
                self.spans += [
                    span,
                    *(Span("judge", n, name, a, b) for n, a, b in answer.judge_spans),
                ]
                handed.answer.set_result(answer)
        silent, most = now - place.heard, self.cluster.silence if place.about else STARTING
        if place.calls and silent > most:
            return self._replace(place, f"said nothing for {silent:.0f} seconds")
        if place.look is None and silent > self.cluster.silence / 4:
            self._ask(place)

    def _hear_judge(self, place: Place) -> None:
        """Ray makes a judge anew that has ended, and one that stands still is ended."""
        now = self.clock
        if place.look is not None and _is_here(place.look):
            about, place.look = _value(place.look) or {}, None
            if about and place.about and about["pid"] != place.about["pid"]:
                self._tell("judges_lost", 1)
                self.ctx.say(f"{place.name} ended; it is replaced")
            place.about, place.heard = about or place.about, now if about else place.heard
        silent, most = now - place.heard, self.cluster.silence if place.about else STARTING
        if silent > most:
            self._tell("judges_lost", 1)
            doing = place.about.get("phase", "starting")
            self.ctx.say(
                f"{place.name} said nothing for {silent:.0f} seconds {doing}; it is replaced"
            )
            ray.kill(place.actor, no_restart=False)
            self._expect(place)
        elif place.look is None and silent > self.cluster.silence / 4:
            self._ask(place)

    def _start(self, place: Place) -> None:
        actors = [judge.actor for judge in self.judges]
        judges = AskJudges(actors, place.number) if actors else None
        kind = self.cluster.actor(Worker, at=(self.room, place.number))
        part = (place.number, self.cluster.workers)
        place.actor = kind.remote(self.parts, part, judges, place.counts)
        self._expect(place)

    def _expect(self, place: Place) -> None:
        """A process is to come, of which nothing is known."""
        place.version, place.about, place.heard = None, {}, self.clock
        self._ask(place)

    def _ask(self, place: Place) -> None:
        """How the worker is; it answers also while it works."""
        place.look = place.actor.about.options(concurrency_group="signs").remote()

    def _replace(self, place: Place, why: str) -> None:
        """A new worker in the place of one that is lost; its tickets are handed out anew, first."""
        now, lost = time.monotonic(), [h for _, h in place.calls]
        place.calls.clear()
        ray.kill(place.actor)
        self._tell("tickets_lost", len(lost))
        lost[0].kills += 1
        if lost[0].kills >= FATAL_KILLS:
            guilty = lost.pop(0)
            reason = f"{guilty.kills} workers were lost under ticket {guilty.ticket.name}; {why}"
            guilty.answer.set_exception(Fault("worker", reason))
        self.waiting.extendleft(reversed(lost))
        place.deaths = [t for t in place.deaths if now - t < WITHIN] + [now]
        place.open = len(place.deaths) < DEATHS
        doing = place.about.get("phase", "")
        more = "it is replaced" if place.open else "its place stays empty"
        self.ctx.say(f"{place.name} {why}{' ' + doing if doing else ''}; {more}")
        if place.open:
            self._start(place)


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def last_line(error: BaseException) -> str:
    """What the error that stands behind an error of Ray's says."""
    return next(reversed(str(error).strip().splitlines()), type(error).__name__)


def _is_here(reference: Any) -> bool:
    return bool(ray.wait([reference], timeout=0)[0])


def _value(reference: Any) -> Any:
    """What an answer holds; None = its worker is lost."""
    try:
        return ray.get(reference)
    except exceptions.RayError:
        return None
