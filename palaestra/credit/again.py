"""Examples that are trained on more often than others, or again in a later step. The age law holds:
the schedule's `max_age` bounds what credit keeps from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from palaestra.abilities import keeps_equal
from palaestra.context import Credit
from palaestra.errors import UserError
from palaestra.types import Example, Groups, Signals, State, need_at_least, rng_of, stage


@stage
class Resampled:
    """As many examples as `credit` gives, drawn from them with replacement and p ~ weight(reward).

    Advantages are those from before (Policy Filtration for PPO, arXiv:2409.06957). It moves the
    gradient towards some samples on purpose and corrects for nothing.

    Args:
        weight: [N] weights, none below 0, from the [N] rewards of the examples. Where all are 0
            every example is drawn alike.
    """

    credit: Credit
    weight: Callable[[np.ndarray], np.ndarray]

    @property
    def keeps_equal(self) -> bool:
        return keeps_equal(self.credit)

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        credited, state = self.credit(groups, signals, state)
        if any(e.unit for e in credited):
            raise UserError(
                "Resampled draws rows one by one; its credit makes units of several rows"
            )
        if not credited:
            return credited, state
        p_N = self.probabilities(np.array([float(e.columns["reward"]) for e in credited]))
        at = rng_of(("resampled", *credited[0].row.key)).choice(len(credited), len(credited), p=p_N)
        return [credited[i] for i in at], state

    def probabilities(self, reward_N: np.ndarray) -> np.ndarray:
        """[N] with which each example is drawn."""
        weight_N = self.weight(reward_N)
        total = weight_N.sum()
        return weight_N / total if total > 0 else np.full(len(weight_N), 1 / len(weight_N))


@stage
class Rehearse:
    """Keeps the examples of `credit` whose |advantage| is above `least`, with the advantage and the
    log-probs of then, and adds them to the batch of every `every`-th step (EFRame,
    arXiv:2506.22200).

    The newest `capacity` examples are kept, and given only where there are at least `fill` of them;
    the schedule's `max_age` drops the older ones, so with 0 nothing is ever given again.
    `sign` restricts it to what was better, or worse, than expected.
    """

    credit: Credit
    least: float = 1.0
    capacity: int = 256
    every: int = 5
    fill: int = 1
    sign: Literal["both", "positive", "negative"] = "both"
    each: int = 0  # examples for each prompt of a step, in place of `capacity`
    clock: ClassVar[str] = "every"

    def fit_to_run(self, prompts: int, max_tokens: int) -> Self:
        """With `each` the capacity follows the prompts of a step."""
        return replace(self, capacity=self.each * prompts) if self.each and prompts else self

    def __post_init__(self) -> None:
        need_at_least(self, least=0, capacity=1, every=1, fill=1)

    @property
    def keeps_equal(self) -> bool:
        return keeps_equal(self.credit)

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        buffer, steps = list[Example](state.get("buffer", [])), state.get("steps", 0) + 1
        credited, inner = self.credit(groups, signals, state.get("inner", {}))
        due = steps % self.every == 0 and len(buffer) >= self.fill
        again = [replace(e, unit=f"again {e.unit}" if e.unit else "") for e in buffer if due]
        kept = [*buffer, *(e for e in credited if self._keeps(e))][-self.capacity :]
        after: dict[str, Any] = {"inner": inner, "steps": steps, "buffer": kept}
        return [*credited, *again], after

    def _keeps(self, example: Example) -> bool:
        a_T = np.asarray(example.columns["advantage"])
        if self.sign != "both":
            a_T = a_T if self.sign == "positive" else -a_T
            return bool(a_T.max(initial=0.0) > self.least)
        return bool(np.abs(a_T).max(initial=0.0) > self.least)
