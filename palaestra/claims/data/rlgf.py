"""The claim of rlgf: a policy that starts from a guide's states comes to surpass the guide."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS, half_taught, imitation, warm_chain
from palaestra.recipes.data.rlgf import build

BETTER = 6  # steps of imitation that the guide is ahead


def rolled(kind: Any, **options: Any) -> pl.Recipe:
    """8 prompts a step with 4 attempts each. Answers of some 40 bytes are not discounted."""
    learned = build(kind, samples=4, gamma=1.0, **options)
    return pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=60))


def guided(rl: pl.Runnable) -> pl.Pipeline:
    """The guide is the start after a little more imitation."""
    parts = {
        "sft": warm_chain(),
        "guide": pl.warm(imitation(BETTER), "chain(modulo=9)", model=pl.Output("sft")),
        "rl": pl.Part(rl, model=pl.Output("sft"), models={"guide": pl.Output("guide")}),
    }
    return pl.Pipeline(parts=parts)


def guide_alone() -> pl.Pipeline:
    parts = {
        "sft": warm_chain(),
        "guide": pl.warm(imitation(BETTER), "chain(modulo=9)", model=pl.Output("sft")),
        "rl": pl.Part(pl.ledger.Untrained(), model=pl.Output("guide")),
    }
    return pl.Pipeline(parts=parts)


ARMS = {
    "guide": guide_alone(),
    "ppo": half_taught(rolled("ppo++", beta=0.0)),
    "ppo++": guided(rolled("ppo++")),
    "aggrevate": guided(rolled("aggrevate")),
    "lols": guided(rolled("lols")),
    "d2lols": guided(rolled("d2lols", tau=8)),
    "old self as guide": half_taught(rolled("ppo++")),
}

EXPERIMENT = pl.ledger.Experiment(
    claim="On chains of 6 or 7 numbers modulo 9, a policy that is trained by PPO++ from the states of a "
    "guide that solves more than it does has in the end a held-out accuracy at least 2 points above "
    "that of the guide.",
    quantity="GPT-2 with a guide writes better positive reviews than the zero-shot GPT-3 it is compared "
    "with, and all four algorithms do better than PPO",
    start=half_taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("ppo++", "guide", by=0.02, why=TWO_POINTS),
    falsified_if="PPO++ ends less than 2 points above its guide, or PPO without one ends there as well",
    reasons=(
        pl.ledger.Needs("ppo", "the guide's states"),
        pl.ledger.Needs("old self as guide", "a guide that is better than the policy"),
    ),
    vetoes={
        "against ppo": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), 0.03, against="ppo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    constants={a: {"rl.optimiser.lr": RATES[:2]} for a in ARMS if a != "guide"},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=60_000,
    evaluate=256,
    samples=4,
    seconds=110.0,
    controls={"share of the first": pl.ledger.Logged("is:rolled-in", last=0)},
    note="The guide is the start after 6 more steps of imitation, so that it is only a little better: what is "
    "claimed is that the guide is surpassed, and one that is far ahead could hardly be in some 30 steps. "
    "What was looked at: sampled accuracy on 48 tasks x 8 on a seed that decides nothing: start .41 to "
    ".50, .59 to .67 after 25 more steps of imitation, and .80 to .90 after another 25, so there is room "
    "above any of them; and on two trial seeds, 256 tasks x 4, .35 and .41 at the start, .37 and .42 "
    "after 5 more steps. The rates are those that leave a half-taught model whole: at 3e-4 a seed in ten "
    "falls far below its start in other claims on these chains. What a roll-in throws away counts as "
    "sampled, so PPO has about 1.4 times as many answers to learn from. Of the 20 steps of d2lols there "
    "are 8, as the budget is some 30 steps. gamma is 1: at 0.99 the first bytes of an answer would count "
    "a third less. The guide and the policy are one model with one habit; a guide that solves by another "
    "way is not tested. One value head serves policy and guide.",
)
