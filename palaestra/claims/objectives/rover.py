"""The claim of rover: Random Policy Valuation (ROVER)."""

import palaestra as pl
from palaestra.claims.diversity import PASS_AT_8_OPTIMISER, pass_at_8_experiment
from palaestra.recipes.objectives.rover import build

FOUR = pl.Plain(minibatches=4)


BASE = pl.vary(
    pl.recipe("grpo"),
    credit=pl.chain(pl.Center("group")),
    update=FOUR,
    optimiser=PASS_AT_8_OPTIMISER,
)


EXPERIMENT = pass_at_8_experiment(
    claim="After 30,000 sampled tokens on T-rec, ROVER solves 2 points more held-out problems "
    "within 8 samples than GRPO's clipped ratio with the same centred rewards, token mean and "
    "minibatches.",
    arms={
        "grpo": pl.vary(pl.recipe("grpo"), optimiser=PASS_AT_8_OPTIMISER),
        "grpo unscaled": pl.vary(BASE, objective=pl.Clipped(reduce="tokens")),
        "entropy bonus": pl.vary(
            BASE, objective=pl.Clipped(reduce="tokens") + 0.01 * pl.Entropy(reduce="tokens")
        ),
        "rover": pl.vary(build(), optimiser=PASS_AT_8_OPTIMISER),
        "no bootstrap": pl.vary(build(bootstrap=False), optimiser=PASS_AT_8_OPTIMISER),
    },
    expect=pl.Greater("rover", "grpo unscaled"),
    falsified_if="pass@8 of ROVER is less than 2 points above that of unscaled GRPO",
    note="Only the loss differs between the two arms compared; the arm grpo is the usual one, "
    "scaled by the deviation, with the mean over answers and one minibatch. T-rec has one right "
    "answer that its noise hides, so several are worth trying: diversity is tried solutions, not "
    "many right ones. With 263 words the mean over the vocabulary weighs more against the reward "
    "than with 150,000.",
)
