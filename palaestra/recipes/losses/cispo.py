"""CISPO: clips the importance weight of a token instead of dropping the token.

loss = -sg(min(rho_t, cap)) A log pi(y_t), a mean over all tokens of the batch, with GRPO's advantage
(arXiv:2506.13585, eq. 4 and 5; sg stops the gradient). PPO's clip leaves a token without a gradient
once its ratio has moved far enough; here every token keeps one, with a bounded weight. The paper
bounds the weight above only and gives no number: 5 is that of TRL's documentation, after ScaleRL
(arXiv:2510.13786).
"""

import palaestra as pl

CARD = pl.Card(
    title="CISPO: clipped importance-sampling weights (MiniMax-M1)",
    paper="arXiv:2506.13585",
    claim="Bounding importance weights instead of dropping tokens learns twice as fast as DAPO.",
    source="paper, TRL's documentation for the bound",
    size=pl.Size(setting="Qwen2.5-32B base on AIME 2024; MiniMax-M1, 456B with 46B active"),
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where a batch takes many updates and rare tokens that begin a thought would be "
    "clipped; in the first update on a batch it is REINFORCE.",
    lacks=(
        "The architecture of MiniMax-M1 and its precision repairs are not there.",
        "Dynamic sampling and the overlong penalty of DAPO, which the paper adds, are `dapo`'s.",
    ),
    grade="B",
)


def build(cap: float = 5.0, minibatches: int = 4) -> pl.Recipe:
    """`cap` is 1 + epsilon_high of the paper."""
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.Reinforce(reduce="tokens", weighted=True, cap=cap),
        update=pl.Plain(minibatches=minibatches),
    )
