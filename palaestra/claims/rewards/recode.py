"""The claim of recode: ReCode: rule-based RL for code API updates."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Greater, Logged
from palaestra.recipes.rewards.recode import build

EXPERIMENT = Experiment(
    claim="On T-rec, held-out accuracy after equal sampled tokens is higher with edit similarity than with exact match.",
    arms={"exact": build(exact=True), "similarity": build(), "no gate": build(gate=False), "grpo": recipe("grpo")},
    expect=Greater("similarity", "exact"),
    falsified_if="partial credit for near misses does not speed learning up",
    task="rec",
    tokens=60_000,
    seconds=40.0,
    controls={"similarity": Logged("part/similarity"), "form": Logged("part/format"), "length": Logged("length")},
    note="Four-letter codes stand for calls; the paper's exact match is rarer at the start. Both arms are paid for their form.",
)
