"""The claim of dr-grpo: Dr. GRPO (understanding R1-Zero-like training)."""

from palaestra.catalogue import recipe
from palaestra.credit.links import Center, chain
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped
from palaestra.recipes.objectives.dr_grpo import build
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="At the end of training wrong answers are longer under GRPO than under Dr. GRPO.",
    arms={
        "grpo": recipe("grpo"),
        "no std": vary(recipe("grpo"), credit=chain(Center("group"))),
        "constant length": vary(recipe("grpo"), objective=Clipped(reduce="constant", length=64)),
        "dr-grpo": build(),
    },
    expect=Greater("grpo", "dr-grpo", by=1.0),
    falsified_if="wrong answers under GRPO are less than one token longer than under Dr. GRPO over five seeds",
    measure=Logged("length_wrong"),
    metric="mean length of wrong answers, last ten steps (tokens)",
    task="sort",
    tokens=80_000,
    controls={"accuracy": Final(), "length of right answers": Logged("length_right")},
    note="On `sort` wrong answers are the longer ones, as in the paper; answers have at most 64 tokens here, 3,000 there. AdamW "
    "hides most of the smaller gradient scale of the constant.",
)
