"""The claim of salu: SALU: unanswerability recognition with RLHF."""

from palaestra.catalogue import recipe
from palaestra.ledger.experiment import Experiment, Greater, Logged
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.rewards.salu import build
from palaestra.step import Schedule
from palaestra.values import vary


def two_stages(scale: float, wrong: float) -> Pipeline:
    """Both stages; the first one is short, so that it abstains unreliably."""
    imitation = vary(recipe("sft"), schedule=Schedule(prompts=16, steps=12))
    rl = vary(build(scale, wrong), schedule=Schedule(prompts=8, steps=30))
    return Pipeline(parts={"sft": Part(imitation), "rl": Part(rl, model=Output("sft"))})


EXPERIMENT = Experiment(
    claim="At the end more questions are answered or declined rightly with confidence-scaled punishment than with a fixed -2.",
    arms={
        "fixed -1": two_stages(0.0, -1.0),
        "fixed -2": two_stages(0.0, -2.0),
        "scaled by confidence": two_stages(1.0, -1.0),
    },
    expect=Greater("scaled by confidence", "fixed -2"),
    falsified_if="the fixed punishment is as good or better in overall accuracy",
    metric="held-out overall accuracy: right answers and right abstentions (greedy)",
    task="unanswerable",
    tokens=20_000,
    evaluate=128,
    seconds=40,
    controls={
        "hallucinated": Logged("part/hallucinated"),
        "abstained needlessly": Logged("part/needlessly"),
        "confidence": Logged("part/confidence"),
    },
    note="Sums of two digits, in 40% of which a digit is missing; which is plain to see, unlike in retrieved text. Twelve "
    "steps of imitation come first in every arm.",
)
