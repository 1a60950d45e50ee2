"""TBA, trajectory balance with asynchrony: old samples from a buffer, no ratios, no critic.

For pi* ~ pi_ref exp(r / beta), K samples of one prompt, of any age, and z_i = log pi_ref(y_i) - log pi(y_i) + r_i / beta:

    L = mean_i (log Z - z_i)^2,   log Z = mean_i z_i without gradient        (VarGrad form of trajectory balance)

arXiv:2503.18929; constants as in bbartoldson/TBA, src/tba_trainer_gsm8k.py. L is (2 / beta^2) times AGRO's loss. beta falls
linearly from .012 to .004 over 500 steps. The buffer gives, with probability .95, the newest samples of a prompt, else
samples by reward. Searchers run on weights that are `lag` steps old; wall-clock gains need them in processes of their own.
Equal rewards still give a loss: it pulls the policy towards pi_ref on those samples. A group of one has none.
The loss is as steep as 2 / beta, so the gradient's norm is nearly always clipped; Adam does not mind its scale.
"""

from typing import Any

from palaestra.card import Card, Size
from palaestra.credit.links import Center, Chain
from palaestra.curriculum.replay import Replay
from palaestra.ledger.experiment import Experiment, Same
from palaestra.objective.residual import Balance
from palaestra.recipes.base import grpo
from palaestra.schedule import Linear, bounded
from palaestra.step import Recipe, Schedule
from palaestra.values import vary

CARD = Card(
    id="tba",
    family="objectives",
    title="Trajectory Balance with Asynchrony",
    paper="arXiv:2503.18929",
    parent="grpo",
    claim="Trajectory balance trains on samples of any age, so that search and learning can run apart at no loss.",
    changes={
        "pool": "a buffer of past samples, mostly the newest, sometimes by reward",
        "credit": "rewards less the group's mean, no scale",
        "objective": "squared trajectory balance against the start policy",
        "schedule": "rollouts of older weights",
    },
    source="released code and abstract; details of the buffer partly from configuration names",
    paper_scale=(
        "RhoMath-1B on GSM8K, K = 20 of 24, batch 140, 512 tokens, buffer filled with 500, 1,000 steps, beta .012 "
        "to .004 in 500, lr 1e-5 after 50"
    ),
    size=Size(
        model="tinyllama-1.1b",
        prompts=7,
        samples=24,
        tokens=512,
        lr=1e-5,
        arguments={"pool.samples": 20, "pool.fill": 500, "optimiser.warmup": 50},
    ),
)


def build(
    beta: float = 0.012, beta_end: float = 0.004, recent: float = 0.95, priority: float = 1.0, lag: int = 2
) -> Recipe:
    bounded("tba: beta and beta_end", min(beta, beta_end), above=0)  # the loss divides by them
    falling: Any = Linear(beta, beta_end, 500)
    return vary(
        grpo.build(),
        pool=Replay(size=16, samples=8, recent=recent, priority=priority),
        credit=Chain((Center("group"),), unit="group"),
        objective=Balance(beta=falling, weight="balance"),
        needs=(("ref", "logp"),),
        references={"ref": "policy"},
        schedule=Schedule(prompts=16, steps=50, lag=lag, max_age=32),
    )


EXPERIMENT = Experiment(
    claim="TBA is as accurate with rollouts 8 steps old as with fresh ones",
    arms={
        "tba-fresh": build(lag=0),
        "tba-old": build(lag=8),
        "tba-half-by-reward": build(lag=8, recent=0.5),
        "grpo-fresh": grpo.build(),
        "grpo-old": vary(grpo.build(), schedule=Schedule(prompts=16, steps=50, lag=8)),
    },
    expect=Same("tba-old", "tba-fresh", within=0.03),
    falsified_if="old rollouts cost or gain more than three points",
    task="add(d=4)",
    tokens=80_000,
    note="The paper's claim is wall-clock time: four times faster. One process cannot show it, only that age does no harm.",
)
