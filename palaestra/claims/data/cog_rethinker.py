"""The claim of cog-rethinker: further prompts for what nobody solves, and their answers imitated."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS
from palaestra.recipes.data.cog_rethinker import build

SIZE = 8  # groups a step trains on


def staged(**options: Any) -> pl.Recipe:
    """What this model knows as an instruction to solve a problem by its parts is "think step by
    step"; that an answer is wrong it is told by the message behind it.
    """
    setting: dict[str, Any] = {
        "decompose": pl.tasks.THINK_STEPWISE.text,
        "reflect": "",
        "size": SIZE,
        **options,
    }
    return pl.vary(build(**setting), schedule=pl.Schedule(prompts=SIZE, steps=100, rounds=64))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "dapo": staged(stages=()),
        "decomposition": staged(stages=(2,)),
        "reflection": staged(stages=(3,)),
        "both": staged(),
        "both but no imitation": staged(imitate=0.0),
        "both but no examples": staged(shots=0),
        "plain second attempts": staged(stages=(2,), decompose="", shots=0),
    },
    expect=pl.ledger.Greater("both", "dapo", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs(
            "both but no imitation", "right answers of other prompts, imitated in the direct one"
        ),
        pl.ledger.Needs("decomposition", "reflection"),
        pl.ledger.Needs("plain second attempts", "another prompt than before"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy with the direct prompt (temperature 1)",
    tuned={"optimiser.lr": RATES[:2]},
    task="bool(d=6)",
    tokens=25_000,
    tuning_tokens=10_000,
    evaluate=128,
    samples=4,
    seconds=60.0,
    controls={
        "groups with a gradient": pl.ledger.Logged("groups_mixed_trained", last=0),
        "prompts drawn a step": pl.ledger.Logged("groups", last=0),
    },
)
