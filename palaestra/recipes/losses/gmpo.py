"""GMPO: GRPO on the geometric mean of an answer's token ratios in the place of their arithmetic mean.

loss = -A exp(mean_t log rho_t), log rho_t clipped to -range..range where it moves on with the sign of A
(arXiv:2507.20673; released code callsys/GMPO). One token whose ratio is far off moves an arithmetic mean,
and a geometric one hardly, so a wide range, 0.4 in logarithms, stays stable. Clips are by token, before the
mean: GSPO clips the mean instead.

    palaestra train gmpo --data problems.jsonl --model DIR
"""

import palaestra as pl

CARD = pl.Card(
    title="GMPO: Geometric-Mean Policy Optimization",
    paper="arXiv:2507.20673",
    claim="The geometric mean of token ratios trains more stably than their arithmetic mean, and ends higher on "
    "mathematics.",
    source="paper, verl's loss geo_mean",
    size=pl.Size(
        setting="Qwen2.5-Math 1.5B and 7B, DeepSeek-R1-Distill-Qwen-7B, range 0.4 in logarithms"
    ),
    needs=pl.needs.Requirements(
        shows="clipped",
        off={"update.minibatches": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "optimiser.lr": 0.02},
    ),
    use="It helps where a batch takes several updates and single tokens have extreme ratios; in the first update on a "
    "batch it is GRPO.",
    lacks=("The paper's training of mixtures of experts and on geometry is not shown.",),
    grade="A",
)


def build(range: float = 0.4, minibatches: int = 4) -> pl.Recipe:
    """`range` of log rho, on both sides."""
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.objective.GeometricMean(low=range, high=range),
        update=pl.Plain(minibatches=minibatches),
    )
