"""Clip-Cov: GRPO in which a few tokens that would lower the entropy most have no gradient.

    palaestra train clip-cov --data FILE.jsonl --model DIR

The entropy of a policy falls, to first order, by the covariance of log-probability and advantage, c_t = (A_t
- mean A) (log pi_t - mean log pi), and a few tokens carry most of it (arXiv:2505.22617). Of all tokens the
share 2e-4, drawn among those with c_t between 1 and 5 that PPO's clip leaves, get no gradient. Loss: a mean
over all tokens of the batch, with GRPO's advantages.

In a batch of n tokens that is max(1, n / 5000): for the small batches of a trial raise `share`. Means are
over the whole optimiser batch, where verl's `clip_cov` takes those of a micro-batch.
"""

import palaestra as pl

CARD = pl.Card(
    title="Clip-Cov: no gradient where covariance lowers the entropy",
    paper="arXiv:2505.22617",
    claim="Holding back a few tokens of high covariance keeps the entropy from collapsing, and the policy ends higher.",
    source="paper; its released code, and verl's loss clip_cov",
    size=pl.Size(
        setting="Qwen2.5 7B and 32B on DAPO-Math, 256 prompts, G = 8, lr 1e-6, share 2e-4, bounds 1 and 5",
        model="qwen2.5-7b",
        prompts=256,
        samples=8,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        shows="covariance_cut",
        off={"share": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "share": 0.2, "least": 0.0},
    ),
    use="It helps where entropy falls to nothing early and scores stand still from there; where it stays, it "
    "changes next to nothing.",
    lacks=("The paper's law of reward and entropy, R = -a e^H + b, is not fitted.",),
    grade="B",
)


def build(
    share: float = 2e-4, least: float = 1.0, most: float = 5.0, minibatches: int = 4
) -> pl.Recipe:
    """`share` of all tokens; `least` and `most` bound their covariance."""
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.objective.ClipCov(share=share, least=least, most=most),
        update=pl.Plain(minibatches=minibatches),
    )
