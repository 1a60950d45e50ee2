"""The claim of rapo: RAPO: forward KL + reference reweighting for exploration."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.objectives.rapo import build

EXPERIMENT = Experiment(
    claim="RAPO solves more held-out problems within 16 samples than GRPO with a reverse KL of the same weight.",
    arms={
        "reverse KL": recipe("grpo", kl=0.01),
        "no KL": recipe("grpo"),
        "forward KL": build(phi="none"),
        "group accuracy": build(phi="group"),
        "rapo": build(),
    },
    expect=Greater("rapo", "reverse KL"),
    falsified_if="pass@16 of RAPO is less than 2 points above that of GRPO with a reverse KL",
    measure=Final("sampled_after.pass@16.mean"),
    metric="held-out pass@16 (temperature 1)",
    task="count",
    tokens=60_000,
    evaluate=128,
    samples=16,
    controls={"accuracy": Final(), "entropy": Logged("entropy_sampled")},
    note="the weights alpha and beta are a choice, not the paper's; a hard slice that the base never solves needs scale.",
)
