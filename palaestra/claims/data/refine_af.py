"""The claim of refine-af: RL from automatic feedback before a model writes what another one imitates."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.refine_af import build


def small(**options: Any) -> pl.Pipeline:
    """8 prompts a step in the second stage."""
    made = build(**options)
    if "rl" not in made.parts:
        return made
    return pl.override(
        pl.override(made, "parts.rl.runnable.schedule.prompts", 8), "rl.schedule.steps", 60
    )


BASE = "self-instruct"
ARMS = {
    BASE: small(rl=False),
    "random": small(feedback="random"),
    "rule": small(),
    "positive": small(positive=True),
}

EXPERIMENT = pl.ledger.Experiment(
    claim="On sums, truth values and lists, a fresh model that imitates what was written after RL from the "
    "rule is at least 10 points more accurate than one that imitates what was written without RL.",
    quantity="63 to 66% of tasks improved over Self-Instruct with the same model",
    arms=ARMS,
    expect=pl.ledger.Greater(
        "rule", BASE, by=0.1, why="a gain that most of twelve domains would have to share"
    ),
    falsified_if="the fresh model gains less than 10 points, or as much where RL was paid by a coin",
    reasons=(pl.ledger.Needs("random", "that the feedback says something of the instance"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy of the fresh model (temperature 1)",
    constants={
        a: {"sft.optimiser.lr": RATES[1:], **({"rl.optimiser.lr": RATES[:2]} if a != BASE else {})}
        for a in ARMS
    },
    task="add(d=3)+add(d=5)+bool(d=3)+bool(d=5)+sort(d=3)+sort(d=5)",
    tokens=30_000,
    tuning_tokens=12_000,
    evaluate=192,
    samples=4,
    seconds=90.0,
    controls={
        f"{what}, last steps of RL": pl.ledger.Logged(f"part/{part}")
        for part, what in (
            ("und", "readable"),
            ("nat", "answer stated"),
            ("coh", "agreement"),
            ("rew", "verdict"),
        )
    },
    note="Instructions are problems of programs, so their quality and novelty are not measured: what is "
    "written are answers. What a reward model says is the verifier's verdict, with the rule's weight of "
    ".0078 on it; where all answers are stated and readable, this and their agreement are all that "
    "differs in a group. The rule's weight of understandability is negative, so silence may pay: with the "
    "paper's coefficients an empty or unreadable reply gets -.0274, and a right and readable one -.1405 + "
    ".152 Coh, which is more only where some three quarters of the group agree. Whether RL from this rule "
    "teaches to say nothing is what the experiment can show, and the four controls say it; `positive` "
    "turns the sign round. An instance that states nothing is not imitated, so the fresh model learns "
    "from fewer then. Arms differ in the number of imitation steps, as `steps` does not end a cell with a "
    "budget of tokens: 64 without RL, and about 50 to 130 with it, the more the shorter what is written. "
    "Of a measurement of the same arms that was interrupted some cells had ended, and were seen, when the controls and "
    "this were written. In one trial of three steps on three other domains a fresh model went from 5 of "
    "16 to 16 of 16, since work instead of guesses is soon learned. People's judgement of texts, which "
    "the rule was fitted to, has no part in this.",
)
