"""PPO with a value head and generalised advantage estimation.

A_t from GAE (arXiv:1506.02438 eq. 16, gamma 1, lambda 0.95), whitened over the batch's tokens;
clipped surrogate and clipped value loss (arXiv:1707.06347 eq. 7 and 9), two epochs of four
minibatches. The value head reads the policy's own hidden state. With `kl`, -kl * (log pi_old - log
pi_ref) is added to every token's reward (arXiv:2203.02155); `kind` chooses another estimator of
`objective.kl`, which says what the gradient of each is in a reward.

The values' gradients go through the policy's weights too, and with 0.5 of them they can break it: on three-digit sums with
the built-in model, 8 prompts of 8 answers, the reward of step 19 was 0.55, 0.83 and 0.02 (seeds 0 to 2) as the recipe is,
0.91, 0.64 and 0.00 with `lam=1`, 0.34, 0.20 and 0.92 with `value=0.05`, and 0.89, 0.89 and 0.92 with both. One task, three
seeds: no claim, but try `lam=1 value=0.05` where answers grow and rewards fall.
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


def build(
    kl: float = 0.0, kind: pl.objective.KLKind = "k1", lam: float = 0.95, value: float = 0.5
) -> pl.Recipe:
    """`lam` is the lambda of GAE, `value` the weight of the value loss."""
    rewards = pl.Gae(gamma=1.0, lam=lam, kl=kl, kind=None if kind == "k1" else kind)
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(rewards, pl.Center("batch"), pl.Scale("batch")),
        objective=pl.Clipped(reduce="tokens") + value * pl.ValueLoss(clip=0.2),
        update=pl.Plain(epochs=2, minibatches=4),
        needs=(("policy", "value"), *(pl.credit.kl_needs(kind) if kl else ())),
        heads=("value",),
        references={"ref": "policy"} if kl else {},
    )
