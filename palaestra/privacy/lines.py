"""Lines of the data as the unit of privacy: how they are drawn, and that none touches another's
gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from palaestra.abilities import needs_several
from palaestra.context import Credit
from palaestra.curriculum.arms import first_number
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.privacy.secret import PUBLIC, secret_of, secret_rng
from palaestra.tasks.files import FileTasks
from palaestra.types import (
    Example,
    Groups,
    Key,
    Metrics,
    Signals,
    State,
    Task,
    need_at_least,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Situation

INCLUSION = "inclusion"
NO_SECRET = (
    "public_seed is set: anybody can repeat the coins and the noise and subtract them, so NO privacy "
    "guarantee holds for this run; leave public_seed=0 on data of people"
)


@declare(columns=(("inclusion", float, "the probability with which a line was drawn"),))
@stage
class Poisson:
    """Every line of the data by a coin of its own, so that a step has n of them on average, and now
    and then none: what accounting by subsampling takes for granted. A pass over shuffled data is no
    such draw.

    The coins are secret, see `palaestra.privacy.secret`: whoever knows which lines a step drew owes
    nothing to the drawing, and what is accounted would be too little. A user's file is split into
    lines that are trained on and held out by each line alone (`splits_by_line`).

    Args:
        lines: of a source without an end, the first so many; 0 = the data has an end.
        public_seed: of coins that anybody can repeat, for tests; then no guarantee holds. 0 = secret.
    """

    lines: int = 0
    public_seed: int = 0
    splits_by_line: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need_at_least(self, lines=0, public_seed=0)

    def __call__(self, ctx: Situation, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks = ctx.bench.tasks
        if isinstance(tasks, FileTasks) and not (tasks.by_line or tasks.test):
            raise UserError(
                f"{ctx.bench.name}: which lines are held out depends on all lines, so one line more "
                "would move others; give --test-data FILE"
            )
        size = count_lines(ctx, self.lines)
        rate = sampling_rate(n, size)
        if not state and self.public_seed:
            ctx.say(NO_SECRET)
        own = secret_of(state, self.public_seed)
        drawn = (secret_rng(own, (*key, "poisson")).random(size) < rate).nonzero()[0].tolist()
        first = first_number(ctx)
        lines = [tasks.task("train", first + i) for i in drawn]
        return [replace(t, meta={**t.meta, INCLUSION: rate}) for t in lines], {**state, **own}

    def draw_numbers(self, state: State) -> Metrics:
        """Whether the coins are known to others."""
        return {"public_draw": float(state[PUBLIC])} if PUBLIC in state else {}


def count_lines(ctx: Situation, lines: int) -> int:
    """How many lines the data has. Raises UserError for a source without an end."""
    size = lines or ctx.bench.tasks.size
    if size is None:
        raise UserError(
            f"{ctx.bench.name} has no end, and privacy is counted for the lines of a file: give "
            "--data FILE, or set draw.lines and update.lines to the same number"
        )
    return size


def sampling_rate(n: int, size: int) -> float:
    """n lines of `size` on average. Raises UserError where that is more than all of them."""
    if n > size:
        raise UserError(
            f"schedule.prompts={n} is more than the {size} lines of the data; set "
            f"schedule.prompts to {size} or less"
        )
    return n / size


@stage
class EachLine:
    """Another credit, asked about one line at a time and without a memory, so that no other line
    moves what is learned from it; all rows of a line are one unit. Lines that `Poisson` drew carry
    the column `inclusion`, which `PrivateSteps` asks for.
    """

    credit: Credit

    @property
    def needs_several(self) -> bool:
        return needs_several(self.credit)

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        """Raises UserError for a line that makes several units, or that comes twice in a step."""
        examples: list[Example] = []
        if len({g.task.id for g in groups}) < len(groups):
            raise UserError(
                "a line came twice in a step, so its gradient would be clipped twice; leave pool and "
                "schedule.window as the method sets them"
            )
        for i, (group, own) in enumerate(zip(groups, signals, strict=True)):
            made, _ = self.credit([group], [own], {})
            if len({e.unit for e in made}) > 1:
                raise UserError(
                    f"task {group.task.id!r} makes several units, and its gradient is clipped as one; "
                    "take a credit with one pair a line, such as pl.credit.Prefer()"
                )
            drawn = {k: v for k, v in group.task.meta.items() if k == INCLUSION}
            examples += [replace(e, unit=f"line {i}", columns={**e.columns, **drawn}) for e in made]
        return examples, state
