"""Whether a model uses the pictures and sounds of held-out problems, or answers without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaestra.context import RewardFn
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks, bounds_of_pay, chosen_tasks, judge_held_out
from palaestra.tasks.media import MediaControl, media_of
from palaestra.types import Tasks, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.run.context import RunContext

CONDITIONS = {
    "kept": MediaControl(),
    "removed": MediaControl("removed"),
    "swapped": MediaControl("swapped"),
    "no question": MediaControl(question=False),
}


@stage
class MediaExam:
    """Greedy answers to held-out problems as they are, without their media, with those of another
    problem, and without the words of the question; records of `HeldOut.json` by condition. One that
    leaves nothing to ask of some problem, or finds no media to swap in, is not measured.

    "used" is the mean of "kept" less that of "removed", and "benefit" how much this has grown since
    before the first step: (kept - kept before) - (removed - removed before), the gain that needs
    the media (omni-r1's audio benefit). A gain that stays without them is one of reading or of
    guessing.

    Args:
        n: problems, at most.
        conditions: some of "kept", "removed", "swapped" and "no question"; "kept" is among them.
        reward: judges the answers; None = that of the problem.
    """

    n: int = 128
    conditions: tuple[str, ...] = tuple(CONDITIONS)
    reward: RewardFn | None = None

    def __post_init__(self) -> None:
        need_at_least(self, n=1)
        if not {"kept"} <= set(self.conditions) <= set(CONDITIONS):
            raise UserError(
                f"conditions are 'kept' and some of {', '.join(CONDITIONS)}, not {self.conditions}"
            )

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        n = min(self.n, ctx.plan.evaluate) or self.n  # a run measures on no more
        source = ctx.bench.tasks
        numbers = chosen_tasks(ctx.bench, n)
        if not any(media_of(source.task("test", i)) for i in numbers):
            return {"without": len(numbers)}
        records: dict[str, Any] = {}
        bench = replace(ctx.bench, reward=self.reward or ctx.bench.reward)
        for name in self.conditions:
            there = replace(bench, tasks=CONDITIONS[name].tasks(source))
            if not _can_ask(there.tasks, numbers):
                continue
            groups = await attempt_tasks(
                ctx.with_bench(there), n, Sample(n=1, temperature=0.0), label=f"media {name}"
            )
            records[name] = judge_held_out(groups, bounds_of_pay(there)).json()
        if "removed" in records:
            records["used"] = records["kept"]["mean"] - records["removed"]["mean"]
        return records

    def compare(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
        """ "benefit", where both have media to leave out."""
        if not ("used" in before and "used" in now):
            return {}
        return {"benefit": now["used"] - before["used"]}


def _can_ask(tasks: Tasks, numbers: Sequence[int]) -> bool:
    """Whether each of these held-out problems is still one."""
    try:
        return all(tasks.task("test", i).prompt for i in numbers)
    except UserError:
        return False
