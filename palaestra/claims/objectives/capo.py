"""The claim of capo: CAPO: verifiable generative credit assignment."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.objectives.capo import build

EXPERIMENT = Experiment(
    claim="with an oracle for steps, CAPO earns more reward over the run than GRPO at equal sampled tokens",
    arms={
        "grpo": recipe("grpo"),
        "capo": build(),
        "penalty-above-reward": build(right=1.0, wrong=2.0),
        "noisy-union": build(noise=0.3, vote="union"),
        "noisy-intersection": build(noise=0.3, vote="intersection"),
    },
    expect=Greater("capo", than="grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the outcome alone teaches as much",
    controls={"final accuracy": Final()},
    tokens=40_000,
    note="The oracle names the first wrong step only.",
)
