"""The claim of high-entropy-tokens: Beyond the 80/20 rule: high-entropy minority tokens."""

from dataclasses import replace
from typing import Literal

import palaestra as pl
from palaestra.claims.sentences import FEW, KEPT, KNOWN, sentences
from palaestra.claims.short import ACCURACY, LOOKED, SHORT, short
from palaestra.recipes.objectives.high_entropy_tokens import build


def arm(share: float, by: Literal["entropy", "low-entropy", "random"] = "entropy") -> pl.Recipe:
    """The mean over selected tokens, so that steps are alike; no group is drawn again."""
    return short(build(share, by, variant="released"), pool=pl.recipe("grpo").pool)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "all": arm(1.0),
        "top 20%": arm(0.2),
        "bottom 80%": arm(0.8, "low-entropy"),
        "random 20%": arm(0.2, "random"),
        "top 50%": arm(0.5),
    },
    expect=pl.ledger.Greater(
        "top 20%", "bottom 80%", by=0.05, why="below the smallest gap of the paper's curves"
    ),
    reasons=(pl.ledger.Needs("random 20%", "that the tokens have the highest entropy"),),
    vetoes={"as good as all": pl.ledger.Veto(ACCURACY, falls=0.03, against="all")},
    **SHORT,
    controls={
        "groups with both kinds": pl.ledger.Logged("groups_mixed", last=0),
        "tokens selected": pl.ledger.Logged("tokens_selected", last=0),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
    note="DAPO's loss without its dynamic sampling, in all arms, so that every draw trains. Entropy is that "
    "of the policy before a step; of an answer that works most tokens have none, so the first token, "
    "which chooses to work, and guessed digits are nearly all that the fifth has. Whether the rest teaches "
    "anything is open: the small model errs inside its working as well. "
    f"{LOOKED} Cannot show: that the gain grows with the model; tokens that fork a thought, as choices "
    "here are of a habit and of digits.",
)


def of_sentences(
    share: float, by: Literal["entropy", "low-entropy", "random"] = "entropy"
) -> pl.Recipe:
    """All positions of a batch at once, so that they are ranked without a second pass."""
    return pl.vary(arm(share, by), schedule=FEW, update=pl.Plain(memory_mb=4096))


SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    arms={
        "top 20%": of_sentences(0.2),
        "bottom 80%": of_sentences(0.8, "low-entropy"),
        "random 20%": of_sentences(0.2, "random"),
    },
    vetoes={},
    metric=KEPT,
    **sentences(),
    note="The arms of the tiny model's claim that differ most; whether a fifth is as good as all tokens is left "
    "out, which five seeds cannot say. With the tiny model a fifth of the tokens holds little beyond "
    "the choice between working and guessing; in a sentence of a real model nearly every word has some "
    f"entropy. {KNOWN} Nothing of these arms was looked at before the declaration.",
)
