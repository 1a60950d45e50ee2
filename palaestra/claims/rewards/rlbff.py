"""The claim of rlbff: RLBFF: binary flexible feedback, principle entailment."""

import palaestra as pl
from palaestra.recipes.rewards.rlbff import entailment, reward_model_recipe

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "bradley-terry": pl.rewards.RankingProbe(
            reward_model_recipe(pl.Compare(pairs="all"), pl.BradleyTerry(), heads=("score",)),
            pl.Learned(),
            tuple(("", n) for n in pl.rewards.QUALITY_LABELS),
        ),
        "one principle": entailment(pl.judges.PRINCIPLE_QUESTIONS[:1]),
        "flexible": entailment(pl.judges.PRINCIPLE_QUESTIONS),
    },
    expect=pl.ledger.Greater("flexible", "bradley-terry"),
    measure=pl.ledger.Final("ranked.mean"),
    metric="accuracy on pairs of held-out answers, mean over four properties",
    tokens=12_000,
    evaluate=4,
    controls={n: pl.ledger.Final(f"ranked.{n}") for n in pl.rewards.QUALITY_LABELS},
)
