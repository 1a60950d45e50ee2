"""AGRO, any-generation reward optimisation: learns from fresh and old answers by one loss, which
makes the reward less the log-ratio to the start equal for all answers to a prompt.

The optimum of max E[r] - beta KL(pi || pi_ref) makes d(y) = r(y) - beta log pi(y)/pi_ref(y) the
same for EVERY generation y of a prompt ("generation consistency"). So, for n samples of any origin,
with dbar their mean,

    L = 1/(2n) sum_i (d_i - dbar)^2,    -dL/d log pi(y_i) = beta (d_i - dbar) / n

(arXiv:2503.19612; the constants 1/2 and 1/n are ours: the paper's own estimator was not at hand;
`unbiased=True` divides by n - 1, which makes L unbiased for half the variance). No importance ratio
is needed off-policy. On-policy the sampling distribution moves too: `on_policy=True` adds E[(d -
dbar)^2 / 2 * grad log pi]. A group of one has no residual; equal rewards still pull the log-ratios
of a group together; log-ratios are sums over whole generations, so gradients are clipped. Against
trajectory balance: L_TB = (2 / beta^2) L.
"""

import palaestra as pl

CARD = pl.Card(
    title="AGRO: Any-Generation Reward Optimization",
    paper="arXiv:2503.19612",
    claim="One squared consistency loss learns from on- and off-policy samples alike and beats "
    "policy gradients off-policy.",
    source="theorem from summaries of the paper, estimator derived",
    size=pl.Size(
        setting="Llama 3 8B on MATH; beta is not known",
        model="llama-3.1-8b",
    ),
    needs=pl.needs.Requirements(
        shows="residual",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where answers are older than the policy, of which it needs no ratio; on fresh answers a "
    "policy gradient does as well.",
    lacks=(
        "The paper's own estimator and its proofs of convergence are not there.",
        "Answers of a file with rewards cannot be brought: off-policy answers are the run's "
        "own older ones.",
    ),
    grade="B",
)


def build(
    beta: float = 0.1, on_policy: bool = False, lag: int = 0, unbiased: bool = False
) -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.Chain((pl.Center("group"),), unit="group"),
        objective=pl.objective.Balance(
            beta=beta, weight="variance", on_policy=on_policy, unbiased=unbiased
        ),
        needs=(("ref", "logp"),),
        references={"ref": "policy"},
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag),
    )
