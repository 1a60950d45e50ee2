"""PPO with a value head and generalised advantage estimation.

A_t from GAE (arXiv:1506.02438 eq. 16, gamma 1, lambda 0.95), whitened over the batch's tokens;
clipped surrogate and clipped value loss (arXiv:1707.06347 eq. 7 and 9), two epochs of four
minibatches. The value head reads the policy's own hidden state. With `kl`, -kl * (log pi_old - log
pi_ref) is added to every token's reward (arXiv:2203.02155); `kind` chooses another estimator of
`objective.kl`, which says what the gradient of each is in a reward.
"""

import palaestra as pl

CARD = pl.Card(
    title="Proximal Policy Optimization",
    paper="arXiv:1707.06347",
    claim="Clipped ratios allow several epochs on the same samples without collapse.",
    source="paper",
    needs=pl.needs.Requirements(
        shows="clipped",
        off={"update.minibatches": 1, "update.epochs": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where rewards come at many places of an answer or one answer a prompt is all there is; "
    "with groups of answers a critic is rarely worth its cost.",
    lacks=(
        "The control tasks of the paper are not there.",
        "The value head reads the policy's hidden states; a critic with weights of its own is "
        "not there.",
    ),
    grade="A",
)


def build(kl: float = 0.0, kind: pl.objective.KLKind = "k1") -> pl.Recipe:
    rewards = pl.Gae(gamma=1.0, lam=0.95, kl=kl, kind=None if kind == "k1" else kind)
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(rewards, pl.Center("batch"), pl.Scale("batch")),
        objective=pl.Clipped(reduce="tokens") + 0.5 * pl.ValueLoss(clip=0.2),
        update=pl.Plain(epochs=2, minibatches=4),
        needs=(("policy", "value"), *(pl.credit.kl_needs(kind) if kl else ())),
        heads=("value",),
        references={"ref": "policy"} if kl else {},
    )
