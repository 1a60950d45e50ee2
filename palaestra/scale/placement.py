"""Where the parts of a run are: rollouts, and the ranks of its learner."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from palaestra.errors import UserError
from palaestra.rollout.tickets import InProcess
from palaestra.scale.cluster import Cluster
from palaestra.step import Recipe

if TYPE_CHECKING:
    from palaestra.context import Carrier, Collects
    from palaestra.run.context import RunContext


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
