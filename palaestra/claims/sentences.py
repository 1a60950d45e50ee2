"""What claims on a real model share: SmolLM2-135M-Instruct writes a sentence with a constraint."""

from typing import Any

import palaestra as pl

FEW = pl.Schedule(prompts=4, steps=400)  # 4 prompts x 8 answers, some sixty updates
KEPT = "held-out sentences about their topic that keep their constraint (temperature 1)"
KNOWN = (
    "All arms have one rate, as a sweep of a few steps would choose it by chance. GRPO with 8 prompts a step came "
    "from a training reward of .10 to .14 after 18,000 tokens, .19 after 28,000, .34 after 43,000 and .56 after "
    "73,000, so that batches are half as large here, for more updates: on trial seed 2000 GRPO came from .08 to .65 "
    "in 63 steps at 1e-4, and to .18 at 2e-4. There are 1,152 requests, of which 149 are held out: an evaluation "
    "meets some 58 of these, others for each seed, and training meets most of its own once. Of the experiments "
    "that were measured first the intervals of five seeds reach 13 points to each side: five seeds tell large "
    "differences alone."
)


def sentences(**differences: Any) -> dict[str, Any]:
    """Settings of an experiment, three arms of which take three quarters of an hour on two cores."""
    return {
        "model": "smollm2",
        "blocks": (range(0, 5),),
        "tuning_seeds": (1000,),
        "tuned": {"optimiser.lr": (1e-4,)},
        "task": "constraints",
        "tokens": 24_000,
        "evaluate": 96,
        "samples": 4,
        "seconds": 360.0,
        **differences,
    }
