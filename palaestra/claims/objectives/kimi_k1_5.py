"""The claim of kimi-k1.5: mirror descent on whole answers with a length reward."""

import palaestra as pl
from palaestra.recipes.objectives.kimi_k1_5 import build

EXPERIMENT = pl.Experiment(
    claim="a length reward that starts after 20 steps makes right answers shorter by more than a "
    "token, at the same accuracy",
    arms={
        "mirror-descent": build(),
        "length-late": build(length=0.5),
        "length-at-once": build(length=0.5, length_from=0),
        "prioritised": build(sampling="prioritised"),
        "shortest-imitated": build(long2short="rejection"),
        "shortest-preferred": build(long2short="dpo"),
        "grpo": pl.recipe("grpo"),
    },
    expect=pl.Greater("mirror-descent", than="length-late", by=1.0),
    falsified_if="right answers are no shorter than without the length reward",
    measure=pl.Logged("length_right"),
    metric="tokens of a right answer, last 10 steps",
    controls={"accuracy": pl.Final()},
    task="sort",
    tokens=80_000,
    note="On `sort` an answer that is right may be short, guessed at once, or long, worked out. A "
    "first run on `chain`, where all right answers have one length, decided nothing (27.7 against "
    "27.8 tokens).",
)
