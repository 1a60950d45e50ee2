"""The claim of tempo: TEMPO / Prefix-to-Tree credit assignment."""

import palaestra as pl
from palaestra.recipes.objectives.tempo import build

EXPERIMENT = pl.Experiment(
    claim="On T-chain, TEMPO earns more reward over the run than GRPO at equal sampled tokens.",
    arms={
        "grpo": pl.vary(
            pl.recipe("grpo"), objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens")
        ),
        "tempo": build(),
        "td-only": build(outcome=0.0),
    },
    expect=pl.Greater("tempo", "grpo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the TD term adds nothing to GRPO where prefixes overlap most, in answers of "
    "about 25 tokens",
    tokens=40_000,
    controls={"final accuracy": pl.Final(), "branching tokens": pl.Logged("branching", last=0)},
    note="The gain should grow with G and shrink as answers get longer: the share of branching "
    "tokens is reported beside it.",
)
