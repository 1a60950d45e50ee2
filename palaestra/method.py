"""A method as a value: what its stages are, and what each of its learners minimises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from palaestra.abilities import drops_equal, keeps_equal
from palaestra.context import AsyncDraw, Collect, Credit, Draw, Evaluator, Pool, Rewrite
from palaestra.context import Observe as ObserveStage
from palaestra.context import Update as UpdateStage
from palaestra.curriculum.pool import Everything
from palaestra.errors import UserError
from palaestra.rollout.cast import Moving
from palaestra.rollout.queue import Schedule
from palaestra.types import EXACT, Need, Objective, State, stage
from palaestra.update import AdamW, Plain

if TYPE_CHECKING:
    from palaestra.context import Programs
    from palaestra.types import Result


@stage
class Unchanged:
    """No feedback: the curriculum keeps its state."""

    def __call__(self, seen: Any, examples: Any, state: State) -> State:
        return state


@dataclass(frozen=True, kw_only=True)
class Learner:
    """One trainable model: how it is credited, what it minimises, how it moves."""

    credit: Credit
    objective: Objective
    update: UpdateStage = Plain()
    optimiser: AdamW = AdamW()
    needs: tuple[Need, ...] = ()
    heads: tuple[str, ...] = ()  # extra outputs of the model, e.g. "value"
    # the last decoder layers that learn, where there are no adapters; 0 = all weights do
    layers: int = 0
    # what the learning rate is multiplied by in the parts of a model that sees pictures, tower,
    # projector and language; 0 = the part does not learn
    rates: Mapping[str, float] = field(default_factory=dict)
    # of models in `needs` that read more of a task than its row does, how its prompt is put
    privileged: Mapping[str, Rewrite] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = type(self.objective).__name__
        # without asking: what an objective needs may change with the step
        lacks = [n for n in ("needs", "couples") if getattr_static(self.objective, n, None) is None]
        if lacks or not callable(self.objective):
            raise UserError(
                f"objective {name} has no {' and no '.join(lacks) or '__call__'}; an objective has "
                'needs, such as ("logp",), couples, such as "row", and is called with (out, batch)'
            )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method as a value.

    `references` are frozen models by name: "policy" = a copy of the start, else a name or folder;
    or `Snapshots` or a `MovingAverage` of a learner as it goes.
    `instruction` stands behind the prompts of a user's data, in training and on held-out problems, but
    for prompts with a system message and those that ask for the form themselves; "" = nothing does.
    `evaluate`: what is measured beside the held-out problems, by name.
    """

    draw: Draw | AsyncDraw
    collect: Collect
    learners: Mapping[str, Learner]
    pool: Pool = Everything()
    observe: ObserveStage = Unchanged()
    evaluate: Mapping[str, Evaluator] = field(default_factory=dict)
    references: Mapping[str, str | Moving] = field(default_factory=dict)
    schedule: Schedule = Schedule()
    # it counts where it acts, as a field of the data, and nowhere on problems that are built in
    instruction: str = field(default="", metadata=EXACT)

    def __post_init__(self) -> None:
        keeps = [name for name, learner in self.learners.items() if keeps_equal(learner.credit)]
        if keeps and drops_equal(self.pool):
            raise UserError(
                f"learner {keeps[0]!r} learns from groups whose rewards are all equal, which the "
                f"pool {type(self.pool).__name__} drops; use pool=Everything()"
            )

    async def run(self, ctx: Programs) -> Result:
        return await ctx.train(self)
