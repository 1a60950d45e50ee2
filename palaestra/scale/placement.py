"""Where the parts of a run are: rollouts, and the ranks of its learner."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from palaestra.context import Runnable
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.rollout.tickets import InProcess
from palaestra.scale.cluster import Cluster
from palaestra.scale.refusals import refuse
from palaestra.types import value_class

if TYPE_CHECKING:
    from palaestra.context import Carrier, Collects
    from palaestra.run.context import RunContext
    from palaestra.types import Result


@value_class
class OnCluster:
    """A program: a recipe or a pipeline whose rollouts happen in processes of their own. It is for
    arms of experiments; a run says `--cluster`. Ray is imported when it runs.

    Raises UserError for a cluster with several learners, and, when it runs, without Ray.
    """

    runnable: Runnable
    cluster: Cluster = Cluster()

    def __post_init__(self) -> None:
        if self.cluster.learners > 1:
            raise UserError("OnCluster places rollouts; for several learners use --cluster FILE")

    async def run(self, ctx: Any) -> Result:
        """In a context of `run.context`, which knows where rollouts may happen."""
        with self.cluster.connected():
            return await self.runnable.run(place(self.cluster, self.runnable, ctx))


def place(cluster: Cluster, recipe: Runnable, ctx: RunContext) -> RunContext:
    """The context of a run whose rollouts, and ranks of the learner, are where `cluster` says.

    Raises UserError for what can never work there, before any process is started.
    """
    refuse(cluster, recipe, ctx)
    held = join(cluster, ctx) if cluster.processes else None
    ctx.open_carrier = partial(open_carrier, cluster, held=held)
    if cluster.learners == 1:
        return ctx
    assert isinstance(recipe, Recipe)  # `refuse` refuses several ranks of anything else
    from palaestra.scale.ranks import sharded

    return sharded(cluster, recipe, ctx)


def join(cluster: Cluster, ctx: RunContext) -> Any:
    """Finds or starts the cluster. What keeps the learner's GPU for it; None where it has none.

    Raises UserError where there is no room for the processes.
    """
    on_gpu = ctx.on_gpu()
    cluster.connect()
    cluster.check_room(on_gpu)
    if not on_gpu or not cluster.learner_gpus:
        return None
    from palaestra.scale.own_gpu import gpu_here, hold

    return hold(cluster.learner_gpus, gpu_here())


def open_carrier(cluster: Cluster, recipe: Collects, ctx: RunContext, held: Any = None) -> Carrier:
    """Where a recipe's rollouts happen; the models of `ctx` are those that it starts with.

    `held`: what keeps the learner's GPU for it, as long as this can be called.
    """
    if cluster.workers == 0:
        return InProcess(cluster.waves or 1)
    cluster.connect()  # where nobody has
    from palaestra.scale.carrier import RayCarrier

    return RayCarrier(cluster, recipe, ctx)
