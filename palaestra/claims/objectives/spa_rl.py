"""The claim of spa-rl: Stepwise Progress Attribution."""

import palaestra as pl
from palaestra.recipes.objectives.spa_rl import build, rest_learner


def shrink(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts x 4 answers a step, so that more steps fit into a cell."""
    return pl.override(pl.vary(learned, schedule=pl.Schedule(prompts=8)), "collect.sample.n", 4)


WARMUP = 6  # steps


EXPERIMENT = pl.Experiment(
    claim="On T-grid, PPO with contributions of an estimator that was trained beforehand earns at "
    "least 2 points more reward over its steps than PPO paid at the end.",
    arms={
        "outcome": shrink(rest_learner(pl.recipe("ppo"), WARMUP)),
        "uniform": shrink(rest_learner(build(by="uniform", beta=0.0), WARMUP)),
        "progress": shrink(build(beta=0.0, warmup=WARMUP, compare=True)),
        "progress-grounded": shrink(build(warmup=WARMUP)),
    },
    expect=pl.Greater("progress", "outcome"),
    measure=pl.Moving(),
    metric="mean training reward over the steps that move the policy",
    falsified_if="contributions that add up to the outcome teach less than 2 points more than the "
    "outcome itself",
    task="grid",
    tokens=20_000,
    evaluate=64,
    seconds=80.0,
    controls={
        "final accuracy": pl.Final(),
        "tokens an episode": pl.Logged("length"),
        "estimator's squared error after the warm-up": pl.Logged(
            "estimator/progress_error", last=1
        ),
        "correlation of contribution and progress": pl.Logged("policy/agreement", last=0),
    },
    note="In the first six steps no policy moves, in any arm: they train the estimator. Their "
    "tokens count for all arms, so every policy learns from as many; the paper does not count its "
    "exploration either. The estimator is fixed from then on, as in the paper, whose policy makes "
    "one pass over explored trajectories and so stays closer to them. The correlation is that of "
    "c_t with the change of the true distance by the action, weighted by tokens. About eight steps "
    "of PPO.",
)
