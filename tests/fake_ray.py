"""Ray in one process: its actors are threads, so that the carrier and the workers as they are can meet delays, deaths
and stops by the thousand.

What goes to an actor and comes back is packed and unpacked as Ray does. An actor that is killed answers nothing any
more, whatever its thread still does; one that is stopped stands still where it is, and does not even say how it is.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from palaestra.scale import carrier, judges
from palaestra.scale.cluster import Cluster
from ray import cloudpickle
from ray.exceptions import ActorDiedError, GetTimeoutError, RayTaskError

NEWS = threading.Condition()
RETRIES = 3  # of a call of an actor that is made anew
KNOWN = {}  # references and actors, which travel by name


def known(number):
    return KNOWN[number]


class Reference:
    """What a call will bring. `future` is that of Ray's own references."""

    def __init__(self):
        self.found = Future()
        KNOWN[id(self)] = self

    def __reduce__(self):
        return known, (id(self),)

    def hex(self):
        return f"{id(self):x}"

    def future(self):
        return self.found

    def bring(self, value=None, error=None):
        if not self.found.done():
            self.found.set_exception(error) if error is not None else self.found.set_result(value)
        with NEWS:
            NEWS.notify_all()


@dataclass(frozen=True)
class Stored:
    """An object in the store, which no two processes share."""

    whole: bytes


def packed(value):
    return cloudpickle.loads(cloudpickle.dumps(value))


def put(value):
    reference = Reference()
    reference.bring(Stored(cloudpickle.dumps(value)))
    return reference


def get(reference, timeout=None):
    """What it brings; of the store a copy for each who asks."""
    try:
        found = reference.found.result(timeout)
        return cloudpickle.loads(found.whole) if isinstance(found, Stored) else found
    except TimeoutError:
        raise GetTimeoutError from None


def wait(references, num_returns=1, timeout=None):
    until = None if timeout is None else time.monotonic() + timeout
    with NEWS:
        while True:
            here = [r for r in references if r.found.done()][:num_returns]
            left = None if until is None else until - time.monotonic()
            if len(here) == num_returns or (left is not None and left <= 0):
                return here, [r for r in references if r not in here]
            NEWS.wait(left)


def kill(actor, no_restart=True):
    actor.die(again=not no_restart)


def values(given):
    return [get(g) if isinstance(g, Reference) else packed(g) for g in given]


class Method:
    def __init__(self, actor, name, sign=False):
        self.actor, self.name, self.sign = actor, name, sign

    def options(self, concurrency_group):
        assert concurrency_group == "signs"
        return Method(self.actor, self.name, sign=True)

    def remote(self, *given):
        return self.actor.call(self.name, given, self.sign)


@dataclass(eq=False)
class Actor:
    """One process. `life` is that of the present thread: what an earlier one brings is not heard."""

    ray: FakeRay
    kind: type
    given: tuple
    again: bool = False  # whether Ray makes it anew where it ends
    life: int = 0
    dead: bool = False
    calls: dict = field(default_factory=dict)  # that are not answered, by reference

    def __post_init__(self):
        self.lock = threading.RLock()
        KNOWN[id(self)] = self
        self.begin()

    def __reduce__(self):
        return known, (id(self),)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Method(self, name)

    def begin(self):
        self.inbox, self.made, self.stopped = queue.SimpleQueue(), threading.Event(), threading.Event()
        self.phase, self.object, self.dead = "starting", None, False
        threading.Thread(target=self.live, args=(self.life, self.inbox), daemon=True).start()

    def call(self, name, given, sign):
        reference = Reference()
        with self.lock:
            if self.dead:
                reference.bring(error=ActorDiedError())
                return reference
            self.calls[reference] = [name, given, sign, 0]
            self.send(reference, name, given, sign)
        return reference

    def send(self, reference, name, given, sign):
        if sign:
            threading.Thread(target=self.sign, args=(self.life, reference, name, given), daemon=True).start()
        else:
            self.inbox.put((reference, name, given))

    def sign(self, life, reference, name, given):
        self.made.wait()
        if life == self.life and not self.stopped.is_set():
            self.answer(life, reference, name, given)

    def live(self, life, inbox):
        self.at("starting", life)
        made = self.kind(*values(self.given))
        if life != self.life:
            return
        self.object = made
        made.at = lambda phase: self.at(phase, life)
        self.phase = "ready"
        self.made.set()
        while (got := inbox.get()) is not None:
            self.answer(life, *got)

    def answer(self, life, reference, name, given):
        value = error = None
        try:
            value = packed(getattr(self.object, name)(*values(given)))
        except Exception as raised:
            error = RayTaskError(name, str(raised), raised, "fake", 1, "here")
        if name in ("collect", "judge"):
            self.at("answering", life)
        with self.lock:
            if life == self.life and not self.dead and self.calls.pop(reference, None):
                reference.bring(value, error)

    def at(self, phase, life):
        """It comes to a phase; there it may be stopped, or killed."""
        if life == self.life and not self.dead:
            self.phase = phase
            self.ray.on_phase(self, phase)
        while self.stopped.is_set() and life == self.life:
            time.sleep(0.01)

    def die(self, again=True):
        """Its process ends. One that is made anew has the calls again that it did not answer."""
        with self.lock:
            self.dead, self.life = True, self.life + 1
            self.inbox.put(None)
            for call in self.calls.values():
                call[3] += 1
            keeps = again and self.again
            for reference in [r for r, call in self.calls.items() if not keeps or call[3] > RETRIES]:
                del self.calls[reference]
                reference.bring(error=ActorDiedError())
            if keeps:
                self.begin()
                for reference, (name, given, sign, _) in list(self.calls.items()):
                    self.send(reference, name, given, sign)


@dataclass
class FakeRay:
    """The module, as the carrier uses it. `on_phase(actor, phase)` is told what each process comes to."""

    on_phase: object = lambda actor, phase: None
    actors: list = field(default_factory=list)  # all that ever were

    put, get, wait, kill = staticmethod(put), staticmethod(get), staticmethod(wait), staticmethod(kill)

    def actor(self, kind, restarts=0):
        """What `Cluster.actor` gives."""

        class Handle:
            @staticmethod
            def remote(*given):
                made = Actor(self, watched(kind), given, again=restarts != 0)
                self.actors.append(made)
                return made

        return Handle

    def alive(self):
        return [a for a in self.actors if not a.dead]


def watched(kind):
    """The class, telling what it comes to."""

    class Watched(kind):
        at = staticmethod(lambda phase: None)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            if name == "phase":
                self.at(value.split()[0])

    Watched.__name__ = kind.__name__
    return Watched


@contextmanager
def fake_ray(monkeypatch, on_phase=lambda actor, phase: None):
    """The carrier on threads for as long as the block takes."""
    fake = FakeRay(on_phase)
    with monkeypatch.context() as patch:
        patch.setattr(carrier, "ray", fake)
        patch.setattr(judges, "ray", fake)
        patch.setattr(Cluster, "connect", lambda self: False)
        patch.setattr(Cluster, "actor", lambda self, kind, gpus=None, restarts=0, at=None: fake.actor(kind, restarts))
        yield fake
