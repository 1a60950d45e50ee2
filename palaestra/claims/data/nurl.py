"""The claim of nurl: a nudge for prompts that are never solved."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.nurl import build


def taught(rl: pl.Runnable) -> pl.Pipeline:
    """25 steps of imitation of chains of 4 to 6 numbers; then the arm, with 8 prompts a step."""
    easier = pl.warm(imitation(25), "chain(modulo=9)")
    return pl.Pipeline(parts={"sft": easier, "rl": pl.Part(rl, model=pl.Output("sft"))})


def nudged(kind: Any = "steps", place: Any = "start", **options: Any) -> pl.Pipeline:
    """Hints begin the reply, unless `place` says otherwise."""
    learned = build(kind, place, **options)
    return taught(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200)))


def unhinted() -> pl.Pipeline:
    learned = pl.vary(build(), collect=pl.links(pl.Sample(n=8), pl.Score()))
    return taught(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=200)))


ARMS = {
    "grpo": unhinted(),
    "nurl": nudged(),
    "always": nudged(every=True),
    "all hinted": nudged(bare=0),
    "first line": nudged(lines=1),
    "shuffled": nudged(shuffled=True),
    "cue in the prompt": nudged("cue", "prompt"),
    "steps in the prompt": nudged("steps", "prompt"),
    "answer in the prompt": nudged("answer", "prompt"),
}

EXPERIMENT = pl.ledger.Experiment(
    claim="On chains of 6 or 7 numbers modulo 9, prompts that none of eight answers solves, tried again "
    "by seven that begin with half of the working and a bare one, give a held-out pass@8 without hints at "
    "least 3 points above GRPO.",
    quantity="averages of 35.87 to 37.49 and 42.63 to 44.38 over GRPO, and a pass@1024 that rises by "
    "6 to 8 points where GRPO leaves it",
    start=taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "nurl", "grpo", by=0.03, why="half of what the paper's pass@1024 gains on two tasks"
    ),
    falsified_if="pass@8 is less than 3 points above that of GRPO at as many sampled tokens",
    reasons=(
        pl.ledger.Needs("first line", "more than a word to begin with"),
        pl.ledger.Needs("shuffled", "what the hint says of this task"),
        pl.ledger.Needs("always", "hints only where all answers fail"),
        pl.ledger.Needs("all hinted", "a bare answer in the new group"),
    ),
    vetoes={
        "pass@1": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03, against="grpo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@8.mean"),
    metric="held-out pass@8 without hints (temperature 1)",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in ARMS},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=40_000,
    evaluate=128,
    samples=8,
    seconds=90.0,
    controls={
        "share of hinted answers": pl.ledger.Logged("is:guided", last=0),
        "groups with a gradient": pl.ledger.Logged("groups_mixed_trained", last=0),
    },
    note="Hints begin the reply, by half of the steps of the working, as a hint in the prompt moves this model "
    "only from guessing to working, whatever it says, and what of cue, steps and answer is best is set by "
    "what it was trained on: the paper's order of the kinds cannot be decided here, and the three arms of "
    "prompts are expected to be alike. Looked at on a trial seed, 24 tasks x 8: bare .42, begun by half "
    "of the steps .55, by the first line .47, by all .99; in the prompt a cue .21, half of the steps .25, "
    "the answer .28. A quarter of the groups are all wrong in eight, which is the room. Hints that the "
    "start writes itself need a model that can: `write_hints` is tested with one that is played. Hints "
    "begin at once, where the paper waits until GRPO no longer gains; pass@8 stands for its pass@1024. "
    "`always` samples its groups with hints from the beginning, so its answers cost less than those of "
    "arms that try without one first, and it takes more steps. The rates are those that leave a "
    "half-taught model whole. One cell an arm, rate 1e-4, 20,000 tokens, 64 tasks x 8: grpo .42 and "
    "pass@8 .86, nurl .44 and .86.",
)
