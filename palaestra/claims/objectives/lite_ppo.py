"""The claim of lite-ppo: Tricks or Traps? / Lite PPO (group mean, batch std, token-level loss)."""

import palaestra as pl
from palaestra.recipes.objectives.lite_ppo import build

EXPERIMENT = pl.Experiment(
    claim="Lite PPO earns more reward over the run than GRPO from a base model at equal sampled "
    "tokens.",
    arms={
        "grpo": pl.recipe("grpo"),
        "group std and tokens and clip-higher": pl.vary(
            pl.recipe("grpo"), objective=pl.Clipped(high=0.28, reduce="tokens")
        ),
        "batch std only": pl.vary(build(), objective=pl.Clipped(reduce="sequences")),
        "lite-ppo": build(),
    },
    expect=pl.Greater("lite-ppo", "grpo"),
    measure=pl.Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="Lite PPO is less than two points better than GRPO over five seeds",
    task="add",
    tokens=40_000,
    controls={
        "final accuracy": pl.Final(),
        "entropy": pl.Logged("entropy_sampled"),
        "gradient norm": pl.Logged("grad_norm"),
    },
    note="The embedded model knows the answer format, as an aligned model does; the paper's gain "
    "is largest on base models.",
)
