"""The claim of steer: Rethinking entropy interventions: STEER token reweighting."""

import palaestra as pl
from palaestra.recipes.objectives.steer import build

EXPERIMENT = pl.Experiment(
    claim="After the same number of sampled tokens STEER has the higher entropy, compared with "
    "GRPO with clip-higher.",
    arms={
        "grpo": pl.recipe("grpo"),
        "clip-higher": pl.vary(pl.recipe("grpo"), objective=pl.DualClipped()),
        "entropy bonus": pl.vary(
            pl.recipe("grpo"), objective=pl.Clipped(reduce="tokens") + 0.01 * pl.Entropy()
        ),
        "linear": build("linear"),
        "exp": build("exp"),
    },
    expect=pl.Greater("linear", "clip-higher", by=0.02),
    falsified_if="the entropy at the end is less than 0.02 nats higher with STEER",
    measure=pl.Logged("entropy_sampled"),
    metric="entropy of the sampled tokens, last ten steps (nats)",
    task="add",
    tokens=60_000,
    evaluate=128,
    samples=8,
    controls={"accuracy": pl.Final(), "pass@8": pl.Final("sampled_after.pass@8.mean")},
)
