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
    claim="On T-grid, PPO with contributions of an estimator that was trained beforehand solves at least 2 "
    "points more held-out tasks in one sample, at the end, than PPO that is paid at the end of an attempt.",
    quantity="2.5% of success and 1.9% of grounded actions above the best of others, on WebShop, ALFWorld and "
    "VirtualHome",
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
    falsified_if="contributions that add up to the outcome are less than 2 points above the outcome itself",
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
    note="The older test had an estimator whose contributions agreed with true progress by .16 to .29, below the .3 that the "
    "catalogue asks for, after 192 attempts that it saw twice; it measured reward over the run. Here it sees 384 "
    "attempts six times, at a rate of 3e-4, and the end decides. In the first twelve steps no policy moves, in any "
    "arm; their tokens, about half, count for all, so every policy learns from as many. `true progress` pays what the world "
    "says the action covered of the way: where it teaches more than the outcome and `progress` does not, the "
    "estimator is to blame, and where it does not either, credit by turn has nothing to give here. Its payments "
    "need not add up to the outcome. `uniform` deals the outcome out equally. The correlation is that of c_t with "
    "the change of the true distance, weighted by tokens. The paper's grounding term (beta) is left out: it "
    "would pay long attempts. In the older test, at 1e-4 alone, the reward of training fell, from .72 to .31 with "
    "`progress` and from .92 to .73 with `outcome`, so lower rates are tried too, and a sweep has 24,000 tokens, as "
    "nothing moves before 16,000. The estimator's error is of the last batch that it learned from, not of new "
    "attempts. Nothing was looked at with this budget. Cannot show: an estimator of a large model, offline "
    "trajectories.",
)
