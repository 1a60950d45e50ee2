"""What claims on a real model share: SmolLM2-135M-Instruct answers short questions of common knowledge."""

from typing import Any

import palaestra as pl

EIGHT = pl.Schedule(prompts=8, steps=400)  # 8 prompts x 8 answers, some 12 updates
ACCURACY = pl.Final("sampled_after.pass@1.mean")
RIGHT = "held-out questions that are answered rightly, which of an invented country is a refusal (temperature 1)"
KNOWN = (
    "Three fifths of the questions are of 256 facts, of which the model knows some; a fact belongs to training or "
    "is held out, which 35 are, the same for all seeds and a third of them past tenses: intervals do not cover the "
    "choice of facts. The others ask for the capitals of countries that do not exist, where `unknown` is right. "
    "Looked at before the declaration, on trial seed 2000, 64 answers a step: GRPO at 3e-5 came from a training "
    "reward of .03 in the first step to .84 in the ninth, after 8,000 tokens, and stayed between .5 and .95. Most "
    "of what is learned is the form, to answer at once in a few words, and when to say `unknown`. "
)


def on_facts(**differences: Any) -> dict[str, Any]:
    """Settings of an experiment, three arms of which take half an hour on two cores, with two rates."""
    return {
        "model": "smollm2",
        "blocks": (range(0, 5),),
        "tuning_seeds": (1000,),
        "tuned": {"optimiser.lr": (1e-5, 3e-5)},
        "task": "facts",
        "tokens": 10_000,
        "evaluate": 96,
        "samples": 4,
        "seconds": 150.0,
        **differences,
    }
