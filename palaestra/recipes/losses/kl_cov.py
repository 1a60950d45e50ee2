"""KL-Cov: GRPO without a clip, and a penalty on moving the few tokens that would lower the entropy most.

    palaestra train kl-cov --data FILE.jsonl --model DIR

loss = -rho_t A_t, and + weight |log rho_t| at the share of all tokens whose covariance c_t = (A_t - mean A)
(log pi_t - mean log pi) is highest; rho = pi / pi_behaviour, a mean over all tokens of the batch
(arXiv:2505.22617; `clip-cov` is the paper's other form). The paper writes a KL of the distribution before
the update; its code and verl's `kl_cov` take |log rho| of the sampled token, as here.

In a batch of n tokens the share is max(1, n share) tokens: 2e-4 is the paper's for 32B, 2e-3 for 7B. On
policy |log rho| is 0 and has no gradient, so several updates a batch are taken. Means and ranks are those of
the whole optimiser batch, where verl takes them in a micro-batch.
"""

import palaestra as pl

CARD = pl.Card(
    title="KL-Cov: a penalty where covariance lowers the entropy",
    paper="arXiv:2505.22617",
    claim="A penalty on a few tokens of high covariance keeps the entropy from collapsing, and the policy ends higher.",
    source="paper; its released code, and verl's loss kl_cov",
    size=pl.Size(
        setting="Qwen2.5 7B and 32B on DAPO-Math, 256 prompts, G = 8, lr 1e-6, share 2e-3 and 2e-4, weight 1",
        model="qwen2.5-7b",
        prompts=256,
        samples=8,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        shows="covariance_held",
        off={"share": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "share": 0.2},
    ),
    use="It helps where entropy falls to nothing early and scores stand still from there; nothing else bounds the "
    "update, so a batch should take few of them.",
    lacks=("The paper's law of reward and entropy, R = -a e^H + b, is not fitted.",),
    grade="B",
)


def build(share: float = 2e-3, weight: float = 1.0, minibatches: int = 4) -> pl.Recipe:
    """`share` of all tokens; `weight` of their penalty."""
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.objective.KLCov(share=share, weight=weight),
        update=pl.Plain(minibatches=minibatches),
    )
