"""The claim of srft: imitation and reinforcement in one stage, weighed by the entropy."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS, half_taught, imitation, warm_chain
from palaestra.recipes.data.srft import build

SHOWN = 35  # steps of imitation before reinforcement: as many demonstrations as one stage sees
BYTES = 4.0  # of a token of the paper's models, whose entropy the weights were made for


def shrink(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts a step with 4 answers each."""
    fewer = pl.override(learned, "n", 4)
    return pl.vary(fewer, schedule=pl.Schedule(prompts=8, steps=60))


def one_stage(**options: Any) -> pl.Pipeline:
    return half_taught(shrink(build(per=BYTES, **options)))


def shown_first(rl: pl.Recipe | None) -> pl.Pipeline:
    """The demonstrations are imitated first, then the arm, if any."""
    sft_on_shown = pl.Part(imitation(SHOWN, prompts=8), model=pl.Output("sft"))
    if rl is None:
        return pl.Pipeline(parts={"sft": warm_chain(), "shown": sft_on_shown})
    later = pl.Part(rl, model=pl.Output("shown"))
    return pl.Pipeline(parts={"sft": warm_chain(), "shown": sft_on_shown, "rl": later})


ARMS = {
    "grpo": half_taught(shrink(pl.recipe("grpo"))),
    "imitation": shown_first(None),
    "imitation then grpo": shown_first(shrink(pl.recipe("grpo"))),
    "srft": one_stage(),
    "constant weights": one_stage(adaptive=False),
    "both weights fall": one_stage(own_sign=-1.0),
    "luffy shape": one_stage(external="luffy"),
}
FIRST = {"shown.optimiser.lr": RATES}
BOTH = {"shown.optimiser.lr": RATES[1:], "rl.optimiser.lr": RATES}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("srft", "imitation then grpo", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("constant weights", "weights that follow the entropy"),
        pl.ledger.Needs(
            "both weights fall", "a weight of the own successes that grows with the entropy"
        ),
        pl.ledger.Needs("grpo", "demonstrations"),
    ),
    vetoes={
        "pass@4": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@4.mean"), 0.03, against="imitation then grpo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    constants={
        a: FIRST
        if a == "imitation"
        else BOTH
        if a == "imitation then grpo"
        else {"rl.optimiser.lr": RATES}
        for a in ARMS
    },
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=40_000,
    evaluate=256,
    samples=4,
    exams=("bool(d=4)",),
    seconds=90.0,
    controls={
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "weight of imitation": pl.ledger.Logged("weight/imitation"),
        "weight of own successes": pl.ledger.Logged("weight/own"),
    },
)
