"""The claim of mio: MIO: mutual-information (Jensen-Shannon) preference optimisation."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.overoptimisation import Overoptimisation
from palaestra.claims.sentences import sentences
from palaestra.claims.starts import RATES
from palaestra.recipes.preference.mio import build

SHARPNESS = 8.0  # of the labels of `Preferences`
LR = "parts.pairs.runnable.learners.policy.optimiser.lr"


def proxy_recipe() -> pl.Recipe:
    """A reward model of the same pairs: a head on a copy of the policy."""
    rater = pl.Learner(
        credit=pl.Compare(),
        objective=pl.BradleyTerry(center=0.01),
        heads=("score",),
        optimiser=pl.AdamW(lr=3e-4),
    )
    schedule = pl.Schedule(prompts=16, steps=60)
    return pl.vary(build(pairs="data"), learners={"reward": rater}, schedule=schedule)


def with_meter(learned: pl.Runnable) -> pl.Pipeline:
    """The proxy, what is trained on pairs of the same kind, and what both rewards say of it."""
    meter = Overoptimisation(pl.Learned("reward"), sharpness=SHARPNESS)
    models = {"reward": pl.Output("proxy", "reward"), "trained": pl.Output("pairs")}
    return pl.Pipeline(
        parts={
            "proxy": pl.warm(proxy_recipe()),
            "pairs": pl.Part(learned),
            "meter": pl.Part(meter, models=models),
        }
    )


def on_pairs(objective: pl.Objective) -> pl.Pipeline:
    """100 steps of 16 pairs, each pair seen once."""
    schedule = pl.Schedule(prompts=16, steps=100)
    return with_meter(pl.vary(build(pairs="data"), objective=objective, schedule=schedule))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=with_meter(pl.ledger.Untrained()),
    arms={
        "dpo": on_pairs(pl.DPO()),
        "mio": on_pairs(pl.objective.JensenShannon()),
        "dpo with beta 1": on_pairs(pl.DPO(beta=1.0)),
        "hinge": on_pairs(pl.objective.Hinge()),
        "dpo and imitation": on_pairs(pl.DPO() + 0.2 * pl.objective.ImitatePreferred()),
    },
    expect=pl.ledger.Greater(
        "mio", "dpo", by=2.5, why="half of a fall of five nats, which a short trial of DPO had"
    ),
    reasons=(
        pl.ledger.Needs("hinge", "a push on the chosen answer that goes on beyond the margin"),
        pl.ledger.Needs(
            "dpo with beta 1", "halves that do not meet, beyond a margin that is soon reached"
        ),
        pl.ledger.Needs(
            "dpo and imitation", "the Jensen-Shannon form, beyond any push of the chosen answer"
        ),
    ),
    vetoes={"true reward of samples": pl.ledger.Veto(pl.ledger.Final("gold"))},
    measure=pl.ledger.Final("chosen"),
    metric="change of the held-out chosen answers' log-prob (nats an answer)",
    tuned={LR: RATES},
    choose=pl.ledger.Final("gold"),
    task="preferences",
    tokens=10_000,
    evaluate=0,
    seconds=75.0,
    controls={
        "true reward": pl.ledger.Final("gold"),
        "proxy reward": pl.ledger.Final("proxy"),
        "proxy less true reward": pl.ledger.Final("gap"),
        "KL to the start, nats": pl.ledger.Final("kl"),
        "rejected answers' log-prob": pl.ledger.Final("rejected"),
        "held-out pairs ranked right": pl.ledger.Final("ranked"),
    },
)


def of_real_model(objective: pl.Objective) -> pl.Recipe:
    """25 steps of 8 pairs, each pair seen once."""
    schedule = pl.Schedule(prompts=8, steps=25)
    return pl.vary(build(pairs="data"), objective=objective, schedule=schedule)


SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    start=pl.ledger.Untrained(),
    arms={
        "dpo": of_real_model(pl.DPO()),
        "mio": of_real_model(pl.objective.JensenShannon()),
        "dpo and imitation": of_real_model(pl.DPO() + 0.2 * pl.objective.ImitatePreferred()),
    },
    reasons=EXPERIMENT.reasons[2:],
    vetoes={},
    choose=None,
    measure=pl.ledger.Logged("chosen", last=5),
    metric="log-prob of chosen answers before they are learned from, last five steps, above the start's (nats)",
    controls={
        "rejected": pl.ledger.Logged("rejected", last=5),
        "pairs ranked right": pl.ledger.Logged("preferred", last=5),
    },
    **sentences(task="preferences", tokens=10_000, evaluate=0, samples=0),
)
