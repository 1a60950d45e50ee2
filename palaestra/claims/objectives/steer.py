"""The claim of steer: Rethinking entropy interventions: STEER token reweighting."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped, Entropy
from palaestra.objective.tokens import DualClipped
from palaestra.recipes.objectives.steer import build
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="After the same number of sampled tokens STEER has the higher entropy, compared with GRPO with clip-higher.",
    arms={
        "grpo": recipe("grpo"),
        "clip-higher": vary(recipe("grpo"), objective=DualClipped()),
        "entropy bonus": vary(recipe("grpo"), objective=Clipped(reduce="tokens") + 0.01 * Entropy()),
        "linear": build("linear"),
        "exp": build("exp"),
    },
    expect=Greater("linear", "clip-higher", by=0.02),
    falsified_if="the entropy at the end is less than 0.02 nats higher with STEER",
    measure=Logged("entropy_sampled"),
    metric="entropy of the sampled tokens, last ten steps (nats)",
    task="add",
    tokens=60_000,
    evaluate=128,
    samples=8,
    controls={"accuracy": Final(), "pass@8": Final("sampled_after.pass@8.mean")},
)
