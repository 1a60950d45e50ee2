"""What comes before a run of its own: imitation of a form that a start does not know."""

from __future__ import annotations

from typing import Any

from palaestra.catalogue import recipe
from palaestra.context import Runnable
from palaestra.pipeline import Output, Part, Pipeline, warm
from palaestra.rollout.queue import Schedule
from palaestra.update import AdamW
from palaestra.values import vary


def imitate_first(
    learned: Runnable,
    steps: int,
    *,
    prompts: int = 16,
    optimiser: AdamW = AdamW(lr=2e-3, warmup=10),
    **parts: Any,
) -> Pipeline:
    """A pipeline that imitates for some steps before it learns: for a form that a start does not know.

    Args:
        learned: what starts from the model that imitated, as the part "rl".
        steps, prompts: of the part "shown", by `sft`.
        optimiser: its own; the rate is one for the embedded models.
        parts: of `sft`, where they are others, e.g. `collect`, `instruction`, `heads`.
    """
    imitated = vary(
        recipe("sft"), schedule=Schedule(prompts=prompts, steps=steps), optimiser=optimiser, **parts
    )
    return Pipeline(parts={"shown": warm(imitated), "rl": Part(learned, model=Output("shown"))})
