"""The claim of incorrect-synthetic-data: RL on incorrect synthetic data: per-step negatives,
advantage-weighted.
"""

from typing import Literal

import palaestra as pl
from palaestra.claims.starts import imitation
from palaestra.recipes.objectives.incorrect_synthetic_data import build


def after_imitation(form: Literal["root", "branch", "whole"]) -> pl.Pipeline:
    """First imitation of workings, until about half of them are right; then pairs."""
    pairs = pl.vary(build(form=form), schedule=pl.Schedule(prompts=4))
    return pl.Pipeline(
        parts={"sft": pl.Part(imitation(35)), "rl": pl.Part(pairs, model=pl.Output("sft"))}
    )


EXPERIMENT = pl.ledger.Experiment(
    claim="After 60,000 sampled tokens, continuations included, rejecting wrong answers up to "
    "their pit gives an accuracy 2 points above that of rejecting them whole.",
    arms={
        "whole": after_imitation("whole"),
        "per-step": after_imitation("root"),
        "per-step-branch": after_imitation("branch"),
    },
    expect=pl.ledger.Greater("per-step", than="whole"),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy of sampled answers (temperature 1)",
    falsified_if="the accuracy with negatives cut at the pit is less than 2 points above that with "
    "whole ones",
    task="chain(modulo=9)",
    tokens=60_000,
    evaluate=128,
    samples=4,
    seconds=75,
    controls={
        "accuracy (greedy)": pl.ledger.Final(),
        "accuracy after imitation (greedy)": pl.ledger.Final("parts.sft.accuracy_after.mean"),
        "pairs with steps behind the pit": pl.ledger.Logged("late", last=0),
    },
    note="The model has seen no chain modulo 9: 35 steps of imitation, 1,120 demonstrations, teach "
    "it to work, and about half of its workings go wrong, at any step. Both arms pay for the "
    "continuations that find the pit; whole does not use them. Batches are used once: with four "
    "epochs whole falls to half of its accuracy in 7 steps. The paper's data are sampled once and "
    "trained on offline, and its factor of eight is over imitation of right answers, which is not "
    "measured here.",
)
