"""The experiment that methods for diverse answers have in common: what is solved within 8 samples
on T-rec.
"""

from collections.abc import Mapping

import palaestra as pl

# of every arm: GRPO gains reward and loses half of its entropy in 25 steps
PASS_AT_8_OPTIMISER = pl.AdamW(lr=3e-4)


def pass_at_8_experiment(
    *,
    claim: str,
    arms: Mapping[str, pl.Runnable],
    expect: pl.Greater,
    falsified_if: str,
    note: str,
    controls: Mapping[str, pl.Measure] | None = None,
) -> pl.Experiment:
    """Held-out pass@8 after 30,000 sampled tokens; `controls` are further numbers of every cell."""
    return pl.Experiment(
        claim=claim,
        arms=arms,
        expect=expect,
        falsified_if=falsified_if,
        measure=pl.Final("sampled_after.pass@8.mean"),
        metric="held-out pass@8 (temperature 1)",
        task="rec",
        tokens=30_000,
        evaluate=512,
        samples=8,
        controls={
            "accuracy": pl.Final(),
            "pass@1": pl.Final("sampled_after.pass@1.mean"),
            **(controls or {}),
            "entropy": pl.Logged("entropy_sampled"),
            "length": pl.Logged("length"),
        },
        note=note,
    )
