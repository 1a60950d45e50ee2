"""What a run's report and model card say of differential privacy, from what its steps logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palaestra.ends import HOUSEKEEPING
from palaestra.store.folder import RunFolder

OUTSIDE = (
    "Losses, margins, accuracies, gradient norms, held-out numbers, curves and answers of the run are made "
    "from the data without noise and are outside of the guarantee; so is every choice between runs."
)
NONE = "No privacy guarantee holds"


def has_private_steps(run: RunFolder) -> bool:
    return any(_numbers(record) is not None for record in run.steps)


def guarantee(run: RunFolder) -> str:
    """What is promised of the weights after the last step, or that nothing is; "" = no step was
    private.
    """
    private = [n for record in run.steps if (n := _numbers(record)) is not None]
    if not private:
        return ""
    if any(n["public_noise"] or n["public_draw"] for n in private):
        return (
            f"{NONE}: public_seed was set, so that anybody can repeat the noise and the draws of lines, and "
            "subtract them."
        )
    if len(private) < len([record for record in run.steps if "updates" in record]):
        return f"{NONE}: some steps were made without noise."
    last = private[-1]
    return (
        f"The weights after the last step are ({last['epsilon']:.3g}, {last['delta']:.2g})-differentially "
        "private for one line of the training data added or removed, by the Renyi accountant. This holds of "
        "the weights alone, as long as the run folder stays secret."
    )


def remarks_on_privacy(run: RunFolder) -> list[str]:
    promise = guarantee(run)
    return [promise, OUTSIDE] if promise else []


def without_private_numbers(run: RunFolder) -> RunFolder:
    """The run without what was measured on its own problems, for pages that are published."""
    if not has_private_steps(run):
        return run
    kept = [name for name in HOUSEKEEPING if name not in ("evaluations", "caveat")]
    summary = {k: v for k, v in run.summary.items() if k in kept}
    return replace(run, summary=summary, evaluations=[], held=[], beside=[])


def _numbers(record: Mapping[str, Any]) -> dict[str, float] | None:
    """Of a step by the last part of their names, which several learners prefix; None = no noise."""
    short = {name.rpartition("/")[2]: x for name, x in record.items()}
    if not {"epsilon", "delta", "public_noise"} <= short.keys():
        return None
    names = ("epsilon", "delta", "public_noise")
    return {
        **{n: float(short[n]) for n in names},
        "public_draw": float(short.get("public_draw", 0)),
    }
