"""The claim of rl-tango: RL Tango: generator and verifier trained together."""

import palaestra as pl
from palaestra.claims.starts import judging_start
from palaestra.recipes.rewards.rl_tango import Z, embedded


def shrink(learned: pl.Recipe) -> pl.Pipeline:
    """8 prompts x 8 answers, from a start that judges."""
    rl = pl.override(pl.vary(learned, schedule=pl.Schedule(prompts=8)), "collect.sample.n", 8)
    return pl.Pipeline(
        parts={"shown": pl.Part(judging_start()), "rl": pl.Part(rl, model=pl.Output("shown"))}
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": shrink(pl.vary(pl.recipe("grpo"), credit=pl.chain(*Z))),
        "tango": shrink(embedded(warmup=20)),
        "fixed": shrink(embedded(warmup=20, learns=False)),
        "unbalanced": shrink(embedded(warmup=20, balanced=False)),
        "merged": shrink(embedded(warmup=20, apart=False)),
    },
    expect=pl.ledger.Greater("tango", "grpo", by=0.05),
    measure=pl.ledger.Moving(20),
    metric="mean outcome of the 1,280 answers of the generator's first 20 steps (temperature 1)",
    task="chain(operands=(2,3))",
    tokens=100_000,
    evaluate=128,
    seconds=80.0,
    controls={
        "accuracy at the end": pl.ledger.Final(),
        "balanced accuracy of the verifier": pl.ledger.Balanced(),
    },
)
