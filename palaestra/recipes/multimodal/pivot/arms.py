"""How each arm of the comparison learns from the same items."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

import palaestra as pl

ARMS = {
    "sft": "imitation of the chosen reply",
    "both": "imitation of the chosen and of the rejected reply",
    "dpo": "DPO",
    "grpo": "GRPO, 1 for exactly the chosen reply",
    "frozen": "DPO with the encoder frozen",
    "random": "DPO with the rejected reply of another item",
}
FROZEN = {"tower": 0.0}
PROJECTOR = {"tower": 0.0, "language": 0.0}
TRIES = 64  # items in which another rejected reply is looked for
AHEAD = 4096  # of an endless source, how many items they are drawn from


@pl.stage
class ImitatePair(pl.Algebra):
    """-log p(chosen) - log p(rejected), sums over tokens in nats, mean over pairs: the control for
    what the rejected replies alone tell.
    """

    @property
    def couples(self) -> pl.objective.Couples:
        return "unit"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        nll_U = -pl.objective.sum_by_unit((out["logp"] * batch.mask).sum(1), batch)
        loss = nll_U.sum() / batch.n_units
        return loss, {"nll_pair": loss.detach()}


@pl.declare(reads_columns=("chosen", "rejected"))
@pl.stage
class RandomRejected:
    """The recorded pair of a task with the rejected reply of another training task, drawn by the
    stream's key. Raises UserError where all of them are this task's chosen reply.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, rng = group.task, pl.rng_of((*key, "rejected"))
        tasks = ctx.bench.tasks
        first, n = (ctx.bench.first_drawn, AHEAD) if tasks.size is None else (0, tasks.size)
        for _ in range(TRIES):
            other = tasks.task("train", first + int(rng.integers(n)))
            reply = other.meta.get("rejected")
            if other.id != task.id and reply and reply != task.meta.get("chosen"):
                other = replace(task, meta={**task.meta, "rejected": reply})
                made = await pl.Recorded()(ctx, key, pl.Group(task=other))
                return replace(group, episodes=(*group.episodes, *made.episodes))
        raise pl.UserError(
            f"task {task.id!r}: no other item has a rejected reply that differs from what is chosen here; "
            "leave the arm random out"
        )


@pl.declare(reads_columns=("chosen",))
@pl.stage
class SaysChosen:
    """1 for a reply that is the chosen one, but for case and white space, else 0."""

    bounds: tuple[float, float] = (0.0, 1.0)

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        right = plain(text) == plain(chosen_of(task))
        return pl.Reward(total=float(right), solved=right)


def plain(text: str) -> str:
    """In small letters, with single spaces."""
    return " ".join(text.casefold().split())


def chosen_of(task: pl.Task) -> str:
    """Raises UserError for a task without a chosen reply."""
    return reply_of(task, "chosen", "better")


def rejected_of(task: pl.Task) -> str:
    """Raises UserError for a task without a rejected reply."""
    return reply_of(task, "rejected", "worse")


def reply_of(task: pl.Task, column: str, what: str) -> str:
    """A recorded reply. Raises UserError for a task without."""
    text = task.meta.get(column)
    if not isinstance(text, str) or not text.strip():
        raise pl.UserError(
            f"task {task.id!r} has no text in `{column}`, the reply that is {what}; pivot learns from "
            "pictures with a chosen and a rejected reply"
        )
    return text


def arm_of(
    name: str,
    beta: float,
    schedule: pl.Schedule,
    optimiser: pl.AdamW,
    control: Any,
    samples: int = 8,
) -> pl.Recipe:
    """The recipe of an arm; all have the items, the number of updates and the optimiser in common."""
    common: dict[str, Any] = {
        "draw": pl.tasks.ControlledDraw(pl.Shuffled(), control),
        "optimiser": optimiser,
        "schedule": schedule,
        "heads": ("eyes",),
    }
    if name in ("sft", "both"):
        return imitation("both" if name == "both" else "chosen", **common)
    if name == "grpo":
        collect = pl.links(pl.Sample(n=samples), pl.Score(reward=SaysChosen()))
        return pl.vary(pl.recipe("grpo"), collect=collect, **common)
    dpo = pl.recipe("dpo", pairs="data", beta=beta)
    if name == "random":
        common["collect"] = pl.links(RandomRejected())
    if name == "frozen":
        common["rates"] = FROZEN
    return pl.vary(dpo, **common)


def imitation(
    what: str = "chosen", rates: Mapping[str, float] | None = None, **common: Any
) -> pl.Recipe:
    """Imitation of recorded pairs, of which DPO reads the same rows."""
    objective: Any = ImitatePair() if what == "both" else pl.objective.ImitatePreferred(total=True)
    more = {"rates": rates} if rates else {}
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Recorded()),
        credit=pl.credit.Prefer(),
        objective=objective,
        **common,
        **more,
    )
