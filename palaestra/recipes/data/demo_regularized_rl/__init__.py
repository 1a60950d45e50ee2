"""Demonstration-regularized RL: the policy first clones demonstrations, then RL keeps it near the clone
by a KL.

    pi_BC = argmax_pi  mean log pi(y_demo | x)                     behaviour cloning: imitation
    max_pi  E_pi r(x, y) - lambda KL(pi || pi_BC)                  RL near the clone

The KL is that of whole replies, as in the paper's trajectories. It is taken from the reward,

    A = r - lambda sum_t log pi(y_t) / pi_BC(y_t) - the group's mean

whose optimum is pi ~ pi_BC exp(r / lambda) (arXiv:2310.17303). The paper's lambda is about epsilon N_E /
(S A H): the more demonstrations N_E there are, the nearer to their clone the policy may stay. A language
model has no S and A to count, so `beta` is lambda itself: raise it with the number of demonstrations.
The reward may be a verifier's, or a reward model's that was learned from preferences (--reward DIR),
which is the paper's RLHF.

The theorem is about tables: `tables.py` solves them exactly and counts the episodes that demonstrations
save. `DemonstrationRegularised` there is a program of its own, and the claim of this row is about it.

Deviations: the advantage has a baseline, and PPO's clip bounds the update; the paper's algorithm explores
with bonuses, which only the tables have. Linear MDPs are left out.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="Demonstration-regularized RL",
    paper="arXiv:2310.17303",
    claim="With N_E demonstrations an epsilon-optimal policy takes poly(S, A, H) / (epsilon^2 N_E) "
    "episodes.",
    source="abstract; the regularised Bellman equations are standard, the bonuses and the form for "
    "language models are ours",
    size=pl.Size(setting="theory alone, no language model is trained"),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER, pl.needs.DEMONSTRATION),
        shows="kl_penalty",
        off={"beta": 0.0},
        own={
            "clone.schedule.prompts": 4,
            "rl.schedule.prompts": 4,
            "rl.collect.links.0.n": 4,
        },
    ),
    use="It helps where demonstrations are good and many: a policy near their clone needs fewer attempts, "
    "and cannot drift into what a learned reward misjudges; poor demonstrations hold it back.",
    lacks=(
        "Linear MDPs are not there, and inside the tables no reward is estimated from preferences.",
        "The form for language models has no bonuses for exploration.",
    ),
    grade="B",
)
CLONE = "clone"


@pl.stage
class MarkPenalty:
    """Leaves the column "kl_penalty" of the answers: by how much the KL lowers their reward."""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        lost = pl.Values(level="episode", x_N=table.reward_E - x.x_N)
        table.add_column("kl_penalty", lost)
        return x


def build(beta: float = 0.05) -> pl.Pipeline:
    """`beta` is lambda, in units of reward per nat."""
    near = pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.credit.LessKL(beta, model=CLONE), MarkPenalty(), pl.Center("group")),
        objective=pl.Clipped(reduce="tokens") + pl.Track(("kl_penalty",)),
        needs=pl.credit.kl_needs("k1", CLONE),
        references={CLONE: "policy"},  # a copy of the model that this part starts from
    )
    return pl.Pipeline(
        parts={
            CLONE: pl.Part(pl.recipe("sft")),
            "rl": pl.Part(near, model=pl.Output(CLONE)),
        }
    )


def embedded(**options: Any) -> pl.Pipeline:
    """On the embedded problem: twelve steps of imitation, then eight of RL."""
    rl = build(**options).parts["rl"]
    clone = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=12))
    near = pl.vary(rl.runnable, schedule=pl.Schedule(prompts=8, steps=8))
    return pl.Pipeline(parts={CLONE: pl.Part(clone), "rl": replace(rl, runnable=near)})
