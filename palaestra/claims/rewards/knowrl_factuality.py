"""The claim of knowrl-factuality: KnowRL: knowledge-verified factuality reward."""

import palaestra as pl
from palaestra.recipes.rewards.knowrl_factuality import build

EXPERIMENT = pl.Experiment(
    claim="With the full reward fewer samples are wrong answers than with correctness alone (+2, "
    "-1, a refusal -1).",
    arms={
        "correctness": build(facts=0.0, refusal=-1.0),
        "knowrl": build(),
        "no facts": build(facts=0.0),
        "refusal -1": build(refusal=-1.0),
    },
    expect=pl.Greater("correctness", "knowrl", by=0.05),
    falsified_if="the full reward leaves as many wrong answers",
    measure=pl.Logged("part/hallucinated"),
    metric="share of samples that are wrong answers and no refusals, last ten steps",
    task="add(d=6)",
    tokens=40_000,
    seconds=40.0,
    controls={
        "refused": pl.Logged("part/refused"),
        "facts": pl.Logged("part/facts"),
        "accuracy": pl.Final(),
    },
    note="A sum that the small model seldom gets right stands for a question about an unseen "
    "entity, `= ?` for a refusal, the lines of the right working for the knowledge. Seen and "
    "unseen entities are not told apart.",
)
