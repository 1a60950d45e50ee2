"""The claim of srpo-gream: GREAM: sparse-regularised group policy optimisation, generative
reasoning recommendation.
"""

import palaestra as pl
from palaestra.recipes.objectives.srpo_gream import build

EXPERIMENT = pl.Experiment(
    claim="On T-rec, partial credit with the pass@4 bonus ends with a higher pass@4 than exact "
    "matching without either.",
    arms={
        "exact": build(partial=False, bonus=0.0),
        "partial": build(bonus=0.0),
        "bonus": build(partial=False),
        "both": build(),
    },
    expect=pl.Greater("both", "exact"),
    falsified_if="neither the denser reward nor the bonus raises pass@4 over plain exact matching",
    measure=pl.Final("sampled_after.pass@4.mean"),
    metric="held-out pass@4",
    task="rec",
    tokens=60_000,
    samples=4,
    controls={
        "hit@1 (greedy)": pl.Final(),
        "groups with signal": pl.Logged("groups_mixed", last=0),
    },
    note="A synthetic catalogue with four-letter codes, without reasoning; item clustering and the "
    "SFT stages are left out.",
)
