"""What claims on a real model share: SmolLM2-135M-Instruct answers short questions of common knowledge."""

from typing import Any

import palaestra as pl
from palaestra.claims.sentences import sentences

INVENTED, REAL = "facts(share=1)", "facts(share=0)"  # exams
EIGHT = pl.Schedule(prompts=8, steps=400)  # 8 prompts x 8 answers, some 12 batches
RIGHT = "held-out questions that are answered rightly, which of an invented country is a refusal (temperature 1)"
KNOWN = (
    "Three fifths of the questions are of 256 facts, of which the model knows some; a fact belongs to training or "
    "is held out, which 35 are, the same for all seeds and a third of them past tenses: intervals do not cover the "
    "choice of facts. The others ask for the capitals of countries that do not exist, where `unknown` is right. "
    "Looked at before the declaration, on trial seed 2000, with 64 answers a step, three facts more and a checker that "
    "took several lines for an answer: GRPO at 3e-5 came from a training reward of .03 in the first step to .84 in the "
    "ninth, after 8,000 tokens, and stayed between .5 and .95. Most of what is learned is to "
    "say surely what the likeliest answer is already, in the form that is asked for: greedily the start answers .57 of 96 "
    "held-out questions rightly. "
)


def right_of(exam: str) -> pl.ledger.Final:
    """The share of an exam's questions that are answered rightly at temperature 1."""
    return pl.ledger.Final(f"evaluations.{exam}.after.pass@1.mean")


def on_facts(**differences: Any) -> dict[str, Any]:
    """Settings of an experiment, three arms of which take half an hour on two cores, with two rates."""
    facts: dict[str, Any] = {
        "tuned": {"optimiser.lr": (1e-5, 3e-5)},
        "task": "facts",
        "tokens": 10_000,
        "seconds": 150.0,
    }
    return sentences(**facts | differences)
