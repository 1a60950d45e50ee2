"""The claim of igpo: Information Gain-based Policy Optimization."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.objectives.igpo import build

EXPERIMENT = Experiment(
    claim="On T-hop, IGPO earns more reward over the run than GRPO with the outcome alone at equal sampled tokens.",
    arms={"grpo": recipe("grpo"), "igpo": build(), "shuffled": build(shuffle=True)},
    expect=Greater("igpo", "grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="gains add nothing to the outcome, or shuffled gains do as well",
    task="hop",
    tokens=60_000,
    controls={"final accuracy": Final(), "gain a token": Logged("gain", last=0), "tokens an episode": Logged("length")},
    note="The outcome is an exact match, 0 or 1; the paper's is token F1, and malformed answers cost 2 in its code.",
)
