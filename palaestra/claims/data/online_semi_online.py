"""The claim of online-semi-online: how far behind the weights that sample may be."""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.claims.facts import KNOWN, RIGHT, on_facts
from palaestra.claims.starts import RATES
from palaestra.recipes.data.online_semi_online import build


def arm(sync: int, **options: Any) -> pl.Recipe:
    """8 prompts an update with 4 answers."""
    setting: dict[str, Any] = {"prompts": 8, "n": 4, **options}
    return build(sync, **setting)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "offline": arm(0),
        "online": arm(1),
        "s 5": arm(5),
        "s 5 by snapshots": arm(5, form="snapshots"),
        "grpo online": arm(1, method="grpo"),
        "grpo s 5": arm(5, method="grpo"),
    },
    expect=pl.ledger.Greater(
        "s 5", "offline", by=0.1, why="what a reader of the paper's curves would call strongly"
    ),
    reasons=(pl.ledger.Needs("offline", "answers of weights that move"),),
    vetoes={
        "as good as online": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.05, against="online"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": RATES},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="add(d=6)",
    tokens=20_000,
    evaluate=96,
    samples=4,
    seconds=12.0,
    controls={
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "length": pl.ledger.Logged("length"),
        "margin, nats times beta": pl.ledger.Logged("margin"),
    },
)

SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    arms={n: build(sync, prompts=4) for n, sync in (("offline", 0), ("online", 1), ("s 5", 5))},
    metric=RIGHT,
    **on_facts(tokens=12_000),
    controls={
        **EXPERIMENT.controls,
        "prompts with a pair": pl.ledger.Logged("groups_mixed", last=0),
    },
    note="4 prompts an update with 8 answers; GRPO and snapshots, arms of the tiny model's claim, are left out. Few of the "
    "start's answers are right, so at first about one prompt in five has a pair, and many updates of offline DPO are "
    "of one pair or none: that is how it would stay behind, and not by the age of its pairs alone. s = 5 samples 160 "
    "answers at once, up to 3,840 tokens, so it may end above the budget by as much. DPO's rate is chosen of two, on one "
    f"seed. {KNOWN}Nothing of these arms was looked at.",
)
