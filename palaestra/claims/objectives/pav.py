"""The claim of pav: Rewarding Progress: process advantage verifiers (PAV)."""

import palaestra as pl
from palaestra.recipes.objectives.pav import build

EXPERIMENT = pl.Experiment(
    claim="at equal sampled tokens, continuations included, progress under the best of 4 earns "
    "more than outcomes alone",
    arms={
        "outcome": pl.vary(
            build(),
            collect=pl.links(pl.Sample(n=8), pl.Score()),
            credit=pl.chain(pl.Center("group")),
        ),
        "pav": build(),
        "prover-is-policy": build(k=1),
        "prover-too-strong": build(k=64),
    },
    expect=pl.Greater("pav", than="outcome"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the tokens that continuations cost teach more when spent on answers",
    controls={"final accuracy": pl.Final()},
    tokens=60_000,
    note="The paper counts samples of the policy, not the tokens that labelled its verifier.",
)
