"""The claim of effective-rank: Hidden-state exploration: Effective Rank, ERV, ERA (VERL)."""

import palaestra as pl
from palaestra.claims.diversity import PASS_AT_8_OPTIMISER, pass_at_8_experiment
from palaestra.recipes.objectives.effective_rank import build

EXPERIMENT = pass_at_8_experiment(
    claim="After 30,000 sampled tokens on T-rec, VERL solves 2 points more held-out problems "
    "within 8 samples than GRPO.",
    arms={
        "grpo": pl.vary(pl.recipe("grpo"), optimiser=PASS_AT_8_OPTIMISER),
        "verl": pl.vary(build(stride=2), optimiser=PASS_AT_8_OPTIMISER),
        "placebo": pl.vary(build(stride=2, placebo=True), optimiser=PASS_AT_8_OPTIMISER),
    },
    expect=pl.Greater("verl", "grpo"),
    falsified_if="pass@8 of VERL is less than 2 points above that of GRPO",
    note="Prefixes of 2 tokens, 3 in an answer of 7 and 9 in one of 19, where the paper has 40 in "
    "a thousand. In answers this short the rank is nearly a count of tokens (correlation of bonus "
    "and length in the first batches: 0.94 to 0.97), so a gain may be one of length, which is "
    "shown. The placebo gives the bonuses to other answers; it decides nothing.",
)
