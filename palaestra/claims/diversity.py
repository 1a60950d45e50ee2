"""The experiment that methods for diverse answers have in common: what is solved within 8 samples,
beside the start at the temperature with the same pass@1.
"""

from collections.abc import Mapping
from typing import Any

import palaestra as pl
from palaestra.claims.short import short
from palaestra.claims.starts import RATES

PASS_AT_1 = pl.Final("sampled_after.pass@1.mean")
BOOLEAN = (
    "Of such formulas the start solves .16 in one answer, .60 in eight and .19 greedily. GRPO's advantage with "
    "sixteen answers came to .48, .89 and .72 with 16,000 tokens in the result of another row, so that "
    "10,000 are taken here, to stay below the ceiling. The start has probably at no temperature what a trained "
    "arm has in one answer; all arms are then beside its best one there, and a difference between two arms is one of "
    "pass@8 itself, with pass@1 as a veto. Nothing of this row was looked at before the declaration. "
    "What is learned is mostly to work instead of guessing."
)
SAMPLED_AT = (0.3, 0.6, 0.8, 1.0, 1.3)  # temperatures of the start


def pass_at_8_experiment(
    *,
    claim: str,
    quantity: str,
    arms: Mapping[str, pl.Recipe],
    expect: pl.Greater,
    reasons: tuple[pl.Needs, ...],
    falsified_if: str,
    note: str,
    constants: Mapping[str, Mapping[str, tuple[Any, ...]]] | None = None,
    vetoes: Mapping[str, pl.Veto] | None = None,
    controls: Mapping[str, pl.Measure] | None = None,
) -> pl.Experiment:
    """Held-out pass@8 after 10,000 sampled tokens, less that of the start at the same pass@1; rates are
    chosen by pass@1. `controls` are further numbers of every cell.
    """
    return pl.Experiment(
        claim=claim,
        quantity=quantity,
        start=pl.Untrained(temperatures=SAMPLED_AT, tasks=96),
        arms={n: short(a) for n, a in arms.items()},
        expect=expect,
        falsified_if=falsified_if,
        reasons=reasons,
        vetoes=vetoes or {"pass@1": pl.Veto(PASS_AT_1, falls=0.03)},
        choose=PASS_AT_1,
        measure=pl.OverMatchedStart(8),
        metric="held-out pass@8 (temperature 1) above that of the start at the same pass@1",
        tuned={"optimiser.lr": RATES},
        constants=constants or {},
        task="bool(d=5)+bool(d=6)",
        tokens=10_000,
        evaluate=96,
        samples=8,
        seconds=7.0,
        controls={
            "pass@8": pl.Final("sampled_after.pass@8.mean"),
            **(controls or {}),
            "entropy": pl.Logged("entropy_sampled", last=3),
            "length": pl.Logged("length"),
        },
        note=note,
    )
