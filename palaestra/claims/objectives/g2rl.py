"""The claim of g2rl: G2RL: gradient-guided exploration."""

import palaestra as pl
from palaestra.claims.diversity import PASS_AT_8_OPTIMISER, pass_at_8_experiment
from palaestra.recipes.objectives.g2rl import build

EXPERIMENT = pass_at_8_experiment(
    claim="After 30,000 sampled tokens on T-rec, G2RL solves 2 points more held-out problems "
    "within 8 samples than GRPO.",
    arms={
        "grpo": pl.vary(pl.recipe("grpo"), optimiser=PASS_AT_8_OPTIMISER),
        "entropy bonus": pl.vary(
            pl.recipe("grpo"),
            objective=pl.Clipped() + 0.01 * pl.Entropy(),
            optimiser=PASS_AT_8_OPTIMISER,
        ),
        "g2rl": pl.vary(build(weight=0.5), optimiser=PASS_AT_8_OPTIMISER),
        "g2rl by equation 12": pl.vary(
            build("equation", weight=0.5), optimiser=PASS_AT_8_OPTIMISER
        ),
        "placebo": pl.vary(build(weight=0.5, placebo=True), optimiser=PASS_AT_8_OPTIMISER),
    },
    expect=pl.Greater("g2rl", "grpo"),
    falsified_if="pass@8 of G2RL is less than 2 points above that of GRPO",
    controls={"maj@8": pl.Final("sampled_after.maj@8.mean")},
    note="lambda is 0.5, so that the least novel right answer keeps r' = 0.5; the paper gives no "
    "value. The placebo permutes the novelty within the group and decides nothing: where it does "
    "as well as G2RL, a gain is not one of the direction.",
)
