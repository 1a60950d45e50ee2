"""The claim of spa-rl: Stepwise Progress Attribution."""

import numpy as np

import palaestra as pl
from palaestra.recipes.objectives.spa_rl import build, rest_learner

WARMUP = 12  # steps


@pl.stage
class TrueProgress:
    """By turn, the share of the shortest way that the action covered, as the world tells it: what an
    estimator could learn at best.
    """

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        closer_N = np.array(pl.credit.fact_by_turn(table, "closer"), float)
        ways = [float(table.groups[int(g)].task.meta["start"].distance) for g in table.group_E]
        return pl.Values(level="turn", x_N=closer_N / np.array(ways)[table.turns.episode_N])


def small(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts x 4 answers a step, so that more steps fit into a cell."""
    return pl.override(
        pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=400)), "collect.sample.n", 4
    )


def estimated(beta: float = 0.0) -> pl.Recipe:
    """An estimator that sees each explored attempt six times, at a rate three times the policy's."""
    learned = build(beta=beta, warmup=WARMUP, compare=not beta)
    learned = pl.override(learned, "learners.estimator.update.update.epochs", 6)
    return small(pl.override(learned, "learners.estimator.optimiser.lr", 3e-4))


def paid(credit: pl.Credit | None = None) -> pl.Recipe:
    """PPO that waits as long, paid at the end or as `credit` says."""
    ppo = pl.recipe("ppo")
    return small(rest_learner(pl.vary(ppo, credit=credit) if credit else ppo, WARMUP))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "outcome": paid(),
        "uniform": small(rest_learner(build(by="uniform", beta=0.0), WARMUP)),
        "progress": estimated(),
        "true progress": paid(
            pl.chain(
                TrueProgress(), pl.Gae(gamma=1.0, lam=0.95), pl.Center("batch"), pl.Scale("batch")
            )
        ),
    },
    expect=pl.ledger.Greater("progress", "outcome", by=0.02, why="the paper's gain is 2.5 points"),
    reasons=(pl.ledger.Needs("uniform", "contributions that differ between turns"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out success (temperature 1)",
    tuned={"learners.policy.optimiser.lr": (1e-5, 3e-5, 1e-4)},
    tuning_tokens=24_000,
    task="grid",
    tokens=32_000,
    evaluate=96,
    samples=4,
    seconds=50.0,
    controls={
        "tokens an episode": pl.ledger.Logged("length"),
        "estimator's squared error after the warm-up": pl.ledger.Logged(
            "estimator/progress_error", last=1
        ),
        "correlation of contribution and progress": pl.ledger.Logged("policy/agreement", last=0),
    },
)
