"""NSR: reinforcement of negative samples alone; PSR and Weighted-REINFORCE are its siblings.

With r = +1 (right) or -1 (wrong) REINFORCE splits into L_PSR = -E_right[pi(y)] and L_NSR = +E_wrong[pi(y)] (arXiv:2506.01347).
A = `positive` for right answers and -`negative` for wrong ones; no baseline, no std, no KL:

    NSR   build()                             wrong answers only, A = -1
    PSR   build(positive=1, negative=0)       right answers only, A = +1
    W-REINFORCE  build(positive=0.1)          lambda = 0.1

A side of weight 0 is left out of the batch. In expectation NSR lowers the logit of a wrong token by p (1 - p) and raises every
other one by p p_v: probability moves where the model's prior already is, and less so where the token is rare or certain.
Groups of equal rewards carry the full signal, so no gate may drop them; where a side is empty the update is skipped.
"""

from palaestra.card import Card, Size
from palaestra.credit.links import Outcome, chain
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped
from palaestra.recipes.base import grpo
from palaestra.step import Recipe
from palaestra.values import vary

CARD = Card(
    id="nsr",
    family="objectives",
    title="Negative / positive sample reinforcement (NSR, PSR, Weighted-REINFORCE)",
    paper="arXiv:2506.01347",
    parent="grpo",
    claim="Penalising wrong answers alone improves pass@k over the whole range of k, where rewarding right ones costs diversity.",
    changes={
        "credit": "the sign of the outcome, without a baseline; right answers are left out (or weigh lambda)",
        "objective": "every token of the batch weighs the same",
    },
    source="paper and released code (TianHongZXY/RLVR-Decomposed)",
    paper_scale=(
        "Qwen2.5-Math-7B and Qwen3-4B on MATH, 1,024 prompts x 8, minibatch 256, 3,072 tokens, lr 1e-6, pass@k for "
        "k up to 256"
    ),
    size=Size(model="qwen2.5-7b", prompts=1024, samples=8, tokens=3072, lr=1e-6, arguments={"update.minibatches": 4}),
)


def build(positive: float = 0.0, negative: float = 1.0) -> Recipe:
    return vary(grpo.build(), credit=chain(Outcome(positive, -negative)), objective=Clipped(reduce="tokens"))


EXPERIMENT = Experiment(
    claim="After equal sampled tokens pass@16 is higher with NSR than with PSR.",
    arms={
        "psr": build(positive=1.0, negative=0.0),
        "nsr": build(),
        "w-reinforce": build(positive=0.1),
        "reinforce": build(positive=1.0),
        "grpo": grpo.build(),
    },
    expect=Greater("nsr", "psr"),
    falsified_if="PSR has a higher pass@16 than NSR",
    measure=Final("sampled_after.pass@16.mean"),
    metric="held-out pass@16 (temperature 1)",
    task="count",
    tokens=60_000,
    evaluate=128,
    samples=16,
    controls={
        "pass@1": Final("sampled_after.pass@1.mean"),
        "pass@4": Final("sampled_after.pass@4.mean"),
        "entropy": Logged("entropy_sampled"),
    },
    note="k ends at 16 here, at 256 in the paper. The small model is right in a few of a hundred samples, so NSR "
    "sees nearly the whole batch.",
)
