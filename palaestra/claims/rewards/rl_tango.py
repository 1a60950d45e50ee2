"""The claim of rl-tango: RL Tango: generator and verifier trained together."""

import palaestra as pl
from palaestra.claims.starts import judging_start
from palaestra.recipes.rewards.rl_tango import Z, build


def shrink(learned: pl.Recipe) -> pl.Pipeline:
    """8 prompts x 8 answers, from a start that judges."""
    rl = pl.override(pl.vary(learned, schedule=pl.Schedule(prompts=8)), "collect.sample.n", 8)
    return pl.Pipeline(
        parts={"shown": pl.Part(judging_start()), "rl": pl.Part(rl, model=pl.Output("shown"))}
    )


EXPERIMENT = pl.ledger.Experiment(
    claim="Over the first 20 generator steps, outcomes are 5 points better with a verifier that "
    "learns than with GRPO.",
    arms={
        "grpo": shrink(pl.vary(pl.recipe("grpo"), credit=pl.chain(*Z))),
        "tango": shrink(build(warmup=20)),
        "fixed": shrink(build(warmup=20, learns=False)),
        "unbalanced": shrink(build(warmup=20, balanced=False)),
        "merged": shrink(build(warmup=20, apart=False)),
    },
    expect=pl.ledger.Greater("tango", "grpo", by=0.05),
    falsified_if="with the verifier's verdicts the mean outcome of these steps is not 5 points "
    "higher",
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
    note="80 steps of imitated verdicts, half of them worked, come first in every arm, for the "
    "built-in model's are a coin. The verifier is a copy of this start; 20 updates of it alone "
    "come before the 20 steps, which with its own among them take 46. A step is judged by whether "
    "the verifier's own working has it. 5 points, as the paper's Tango is 9 ahead after 200 steps. "
    "At equal sampled tokens, the verdicts' included, GRPO makes more steps: `accuracy at the end` "
    "compares that.",
)
