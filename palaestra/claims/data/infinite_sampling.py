"""The claim of infinite-sampling: a quarter fewer steps than rounds, with a quarter of the slots."""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.data.infinite_sampling import build

EXPERIMENT = pl.ledger.Experiment(
    claim="Groups of 32 answers through 8 slots take at least 25% fewer decoding steps with continuous "
    "refills by predicted length than in rounds of 8, beyond what the same refills save in the order of arrival "
    "by 5 points.",
    quantity="peak memory 21.55 to 10.64 GB, and more than 25% more throughput than rounds",
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
    falsified_if="fewer than 25% of the steps are saved, or another order gives other samples",
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
    note="Four groups of 32, one after the other, of the embedded model, which answers at once or in "
    "steps: lengths of two kinds. Nothing is trained; the gradients are compared in a test. `start` is the "
    "full group in 32 slots, the memory of which is what is saved. Seconds are left out, as a loaded "
    "machine says nothing about them: a step of eight sequences takes as long as one of two on a "
    "processor of few cores only roughly, so steps saved are no seconds saved, and refills read their prompts in "
    "more waves than rounds do, which is shown. Looked at before the declaration, on trial seed 2000, one "
    "token of a probe: 421 steps in rounds, 204 in the order of arrival, 156 predicted, 186 with mixed-up "
    "predictions, 162 told; 140 are the fewest; the samples of all six were the same, in 2.5 MB of keys and "
    "values instead of 10. `predicted` may be below `told`, as the token of the probe comes with the "
    "prompt and the going on reads it again. Refills alone, which every engine of today does, save most "
    "of it: the plan is worth the tail of a group, and less the more groups fill the pool. A learned "
    "predictor, an FPTAS, and slots that share one copy of a prompt are left out.",
)

SMALL = replace(
    EXPERIMENT,
    claim="Groups of 32 sentences by SmolLM2-135M-Instruct through 8 slots take at least 25% fewer decoding steps "
    "with continuous refills by predicted length than in rounds of 8, beyond what the same refills save in the order "
    "of arrival by 5 points.",
    model="smollm2",
    blocks=(range(0, 5),),
    tuning_seeds=(1000,),
    constants={arm: {"probe": (1, 4)} for arm in ("predicted", "shuffled")},
    task="constraints",
    falsified_if="fewer than 25% of the steps are saved",
    seconds=100.0,
    note="The same with a real model, whose first words tell less of the length to come than the tiny one's, which "
    "answers at once or in steps. Whether every order gives the same samples is a control and no part of the claim, as "
    "bfloat16 may round otherwise in other batches. Nothing was looked at before the declaration.",
)
