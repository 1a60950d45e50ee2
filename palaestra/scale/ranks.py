"""The other ranks of a sharded learner as processes of a cluster. The driver is rank 0."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import ray
from ray import exceptions

from palaestra.errors import Fault
from palaestra.method import Recipe
from palaestra.scale.cluster import STARTING
from palaestra.scale.learning import (
    CLOSE,
    Follower,
    Order,
    ShardedContext,
    free_address,
    join,
    leave,
    losses,
    sharded_context,
)
from palaestra.scale.worker import WorkerParts

if TYPE_CHECKING:
    from palaestra.run.context import RunContext
    from palaestra.scale.cluster import Cluster


ANSWER = 10.0  # seconds in which a rank says how it is


class Rank:
    """One of the other ranks, as an actor. It ends its part of the group where it fails, so that
    nobody waits for it.
    """

    def __init__(self, parts: WorkerParts, rank: int, ranks: int, address: str, seconds: float):
        self.parts, self.group = parts, (rank, ranks, address)
        self.seconds = seconds
        self.follower: Follower | None = None

    def join(self) -> None:
        """Meets the others, and makes its slices."""
        ctx = self.parts.context()
        mesh = join(*self.group, ctx.model("policy").device.type, self.seconds)
        assert isinstance(self.parts.recipe, Recipe)
        self.follower = Follower(self.parts.recipe, ctx, mesh)

    def about(self) -> tuple[str, int]:
        """Its host and process; it answers also while it learns."""
        return socket.gethostname(), os.getpid()

    def obey(self, order: Order) -> None:
        assert self.follower is not None
        try:
            self.follower.obey(order)
        except BaseException:
            leave()
            raise
        if order == CLOSE:
            leave()


class RayRanks:
    """Sends the driver's orders to the other ranks."""

    def __init__(self, actors: list[Any], abouts: list[tuple[str, int]]):
        """`abouts`: host and process of each."""
        self.actors, self.abouts = actors, abouts
        self.waiting = [actor.join.remote() for actor in actors]

    def __call__(self, order: Order) -> None:
        if order != CLOSE:
            self.check()
        whole = ray.put(order)  # a copy: what the driver goes on to write does not travel
        self.waiting += [actor.obey.remote(whole) for actor in self.actors]
        if order == CLOSE:
            ray.wait(self.waiting, num_returns=len(self.waiting), timeout=30)
            leave()
            for actor in self.actors:
                ray.kill(actor)

    def missing(self) -> str:
        """Names the ranks that do not say how they are in time."""
        looks = [a.about.options(concurrency_group="signs").remote() for a in self.actors]
        here, _ = ray.wait(looks, num_returns=len(looks), timeout=ANSWER)
        lost = [i for i, look in enumerate(looks) if look not in here or not _answers(look)]
        wheres = (f"rank {i + 1} on {self.abouts[i][0]}, process {self.abouts[i][1]}" for i in lost)
        return " and ".join(wheres)

    def check(self) -> None:
        """Raises Fault where a rank has failed."""
        over, self.waiting = ray.wait(self.waiting, num_returns=len(self.waiting), timeout=0)
        for reference in over:
            try:
                ray.get(reference)
            except exceptions.RayTaskError as error:
                raise Fault("learner", f"a rank failed: {error.cause}") from error
            except exceptions.RayError as error:
                raise Fault("learner", f"a rank is lost: {error}") from error


def _answers(look: Any) -> bool:
    try:
        ray.get(look)
    except exceptions.RayError:
        return False
    return True


def sharded(cluster: Cluster, recipe: Recipe, ctx: RunContext) -> ShardedContext:
    """The context of a run whose learner is on `cluster.learners` ranks, of which this process is
    the first. It waits until all of them are there.
    """
    device = ctx.model("policy").device.type
    address = free_address(ray.util.get_node_ip_address() if cluster.address else "127.0.0.1")
    parts = ray.put(WorkerParts.of(recipe, ctx))
    kind = cluster.actor(Rank, gpus=float(device == "cuda"))
    ranks = range(1, cluster.learners)
    actors = [kind.remote(parts, r, cluster.learners, address, cluster.meeting) for r in ranks]
    try:  # a process takes a while to start, and none of it is time in which ranks wait
        abouts = ray.get([actor.about.remote() for actor in actors], timeout=STARTING)
    except exceptions.RayError as error:
        raise Fault("learner", f"a rank could not be started: {error}") from error
    send = RayRanks(actors, abouts)
    ctx.say(f"a learner on {cluster.learners} ranks, of which this process is the first")
    try:
        with losses("the ranks meet", send.missing):
            mesh = join(0, cluster.learners, address, device, cluster.meeting)
    except Fault:
        send.check()  # where one has failed, that is why
        raise
    return sharded_context(ctx, mesh, send, send.missing)
