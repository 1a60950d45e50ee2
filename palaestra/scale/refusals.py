"""Settings of a cluster that can never work, refused before a process is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from palaestra.abilities import BeginsEarly
from palaestra.context import Runnable
from palaestra.engines import select
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.models.quantised import is_quantised
from palaestra.rollout.cast import Moving
from palaestra.update import AdamW, AdamW8bit

if TYPE_CHECKING:
    from palaestra.run.context import RunContext
    from palaestra.scale.cluster import Cluster


@runtime_checkable
class OneProcess(Protocol):
    """An update that works in one process alone, and says why."""

    @property
    def one_process_reason(self) -> str: ...


def refuse(cluster: Cluster, runnable: Runnable, ctx: RunContext) -> None:
    """Raises UserError, of one line, for what would fail only when processes are there."""
    _refuse_address(cluster)
    _refuse_without_gpus(cluster, ctx)
    _refuse_few_gpus(cluster, ctx)
    if cluster.learners > 1:
        _refuse_ranks(runnable, ctx)
    if isinstance(runnable, Recipe):
        _refuse_schedule(cluster, runnable)


def _refuse_address(cluster: Cluster) -> None:
    if "://" in cluster.address:
        raise UserError(
            f"cluster: address = {cluster.address!r} is a way in from outside, and the learner is "
            "one of the cluster's machines: start the run there with `ray job submit --working-dir . "
            '-- palaestra train ...`, with address = "auto"'
        )


def _refuse_without_gpus(cluster: Cluster, ctx: RunContext) -> None:
    """Models travel to processes as they are, and Ray shows a GPU to those alone that ask for it."""
    on_gpu = sorted(n for n, m in ctx.models.items() if m.device.type == "cuda")
    if not on_gpu:
        return
    for role, count, gpus, key in (
        ("rollout processes", cluster.workers, cluster.gpus, "gpus"),
        ("judges", cluster.judges, cluster.judge_gpus, "judge_gpus"),
    ):
        if count and not gpus:
            raise UserError(
                f"cluster: model {on_gpu[0]!r} is on a GPU, and {role} have none; give them {key} = "
                "1, or a share such as 0.5, or train with --device cpu"
            )


def _refuse_few_gpus(cluster: Cluster, ctx: RunContext) -> None:
    """An engine that takes several GPUs needs them in each process that samples."""
    needed = select.gpus_of(ctx.engine_name)
    if needed == 1 or not ctx.on_gpu():
        return
    learner = "the learner's process, which samples for evaluations,"
    for role, count, gpus, key in (
        ("rollout processes", cluster.workers, cluster.gpus, "gpus"),
        ("judges", cluster.judges, cluster.judge_gpus, "judge_gpus"),
        (learner, 1, cluster.learner_gpus, "learner_gpus"),
    ):
        if count and gpus < needed:
            raise UserError(
                f"cluster: --engine {ctx.engine_name} takes {needed} GPUs, and {role} with {key} = "
                f"{gpus:g} would have fewer; set {key} = {needed}"
            )


def _refuse_ranks(runnable: Runnable, ctx: RunContext) -> None:
    if not isinstance(runnable, Recipe):
        raise UserError(
            "learners: several ranks learn one recipe; run the parts of a pipeline one by one, each "
            "from the model of the one before"
        )
    for name, learner in runnable.learners.items():
        if isinstance(learner.update, BeginsEarly) and learner.update.one_process:
            raise UserError(
                f"learners: {name!r} learns from groups as they come, which several ranks cannot; set "
                "learners = 1, or streaming=false"
            )
        if isinstance(learner.update, OneProcess):
            raise UserError(
                f"learners: {name!r} {learner.update.one_process_reason}, which several ranks cannot; set "
                "learners = 1"
            )
        if isinstance(learner.optimiser, AdamW8bit):
            raise UserError(
                f"learners: {name!r} keeps its moments in 8 bits, which several ranks cannot; set "
                "learners = 1, or leave --optim off"
            )
        if isinstance(learner.optimiser, AdamW) and learner.optimiser.narrow_moments:
            raise UserError(
                f"learners: {name!r} keeps its moments in bfloat16, which several ranks cannot; set "
                "learners = 1, or narrow_moments=false"
            )
        if learner.layers:
            raise UserError(
                f"learners: {name!r} learns in its last layers alone, which several ranks cannot; set "
                "learners = 1, or layers=0"
            )
    for name, reference in runnable.references.items():
        if isinstance(reference, Moving):
            raise UserError(
                f"learners: reference {name!r} is copied from a learner as it goes, which ranks "
                "cannot; set learners = 1, or take a reference that stays"
            )
    for name, model in ctx.models.items():
        if is_quantised(model.module):
            raise UserError(
                f"learners: model {name!r} has weights in 4 bits, which several ranks cannot share; set "
                "learners = 1, or leave --load-in-4bit off"
            )
        if model.has_senses:
            raise UserError(
                f"learners: model {name!r} has eyes or ears, whose weights are learned in one process; set "
                "learners = 1"
            )


def _refuse_schedule(cluster: Cluster, recipe: Recipe) -> None:
    if recipe.schedule.in_flight and not recipe.schedule.lag:
        raise UserError(
            "schedule.in_flight: without a lag nothing is under way when weights move; set "
            "schedule.lag=1 or more"
        )
    prompts, waves = recipe.schedule.prompts, cluster.waves or cluster.workers
    if recipe.schedule.window and cluster.workers and prompts % min(waves, prompts):
        raise UserError(
            f"schedule.window takes whole tickets: prompts = {prompts} is not a multiple of the "
            f"{waves} that a step is cut into; set waves of the cluster, or schedule.prompts"
        )
