"""The claim of lite-ppo: Tricks or Traps? / Lite PPO (group mean, batch std, token-level loss)."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped
from palaestra.recipes.objectives.lite_ppo import build
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="Lite PPO earns more reward over the run than GRPO from a base model at equal sampled tokens.",
    arms={
        "grpo": recipe("grpo"),
        "group std and tokens and clip-higher": vary(recipe("grpo"), objective=Clipped(high=0.28, reduce="tokens")),
        "batch std only": vary(build(), objective=Clipped(reduce="sequences")),
        "lite-ppo": build(),
    },
    expect=Greater("lite-ppo", "grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="Lite PPO is less than two points better than GRPO over five seeds",
    task="add",
    tokens=40_000,
    controls={"final accuracy": Final(), "entropy": Logged("entropy_sampled"), "gradient norm": Logged("grad_norm")},
    note="The embedded model knows the answer format, as an aligned model does; the paper's gain is largest on base models.",
)
