"""TBA, trajectory balance with asynchrony: learns from a buffer of answers of any age, by a loss that
needs no ratios and no critic.

For pi* ~ pi_ref exp(r / beta), K samples of one prompt, of any age, and z_i = log pi_ref(y_i) - log
pi(y_i) + r_i / beta:

    L = mean_i (log Z - z_i)^2,   log Z = mean_i z_i without gradient        (VarGrad form of trajectory balance)

arXiv:2503.18929; constants as in bbartoldson/TBA, src/tba_trainer_gsm8k.py. L is (2 / beta^2) times
AGRO's loss. beta falls linearly from .012 to .004 over 500 steps. The buffer gives, with
probability .95, the newest samples of a prompt, else samples by reward. Searchers run on weights
that are `lag` steps old; wall-clock gains need them in processes of their own. Equal rewards still
give a loss: it pulls the policy towards pi_ref on those samples. A group of one has none. The loss
is as steep as 2 / beta, so the gradient's norm is nearly always clipped; Adam does not mind its
scale.
"""

from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="Trajectory Balance with Asynchrony",
    paper="arXiv:2503.18929",
    claim="Trajectory balance trains on samples of any age, so that search and learning can run "
    "apart at no loss.",
    source="released code and abstract; details of the buffer partly from configuration names",
    size=pl.Size(
        setting="RhoMath-1B on GSM8K, K = 20 of 24, batch 140, 512 tokens, buffer filled with 500, "
        "1,000 steps, beta .012 to .004 in 500, lr 1e-5 after 50",
        model="tinyllama-1.1b",
        prompts=7,
        samples=24,
        tokens=512,
        lr=1e-5,
        arguments={"pool.samples": 20, "pool.fill": 500, "optimiser.warmup": 50},
    ),
    needs=pl.needs.Requirements(
        shows="age_max",
        off={"lag": 0, "recent": 1.0},
        own={"schedule.prompts": 4, "pool.size": 4, "collect.links.0.n": 4},
    ),
    use="It helps where sampling runs apart from learning and rewards are rare, so that old good answers "
    "are worth another look; with fresh answers at hand it only weighs them otherwise.",
    lacks=(
        "How much faster processes apart are is not measured.",
        "Preference tuning and red-teaming are not there.",
        "Searchers do not run freely: every step samples its prompts and then trains once.",
        "Recorded answers cannot fill the buffer.",
    ),
    grade="B",
)


def build(
    beta: float = 0.012,
    beta_end: float = 0.004,
    recent: float = 0.95,
    priority: float = 1.0,
    lag: int = 2,
) -> pl.Recipe:
    # the loss divides by them
    pl.check_bounds("tba: beta and beta_end", min(beta, beta_end), above=0)
    falling: Any = pl.Linear(beta, beta_end, 500)
    return pl.vary(
        pl.recipe("grpo"),
        pool=pl.Replay(size=16, samples=8, recent=recent, priority=priority),
        credit=pl.Chain((pl.Center("group"),), unit="group"),
        objective=pl.objective.Balance(beta=falling, weight="balance"),
        needs=(("ref", "logp"),),
        references={"ref": "policy"},
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag, max_age=32),
    )
