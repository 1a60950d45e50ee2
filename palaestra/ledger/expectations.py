"""What an experiment expects of its arms, and the verdict that measured differences give.

An expectation compares two arms. Its verdict needs two blocks of seeds that nobody has looked at
before: the interval over all seeds decides, and each block alone must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from palaestra.errors import UserError
from palaestra.ledger.measures import Final, Measure
from palaestra.stats import Interval
from palaestra.types import stage

Verdict: TypeAlias = Literal[
    "reproduced",
    "smaller",
    "not-reproduced",
    "reversed",
    "inconclusive",
    "not-testable",
    "illustration",
]


class Judged(NamedTuple):
    """A verdict and its reason; "" where the numbers say it."""

    verdict: Verdict
    reason: str = ""


@stage
class Greater:
    """measure(better) > measure(than). `by` is the smallest difference that would be worth the
    claim, `why` says where that number comes from.

    Reproduced: the interval lies above 0, in each block too, and the mean is `by` or more.
    Smaller: the same, but the mean is below `by`. Reversed: the interval lies below 0, in each
    block too. Not reproduced: the interval lies below `by` and is neither. Else inconclusive.
    """

    better: str
    than: str
    by: float = 0.02
    why: str = ""

    @property
    def arms(self) -> tuple[str, str]:
        return self.than, self.better

    @property
    def margins(self) -> tuple[float, ...]:
        """Where differences begin, or end, that are worth the claim; the last is its size."""
        return (self.by,)

    def judge(self, effect: Interval, blocks: Sequence[Interval]) -> Judged:
        """The verdict of an effect over all seeds, and of each block of seeds alone."""
        if effect.low > 0:
            if all(block.low > 0 for block in blocks):
                return Judged("reproduced" if effect.mean >= self.by else "smaller")
            if effect.high >= self.by:
                return Judged("inconclusive", "the blocks of seeds do not agree")
            return Judged("not-reproduced", "below the margin, not above 0 in each block")
        if effect.high < 0:
            if all(block.high < 0 for block in blocks):
                return Judged("reversed")
            return Judged("not-reproduced", "below 0, but not in each block of seeds")
        if effect.high < self.by:
            return Judged("not-reproduced")
        return Judged("inconclusive", "the interval does not decide")

    def __str__(self) -> str:
        return (
            f"{self.better} - {self.than} > 0; a difference below {self.by:g} would not support "
            "the claim"
        )


@stage
class Same:
    """measure(one) and measure(other) differ by less than `within`: an equivalence.

    Reproduced: the interval lies inside +-within, and the mean of each block does. Not reproduced:
    it lies outside. Else inconclusive.
    """

    one: str
    other: str
    within: float = 0.02
    why: str = ""

    @property
    def arms(self) -> tuple[str, str]:
        return self.other, self.one

    @property
    def margins(self) -> tuple[float, ...]:
        return -self.within, self.within

    def judge(self, effect: Interval, blocks: Sequence[Interval]) -> Judged:
        """The verdict of an effect over all seeds, and of each block of seeds alone."""
        if -self.within < effect.low and effect.high < self.within:
            if all(abs(block.mean) < self.within for block in blocks):
                return Judged("reproduced")
            return Judged("inconclusive", "the blocks of seeds do not agree")
        if effect.low > self.within or effect.high < -self.within:
            return Judged("not-reproduced")
        return Judged("inconclusive", "the interval does not decide")

    def __str__(self) -> str:
        return f"|{self.one} - {self.other}| < {self.within:g}"


Expectation: TypeAlias = Greater | Same


@stage
class Veto:
    """What the better arm may not lose for its gain: `measure` falls by no more than `falls` below
    that of the other arm, or of the arm `against`.

    It speaks, and the claim is not reproduced, where the interval of the difference over all seeds
    lies below -falls. Where only the mean does, it doubts, and a claim that would hold is undecided.
    """

    measure: Measure = Final()
    falls: float = 0.03
    against: str = ""

    def speaks(self, difference: Interval) -> bool:
        return difference.high < -self.falls

    def doubts(self, difference: Interval) -> bool:
        return not self.speaks(difference) and not difference.mean >= -self.falls


@stage
class Needs:
    """A reason that the claim gives for its effect, as the arm that lacks it: a placebo or an
    ablation. Where the reason holds, the better arm is above this one too.

    Held: the interval of better - without lies above 0. Refuted: it lies below `by`. Else open.
    """

    without: str
    reason: str

    def said(self, difference: Interval, by: float) -> Literal["held", "refuted", "open"]:
        if difference.low > 0:
            return "held"
        return "refuted" if difference.high < by else "open"


def check_arms(names: Sequence[str], known: Sequence[str]) -> None:
    """Raises UserError for an arm that does not exist."""
    for name in names:
        if name not in known:
            raise UserError(
                f"the experiment names an arm {name!r} that does not exist; there are "
                f"{', '.join(known)}"
            )
