"""The claim of agro: AGRO: Any-Generation Reward Optimization."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.objectives.agro import build
from palaestra.step import Schedule
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="with rollouts that are 8 steps old, AGRO earns more reward over the run than GRPO",
    arms={
        "grpo": vary(recipe("grpo"), schedule=Schedule(prompts=16, steps=50, lag=8)),
        "agro": build(lag=8),
        "agro-on-policy": build(),
        "grpo-on-policy": recipe("grpo"),
    },
    expect=Greater("agro", than="grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="GRPO with its ratios is as accurate on samples of the same age",
    controls={"final accuracy": Final()},
    tokens=60_000,
)
