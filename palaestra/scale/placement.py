"""Where the parts of a run are: rollouts, and the ranks of its learner."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from palaestra.context import Runnable
from palaestra.errors import UserError
from palaestra.rollout.tickets import InProcess
from palaestra.scale.cluster import Cluster
from palaestra.step import Recipe
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


def place(cluster: Cluster, recipe: Any, ctx: RunContext) -> RunContext:
    """The context of a run whose rollouts, and ranks of the learner, are where `cluster` says.

    Raises UserError for a program or a pipeline whose learner is to be on several ranks.
    """
    ctx.open_carrier = partial(open_carrier, cluster)
    if cluster.learners == 1:
        return ctx
    if not isinstance(recipe, Recipe):
        raise UserError(
            "learners: several ranks learn one recipe; run the parts of a pipeline one by one, each "
            "from the model of the one before"
        )
    cluster.connect()
    from palaestra.scale.ranks import sharded

    return sharded(cluster, recipe, ctx)


def open_carrier(cluster: Cluster, recipe: Collects, ctx: RunContext) -> Carrier:
    """Where a recipe's rollouts happen; the models of `ctx` are those that it starts with."""
    if cluster.workers == 0:
        return InProcess(cluster.waves or 1)
    cluster.connect()
    from palaestra.scale.carrier import RayCarrier

    return RayCarrier(cluster, recipe, ctx)
