"""The claim of attention-rhythm: Attention illuminates reasoning: preplan-and-anchor credit assignment."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.objectives.attention_rhythm import build

EXPERIMENT = Experiment(
    claim="Coupled credit earns more reward over the run than the same amplification of random tokens.",
    arms={
        "grpo": recipe("grpo"),
        "random": build("random"),
        "entropy": build("entropy"),
        "local": build("local"),
        "global": build("global"),
        "coupled": build("coupled"),
        "bottom": build("bottom"),
    },
    expect=Greater("coupled", "random"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the reward with coupled credit is less than 2 points above that with random tokens",
    task="add",
    tokens=40_000,
    controls={"final accuracy": Final(), "entropy": Logged("entropy_sampled")},
    note="a window of 2 to 10 tokens for anchors in answers of 25 tokens, where the paper has 10 to 50.",
)
