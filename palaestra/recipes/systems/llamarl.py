"""LlamaRL: rollouts and learner side by side, and a correction for the age of what is learned from.

While the learner takes step s, workers sample step s + 1 with the weights that they have, so what
is learned from is `lag` steps old (arXiv:2505.24034). AIPO corrects for that:

    grad = E[ sum_t min(pi(a_t) / mu(a_t), rho) A grad log pi(a_t) ],    A = r - mean r of the group

mu are the log-probs that the sampler recorded with its tokens, the ratio has no gradient of its
own, and there is no clip of PPO: old samples keep their gradient, and only weights above `rho` are
cut. rho is 2 to 10. A mean over rows and `length` stands for the sum over tokens, which rescales
the loss. In a group of equal rewards A is 0.

The executors and channels of the paper are a run's `--cluster`, see docs/cluster.md; without one
the same numbers come from one process. Not built: generation in low precision, weights that go
from GPU to GPU without a copy in host memory, and offloading of colocated models.

Of its theory, by which separate devices are strictly faster than shared ones, the two cost models run,

    synchronous (Cg + Ct) / n,    asynchronous max(Cg' / g, Ct' / (n - g)),

on the measured seconds of a run, for the best split in whole devices: `palaestra plan --run DIR` prints both.
A run knows one Cg and one Ct, so Cg' = Cg and Ct' = Ct there, and then the second is never below the first
(a mechanism check, tests/scale/test_costs.py): what makes separate devices strictly faster is the paper's
assumption that both kinds of work get cheaper with the memory that is freed. That assumption is neither
measured nor proved here.
"""

import palaestra as pl

CARD = pl.Card(
    title="LlamaRL: distributed asynchronous single-controller RL",
    paper="arXiv:2505.24034",
    claim="A generator that samples while the trainer learns makes a step up to 10.7 times faster "
    "at 405B, and AIPO keeps learning from its older samples stable.",
    source="abstract and second-hand overviews; the range of rho from memory, A without a division "
    "by the standard deviation is our reading",
    size=pl.Size(
        setting="Llama 3 8B, 70B and 405B, up to 1,024 H100; MATH and GSM8K; details second-hand",
    ),
    needs=pl.needs.Requirements(shows="age_mean", off={"lag": 0}, own={"schedule.prompts": 2}),
    use="It helps where samples are several steps old; at an age of one step the weights are near 1 "
    "and it is REINFORCE.",
    lacks=(
        "Nothing is sampled in low precision.",
        "Weights pass through host memory, not from GPU to GPU.",
        "References stay where they are: they are not offloaded to host memory between uses.",
    ),
    grade="B",
)


def build(rho: float = 2.0, lag: int = 1, length: float | None = None) -> pl.Recipe:
    """`rho` caps pi / mu, `lag` is the age of samples in steps, `length` the longest answer
    allowed, in tokens; None = the run's.
    """
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("group")),
        objective=pl.Reinforce(reduce="constant", length=length, weighted=True, cap=rho),
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag),
    )
