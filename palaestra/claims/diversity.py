"""The experiment that methods for diverse answers have in common: what is solved within 8 samples,
beside the start at the temperature whose pass@1 is nearest.
"""

from collections.abc import Mapping
from typing import Any

import palaestra as pl
from palaestra.claims.short import short

PASS_AT_1 = pl.ledger.Final("sampled_after.pass@1.mean")
ONE_RATE = {"optimiser.lr": (1e-4,)}
BOOLEAN = (
    "All arms have one rate, 1e-4. Looked at before the declaration, on two trial seeds: of such formulas the "
    "start solves .16 in one answer and .63 to .66 in eight. With 10,000 tokens GRPO had .37 in one and .85 to "
    ".91 in eight, after 8 steps; with 24,000 .44 to .50 and .85 to .87. So its pass@8 stays while pass@1 goes on "
    "rising, where diversity can differ, and fewer tokens would tell how fast an arm learns to work. At 3e-4 "
    "it lost its form after 6 steps (.20, .33 in one answer), at 1e-3 every arm did, and a rate chosen by "
    "pass@1 would move pass@8 by more than the margin. The start has at no temperature what a trained "
    "arm has in one answer, so all arms are beside its best one there (temperature .3, .44 to .48 in eight), a "
    "lead over the start says little, and a difference between two arms is one of pass@8 itself, with "
    "pass@1 as a veto. What is learned is mostly to work instead of guessing."
)
SAMPLED_AT = (0.3, 0.6, 0.8, 1.0, 1.3)  # temperatures of the start


def pass_at_8_experiment(
    *,
    claim: str,
    quantity: str,
    arms: Mapping[str, pl.Recipe],
    expect: pl.ledger.Greater,
    reasons: tuple[pl.ledger.Needs, ...],
    falsified_if: str,
    note: str,
    tuned: Mapping[str, tuple[Any, ...]] = ONE_RATE,
    constants: Mapping[str, Mapping[str, tuple[Any, ...]]] | None = None,
    vetoes: Mapping[str, pl.ledger.Veto] | None = None,
    controls: Mapping[str, pl.ledger.Measure] | None = None,
) -> pl.ledger.Experiment:
    """Held-out pass@8 after 24,000 sampled tokens at one rate, less that of the start at the nearest
    pass@1. `constants` are tried in addition, `controls` are further numbers of every cell.
    """
    return pl.ledger.Experiment(
        claim=claim,
        quantity=quantity,
        start=pl.ledger.Untrained(temperatures=SAMPLED_AT, tasks=96),
        arms={n: short(a) for n, a in arms.items()},
        expect=expect,
        falsified_if=falsified_if,
        reasons=reasons,
        vetoes=vetoes or {"pass@1": pl.ledger.Veto(PASS_AT_1, falls=0.03)},
        measure=pl.ledger.OverMatchedStart(8),
        metric="held-out pass@8 (temperature 1) above that of the start at its nearest pass@1",
        tuned=tuned,
        constants=constants or {},
        blocks=pl.ledger.TWENTY_SEEDS,
        task="bool(d=5)+bool(d=6)",
        tokens=24_000,
        evaluate=192,
        samples=8,
        seconds=15.0,
        controls={
            "pass@8": pl.ledger.Final("sampled_after.pass@8.mean"),
            **(controls or {}),
            "entropy": pl.ledger.Logged("entropy_sampled", last=3),
            "length": pl.ledger.Logged("length"),
        },
        note=note,
    )
