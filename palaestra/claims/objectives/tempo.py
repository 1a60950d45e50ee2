"""The claim of tempo: TEMPO / Prefix-to-Tree credit assignment."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped
from palaestra.recipes.objectives.tempo import build
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="On T-chain, TEMPO earns more reward over the run than GRPO at equal sampled tokens.",
    arms={
        "grpo": vary(recipe("grpo"), objective=Clipped(low=0.2, high=0.28, reduce="tokens")),
        "tempo": build(),
        "td-only": build(outcome=0.0),
    },
    expect=Greater("tempo", "grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the TD term adds nothing to GRPO where prefixes overlap most, in answers of about 25 tokens",
    tokens=40_000,
    controls={"final accuracy": Final(), "branching tokens": Logged("branching", last=0)},
    note="The gain should grow with G and shrink as answers get longer: the share of branching tokens is reported beside it.",
)
