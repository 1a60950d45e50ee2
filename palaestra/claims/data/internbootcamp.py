"""The claim of internbootcamp: more families of tasks, at equal budget, for one that was not trained on."""

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.internbootcamp import build

EIGHT = "+".join(f"chain(modulo={m})" for m in (4, 5, 6, 7, 8, 11, 12, 13))
FOUR = "+".join(f"chain(modulo={m})" for m in (5, 7, 8, 12))
SIZES = "+".join(f"chain(modulo=7,operands=({n},{n}))" for n in range(2, 10))


def staged(rl: pl.Runnable | None, families: str = "") -> pl.Pipeline:
    """25 steps of imitation of workings modulo 10, so that no arm has to learn to work; then RL on the
    families; then what is measured, the family that no arm was trained on.
    """
    parts = {"sft": pl.warm(imitation(25), "chain")}
    if rl is not None:
        parts["rl"] = pl.Part(rl, model=pl.Output("sft"), task=families)
    parts["unseen"] = pl.Part(pl.ledger.Untrained(), model=pl.Output("sft" if rl is None else "rl"))
    return pl.Pipeline(parts=parts)


def trained(families: str) -> pl.Pipeline:
    learned = pl.vary(build(audited=0), schedule=pl.Schedule(prompts=16, steps=100))
    return staged(learned, families)


ARMS = {
    "one family": trained("chain(modulo=7)"),
    "four families": trained(FOUR),
    "eight families": trained(EIGHT),
    "eight sizes": trained(SIZES),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=staged(None),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "eight families", "one family", by=0.05, why="what ten seeds of such cells can tell apart"
    ),
    reasons=(pl.ledger.Needs("eight sizes", "families whose rules differ"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="accuracy on a family that was not trained on (temperature 1)",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in ARMS},
    task="chain(modulo=9)",
    tokens=120_000,
    tuning_tokens=40_000,
    evaluate=192,
    samples=4,
    seconds=200.0,
)
