"""Beyond the 80/20 rule: policy gradient on the tokens of highest entropy only.

With H_{i,t} the entropy of the policy at position t, at the training temperature, and tau the
threshold that a fraction rho = 0.2 of the batch's response tokens reaches (arXiv:2506.01939):

    J = E[ 1 / sum_i |o_i| * sum_{i,t} 1[H_{i,t} >= tau] min(r A, clip(r, 1 - 0.2, 1 + 0.28) A) ],   r = pi / pi_old

on DAPO: token mean, clip-higher, groups of equal rewards dropped and drawn again, dual clip 10 for
A < 0, no KL. Exactly k = ceil(rho N) tokens are kept, ties cut by position. `variant="released"`
divides by k instead of N, as the released code does (1/rho times the loss). That code ranks within
a micro-batch; here the optimiser batch is ranked as in the paper's text. With `micro=True` the
micro-batch is, and the gradient depends on how the batch is split for memory. Masked tokens carry
no gradient. A lone sample or equal rewards have A = 0.

The number "entropy_left_out" of a step is the entropy of the tokens that do not train, over all
tokens.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="Beyond the 80/20 rule: high-entropy minority tokens",
    paper="arXiv:2506.01939",
    claim="Training on the fifth of the tokens with the highest entropy is as good as training on "
    "all of them.",
    source="released code (Shenzhi-Wang/Beyond-the-80-20-Rule-RLVR), TRL, abstract",
    size=pl.Size(
        setting="Qwen3-8B/14B/32B base, 512 prompts x 16 kept of three times as many, minibatches "
        "of 32 prompts, 20,480 tokens, lr 1e-6 after 10 steps, weight decay 0.1",
        model="qwen3-32b",
        prompts=512,
        samples=16,
        tokens=20480,
        lr=1e-6,
        arguments={"update.minibatches": 16, "optimiser.weight_decay": 0.1, "optimiser.warmup": 10},
    ),
    needs=pl.needs.Requirements(
        shows="entropy_left_out",
        off={"share": 1.0},
        own={"schedule.prompts": 4, "pool.size": 2},
    ),
    use="It is for long reasoning by large models, with which the paper's gain grows; in short answers "
    "of a small model the fifth holds little beside the first token.",
    lacks=(
        "The analyses of entropy before and after training are not part of a run.",
        "The paper's penalty for overlong answers is not added.",
    ),
    grade="A",
)


def build(
    share: float = 0.2,
    by: Literal["entropy", "low-entropy", "random"] = "entropy",
    variant: Literal["paper", "released"] = "paper",
    micro: bool = False,
) -> pl.Recipe:
    over = "all" if variant == "paper" else "selected"
    return pl.vary(
        pl.recipe("grpo"),
        pool=pl.Mixed(size=0),
        objective=pl.objective.TokenWeighted(
            pl.DualClipped(), pl.objective.TopTokens(share, by, over, micro)
        ),
    )
