"""A tool that fails on purpose: a control which shows what a method makes of a broken tool."""

from __future__ import annotations

import re
from typing import Protocol, Self, runtime_checkable

from palaestra.errors import UserError
from palaestra.types import Key, rng_of, value_class

OUT = "the tool does not answer"  # what a call of a broken tool gives
FORM = re.compile(r"(?P<tool>[\w.-]+)=(?P<share>[0-9.]+)(?:@(?P<since>[0-9]+))?")


@runtime_checkable
class ChangesByStep(Protocol):
    """A world that is another one after some steps of training."""

    def at_step(self, step: int) -> Self:
        """The world of this step, from 0; itself where nothing changes."""
        ...


@value_class
class Outage:
    """Calls that fail at random, from a step of training on.

    Args:
        share: of the calls.
        since: the step, from 0. Before it, and where a model is only measured, no call fails; the
            measurement after training is of the last step.
        tool: that is broken; "" = the only one.
    """

    share: float
    since: int = 0
    tool: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.since < 0:
            raise UserError(
                "a broken tool fails in a share of its calls, 0 to 1, from a step on, 0 or more; not "
                f"{self.share:g} from step {self.since}"
            )

    def fails(self, key: Key, step: int) -> bool:
        """Whether a call fails, by a path of its own. All answers to a prompt draw alike."""
        if step < self.since or not self.share:
            return False
        return bool(rng_of((*key, "outage")).random() < self.share)


def parse_outage(text: str) -> Outage:
    """`NAME=SHARE` or `NAME=SHARE@STEP`. Raises UserError for anything else."""
    read = FORM.fullmatch(text.strip())
    try:
        if read is None:
            raise ValueError
        share, since = float(read["share"]), int(read["since"] or 0)
        return Outage(share=share, since=since, tool=read["tool"])
    except ValueError:
        raise UserError(
            f"--break-tool {text}: write NAME=SHARE, the share of the calls of a tool that fail, or "
            "NAME=SHARE@STEP, from a step on, e.g. --break-tool add=0.3@10"
        ) from None
