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
    claim="At equal sampled tokens, RL on chains of eight moduli gives an accuracy on chains modulo 9, "
    "which no arm was trained on, at least 5 points above that of RL on one modulus.",
    quantity="accuracy rises steadily with the number of training tasks over two orders of magnitude",
    start=staged(None),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "eight families", "one family", by=0.05, why="what ten seeds of such cells can tell apart"
    ),
    falsified_if="eight moduli do no better than one, to 5 points",
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
    note="Families are moduli of one syntax, as the built-in model cannot read 24 texts of puzzles: on those "
    "its slope would be 0 by capacity. So what scales is one rule in eight forms, which is far from 1,000 "
    "environments. 120,000 tokens are about 33 steps of 16 prompts; rates, of those that leave a "
    "half-taught model whole, are chosen by the first 11. The recipe itself runs on reasoning-gym's "
    "generators with a model that reads them, and audits their verifiers before and after. Looked at: the "
    "audit of 90 generators (all that tasks are taken from but the four whose items follow a hash), 4 "
    "held-out problems each, of five slow ones 1: every reference answer counts as solved; of what solves "
    "nothing the question again does in one problem of string_manipulation, whose answer is its last "
    "line; with a character changed some references still do in three, whose scorers have a tolerance "
    "(decimal_arithmetic, power_function, number_sorting), and in five more they are paid .98 or more, by "
    "parts or by nearness (game_of_life, modulo_grid, emoji_mystery, polynomial_equations, "
    "time_intervals). And a few steps of every arm: after 25 steps of imitation modulo 10 the start "
    "solves 2 to 4 of 16 problems modulo 9.",
)
