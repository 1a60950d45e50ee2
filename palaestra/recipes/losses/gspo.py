"""GSPO: GRPO whose importance ratio is one number for the whole answer, and is clipped as a whole.

s_i = (pi(y_i) / pi_old(y_i))^(1 / |y_i|), the geometric mean of the token ratios, in the place of each
token's own ratio (arXiv:2507.18071, eq. 5 to 7; A_i as in GRPO). An answer is in the trust region or
it is not, which suits mixtures of experts, whose token ratios jump with the routing. Ranges are
small, 3e-4 below and 4e-4 above, because a mean over tokens moves little. In the first update on a
batch every ratio is 1, so the paper makes four; with `update.minibatches=1` it is GRPO.

`token=True` is GSPO-token (eq. 13 and 14): the same values, with a gradient by token, which differs
where the advantages of an answer's tokens differ. A sequence is a row: an answer of several rows
has a ratio for each.
"""

import palaestra as pl

CARD = pl.Card(
    title="GSPO: Group Sequence Policy Optimization",
    paper="arXiv:2507.18071",
    claim="A ratio of whole answers trains more stably than ratios of tokens, above all with "
    "mixtures of experts.",
    source="paper, TRL's documentation",
    size=pl.Size(
        setting="Qwen3-30B-A3B base, four minibatches a batch, clip 3e-4 and 4e-4, no KL",
    ),
    needs=pl.needs.Requirements(
        shows="clipped",
        off={"update.minibatches": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "optimiser.lr": 0.01},
    ),
    use="It helps where a batch takes several updates and token ratios are noisy; with one update a "
    "batch it is GRPO.",
    lacks=("The training of a mixture of experts is not shown.",),
    grade="A",
)


def build(token: bool = False, low: float = 3e-4, high: float = 4e-4) -> pl.Recipe:
    ratio = "sequence-mean-token" if token else "sequence-mean"
    return pl.vary(
        pl.recipe("grpo"),
        objective=pl.Clipped(low=low, high=high, ratio=ratio),
        update=pl.Plain(minibatches=4),
    )
