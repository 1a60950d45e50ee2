"""The claim of knowrl-factuality: KnowRL: knowledge-verified factuality reward."""

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.rewards.knowrl_factuality import build

EXPERIMENT = pl.Experiment(
    claim="With the full reward at least 5 points fewer samples are wrong answers than with "
    "correctness alone (+2, -1, a refusal -1), and right answers stay.",
    quantity="fewer hallucinations on three sets, reasoning kept on two",
    arms={
        "correctness": build(facts=0.0, refusal=-1.0),
        "knowrl": build(),
        "no facts": build(facts=0.0),
        "refusal -1": build(refusal=-1.0),
    },
    expect=pl.Greater(
        "knowrl", "correctness", by=0.05, why="half of the ten points that the paper's sets gain"
    ),
    falsified_if="the full reward leaves as many wrong answers, or right answers are lost for it",
    reasons=(
        pl.Needs("no facts", "the check of facts"),
        pl.Needs("refusal -1", "that a refusal is paid"),
    ),
    vetoes={"accuracy": pl.Veto(pl.Final(), falls=0.03)},
    measure=pl.Less(pl.Logged("part/hallucinated"), of=1.0),
    metric="share of samples that are no wrong answers, last ten steps",
    tuned={"optimiser.lr": RATES},
    task="add(d=6)",
    tokens=40_000,
    seconds=40.0,
    controls={
        "refused": pl.Logged("part/refused"),
        "facts": pl.Logged("part/facts"),
    },
    note="A sum that the small model seldom gets right stands for a question about an unseen "
    "entity, `= ?` for a refusal, the lines of the right working for the knowledge. Seen and "
    "unseen entities are not told apart.",
)
