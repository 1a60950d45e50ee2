"""The claim of infinite-sampling: a quarter fewer steps than rounds, with a quarter of the slots."""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.data.infinite_sampling import build

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "start": build("full"),
        "rounds": build("rounds"),
        "fifo": build("fifo"),
        "predicted": build("predicted"),
        "told": build("told"),
        "shuffled": build("shuffled"),
    },
    start=None,
    expect=pl.ledger.Greater("predicted", "rounds", by=0.25, why="the least that the paper gains"),
    reasons=(
        pl.ledger.Needs("fifo", "an order by length, beyond refills"),
        pl.ledger.Needs("shuffled", "predictions of the answer's own length"),
    ),
    vetoes={
        "memory": pl.ledger.Veto(
            pl.ledger.Less(pl.ledger.Final("cache_mb")), falls=0.0, against="rounds"
        )
    },
    measure=pl.ledger.Final("steps_saved"),
    metric="share of the decoding steps of rounds that is saved",
    constants={arm: {"probe": (1, 4, 8)} for arm in ("predicted", "shuffled")},
    task="chain",
    tokens=1,
    evaluate=0,
    seconds=10,
    controls={
        "decoding steps": pl.ledger.Final("steps"),
        "fewest steps of any plan": pl.ledger.Final("fewest"),
        "waves of prompts read": pl.ledger.Final("read_steps"),
        "sequences at a time": pl.ledger.Final("peak_slots"),
        "memory of keys and values, MB": pl.ledger.Final("cache_mb"),
        "digest of all samples": pl.ledger.Final("samples"),
    },
)

SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    model="smollm2",
    blocks=(range(0, 5),),
    tuning_seeds=(1000,),
    constants={arm: {"probe": (1, 4)} for arm in ("predicted", "shuffled")},
    task="constraints",
    seconds=100.0,
)
