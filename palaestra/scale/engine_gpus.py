"""GPUs of an engine that takes several in each process that samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestra.engines import select
from palaestra.errors import UserError

if TYPE_CHECKING:
    from palaestra.run.context import RunContext
    from palaestra.scale.cluster import Cluster


def check_engine(cluster: Cluster, ctx: RunContext) -> None:
    """Raises UserError where a process of the cluster has fewer GPUs than its engine takes."""
    needed = select.gpus_of(ctx.engine_name)
    if needed == 1 or all(m.device.type != "cuda" for m in ctx.models.values()):
        return
    for role, count, gpus, key in (
        ("rollout processes", cluster.workers, cluster.gpus, "gpus"),
        ("judges", cluster.judges, cluster.judge_gpus, "judge_gpus"),
        (
            "the learner's process, which samples for evaluations,",
            1,
            cluster.learner_gpus,
            "learner_gpus",
        ),
    ):
        if count and gpus < needed:
            raise UserError(
                f"cluster: --engine {ctx.engine_name} takes {needed} GPUs, and {role} with {key} = "
                f"{gpus:g} would have fewer; set {key} = {needed}"
            )
