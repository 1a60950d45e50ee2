"""The claim of mio: MIO: mutual-information (Jensen-Shannon) preference optimisation."""

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.preference.mio import build

SHARPNESS = 8.0  # of the labels of `Preferences`
STEPS = 60


def proxy_recipe() -> pl.Recipe:
    """A reward model of the same pairs, a head on a copy of the policy."""
    rater = pl.Learner(
        credit=pl.Compare(),
        objective=pl.BradleyTerry(center=0.01),
        heads=("score",),
        optimiser=pl.AdamW(lr=3e-4),
    )
    return pl.vary(
        pl.recipe("dpo", pairs="data"),
        learners={"reward": rater},
        schedule=pl.Schedule(prompts=32, steps=STEPS),
    )


def with_meter(learned: pl.Runnable) -> pl.Pipeline:
    """The proxy, what is trained on the same pairs, and both rewards of what it answers."""
    meter = pl.Overoptimisation(pl.Learned("reward"), sharpness=SHARPNESS)
    models = {"reward": pl.Output("proxy", "reward"), "trained": pl.Output("pairs")}
    return pl.Pipeline(
        parts={
            "proxy": pl.Part(proxy_recipe()),
            "pairs": pl.Part(learned),
            "meter": pl.Part(meter, models=models),
        }
    )


def on_pairs(objective: pl.Objective) -> pl.Pipeline:
    return with_meter(
        pl.vary(
            build(pairs="data"),
            objective=objective,
            schedule=pl.Schedule(prompts=32, steps=STEPS),
        )
    )
