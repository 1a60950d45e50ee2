"""NSR: only wrong answers train, by pushing them down; PSR and Weighted-REINFORCE are its siblings.

With r = +1 (right) or -1 (wrong) REINFORCE splits into L_PSR = -E_right[pi(y)] and L_NSR =
+E_wrong[pi(y)] (arXiv:2506.01347). A = `positive` for right answers and -`negative` for wrong ones;
no baseline, no std, no KL:

    NSR   build()                             wrong answers only, A = -1
    PSR   build(positive=1, negative=0)       right answers only, A = +1
    W-REINFORCE  build(positive=0.1)          lambda = 0.1

A side of weight 0 is left out of the batch. In expectation NSR lowers the logit of a wrong token by
p (1 - p) and raises every other one by p p_v: probability moves where the model's prior already is,
and less so where the token is rare or certain. Groups of equal rewards carry the full signal, so no
gate may drop them; where a side is empty the update is skipped. The number "wrong_answers" of a step
is their share of the tokens that train.
"""

import palaestra as pl

CARD = pl.Card(
    title="Negative / positive sample reinforcement (NSR, PSR, Weighted-REINFORCE)",
    paper="arXiv:2506.01347",
    claim="Penalising wrong answers alone improves pass@k over the whole range of k, where "
    "rewarding right ones costs diversity.",
    source="paper and released code (TianHongZXY/RLVR-Decomposed)",
    size=pl.Size(
        setting="Qwen2.5-Math-7B and Qwen3-4B on MATH, 1,024 prompts x 8, minibatch 256, 3,072 "
        "tokens, lr 1e-6, pass@k for k up to 256",
        model="qwen2.5-7b",
        prompts=1024,
        samples=8,
        tokens=3072,
        lr=1e-6,
        arguments={"update.minibatches": 4},
    ),
    needs=pl.needs.Requirements(
        shows="wrong_answers",
        off={"positive": 1.0, "negative": 0.0},
        own={"schedule.prompts": 4},
    ),
    use="It helps where pass@k at large k counts; long runs without any right answer in the loss may "
    "come apart, and `positive=0.1` holds them.",
    grade="A",
)


def build(positive: float = 0.0, negative: float = 1.0, right: float | None = None) -> pl.Recipe:
    """An answer is right from the reward `right` on; None = as the reward says, else from 1 on."""
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.credit.Outcome(positive, -negative, right=right)),
        objective=pl.Clipped(reduce="tokens"),
    )
