"""The claim of high-entropy-tokens: Beyond the 80/20 rule: high-entropy minority tokens."""

from dataclasses import replace
from typing import Literal

import palaestra as pl
from palaestra.claims.short import ACCURACY, LOOKED, SHORT, short
from palaestra.claims.starts import ONE_BLOCK, RATES
from palaestra.recipes.objectives.high_entropy_tokens import build


def arm(share: float, by: Literal["entropy", "low-entropy", "random"] = "entropy") -> pl.Recipe:
    """The mean over selected tokens, so that steps are alike; no group is drawn again."""
    return short(build(share, by, variant="released"), pool=pl.recipe("grpo").pool)


EXPERIMENT = pl.Experiment(
    claim="On sums of six digits and formulas of six operators, a policy gradient on the fifth of the tokens "
    "with the highest entropy gives a held-out accuracy at least 5 points above that on the other four "
    "fifths, and at most 3 points below that on all tokens.",
    quantity="a fifth of the tokens against all: 7.71 points above on AIME24 and 11.04 on AIME25 with 32B, "
    "5.21 and 4.79 with 14B, equal with 8B; the other four fifths fall behind",
    arms={
        "all": arm(1.0),
        "top 20%": arm(0.2),
        "bottom 80%": arm(0.8, "low-entropy"),
        "random 20%": arm(0.2, "random"),
        "top 50%": arm(0.5),
    },
    expect=pl.Greater(
        "top 20%", "bottom 80%", by=0.05, why="below the smallest gap of the paper's curves"
    ),
    falsified_if="the other four fifths come to within 5 points of it, or all tokens are more than 3 "
    "points above it",
    reasons=(pl.Needs("random 20%", "that the tokens have the highest entropy"),),
    vetoes={"as good as all": pl.Veto(ACCURACY, falls=0.03, against="all")},
    **SHORT,
    controls={
        "groups with both kinds": pl.Logged("groups_mixed", last=0),
        "tokens selected": pl.Logged("tokens_selected", last=0),
        "entropy": pl.Logged("entropy_sampled"),
    },
    note="DAPO's loss without its dynamic sampling, in all arms, so that every draw trains. Entropy is that "
    "of the policy before a step; of an answer that works most tokens have none, so the first token, "
    "which chooses to work, and guessed digits are nearly all that the fifth has. Whether the rest teaches "
    "anything is open: the small model errs inside its working as well. "
    f"{LOOKED} Cannot show: that the gain grows with the model; tokens that fork a thought, as choices "
    "here are of a habit and of digits.",
)

SMALL = replace(
    EXPERIMENT,
    claim="On sentences with a constraint, by SmolLM2-135M-Instruct, a policy gradient on the fifth of the "
    "tokens with the highest entropy keeps at least 5 points more held-out constraints than that on "
    "the other four fifths, and at most 3 points fewer than that on all tokens.",
    arms={a: EXPERIMENT.arms[a] for a in ("all", "top 20%", "bottom 80%", "random 20%")},
    metric="held-out sentences about their topic that keep their constraint (temperature 1)",
    tuned={"optimiser.lr": RATES[:2]},
    tuning_tokens=6_000,
    **ONE_BLOCK,
    task="constraints",
    tokens=18_000,
    samples=4,
    seconds=400.0,
    note="The arms of the tiny model's claim but the half. There a fifth of the tokens holds little beyond "
    "the choice between working and guessing; in a sentence of a real model nearly every word has some "
    "entropy. GRPO came from .12 to .54 with four times as many tokens. Nothing else was looked at "
    "before the declaration.",
)
