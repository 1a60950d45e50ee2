"""The claim of amft: a weight between imitation and reinforcement that is learned."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS, half_taught
from palaestra.recipes.data.amft import build

LOOKS = 2  # steps from one look-ahead to the next
RATE = 0.2  # of the weight, by M and by nats, so that 20 looks may cross its range


def mixed(weight: Any = 0.5, **options: Any) -> pl.Pipeline:
    """8 prompts a step, of which a quarter is held out, with 4 samples; two steps of warm-up."""
    setting: dict[str, Any] = {
        "gain_rate": RATE,
        "entropy_rate": RATE,
        "every": LOOKS,
        "warmup": 2,
        **options,
    }
    learned = pl.vary(build(**setting), schedule=pl.Schedule(prompts=8, steps=60))
    return half_taught(pl.override(pl.override(learned, "n", 4), "objective.weight", weight))


ARMS = {
    "fixed": mixed(rule=None),
    "linear decay": mixed(pl.Linear(0.8, 0.2, 30), rule=None),
    "entropy only": mixed(rule="entropy"),
    "full": mixed(),
    "sign flipped": mixed(gain_rate=-RATE),
}
# six settings of every arm: the weight that it begins with, or keeps, and the rate; a learned one may reach .95
MU, BEGINS = "parts.rl.runnable.learners.policy.objective.weight", (0.5, 0.8, 0.95)
WEIGHTS = {a: {MU: BEGINS} for a in ARMS} | {"linear decay": {f"{MU}.start": BEGINS}}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("full", "fixed", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("entropy only", "the meta-gradient"),
        pl.ledger.Needs("sign flipped", "the direction of the meta-gradient"),
    ),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    constants={a: {**WEIGHTS[a], "rl.optimiser.lr": RATES[:2]} for a in ARMS},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=40_000,
    tuning_tokens=20_000,
    evaluate=256,
    samples=4,
    seconds=60.0,
    controls={
        "weight, last steps": pl.ledger.Logged("mix/weight"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
