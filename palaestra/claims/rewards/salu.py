"""The claim of salu: SALU: unanswerability recognition with RLHF."""

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS
from palaestra.recipes.rewards.salu import build


def two_stages(scale: float, wrong: float) -> pl.Pipeline:
    """Both stages; the first one is short, so that it abstains unreliably."""
    imitation = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=16, steps=12))
    rl = pl.vary(build(scale, wrong), schedule=pl.Schedule(prompts=8, steps=30))
    return pl.Pipeline(parts={"sft": pl.Part(imitation), "rl": pl.Part(rl, model=pl.Output("sft"))})


ARMS = {
    "fixed -1": two_stages(0.0, -1.0),
    "fixed -1.85": two_stages(0.0, -1.85),
    "fixed -2": two_stages(0.0, -2.0),
    "scaled by confidence": two_stages(1.0, -1.0),
}


EXPERIMENT = pl.Experiment(
    claim="At the end more questions are answered or declined rightly with confidence-scaled "
    "punishment than with a fixed -2.",
    quantity="overall accuracy .908 against .847 for another system; the punishment's own part is "
    "not given",
    start=pl.Pipeline(
        parts={
            "sft": pl.Part(pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=16, steps=12))),
            "start": pl.Part(pl.Untrained(), model=pl.Output("sft")),
        }
    ),
    arms=ARMS,
    expect=pl.Greater("scaled by confidence", "fixed -2", why=TWO_POINTS),
    reasons=(pl.Needs("fixed -1.85", "the confidence of each answer, beside its mean of 0.85"),),
    constants={arm: {"rl.optimiser.lr": RATES} for arm in ARMS},
    falsified_if="the fixed punishment is as good or better in overall accuracy",
    metric="held-out overall accuracy: right answers and right abstentions (greedy)",
    task="unanswerable",
    tokens=20_000,
    evaluate=128,
    seconds=40,
    controls={
        "hallucinated": pl.Logged("part/hallucinated"),
        "abstained needlessly": pl.Logged("part/needlessly"),
        "confidence": pl.Logged("part/confidence"),
    },
    note="Sums of two digits, in 40% of which a digit is missing; which is plain to see, unlike in "
    "retrieved text. Twelve steps of imitation come first in every arm.",
)
