"""The claim of ruscarl: criteria that some answers of a group are told of, ever less."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.ruscarl import build

STEPS = 40  # over which criteria are shown and withdrawn
STARTS = 40  # steps of imitation of answers to criteria
HIDDEN = "rubrics(topics=8)"


def shown_criteria() -> pl.Recipe:
    """How criteria are kept that are shown, all or half of them, or guessed, where none is; a topic
    says nothing there.
    """
    told = [pl.Under(pl.rollout.Criteria(share), pl.Demonstrate()) for share in (1.0, 0.5)]
    return imitation(STARTS, pl.links(*told, pl.Demonstrate()), prompts=16, lr=1e-3)


def after(rl: pl.Runnable) -> pl.Pipeline:
    shown = pl.warm(shown_criteria(), "rubrics(topics=8,fixed=False)")
    return pl.Pipeline(parts={"sft": shown, "rl": pl.Part(rl, model=pl.Output("sft"))})


def scaffolded(**options: Any) -> pl.Pipeline:
    """8 prompts a step, at temperature 1 and without a cut of the distribution."""
    learned = build(steps=STEPS, temperature=1.0, top_p=1.0, top_k=0, **options)
    return after(pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=STEPS)))


ARMS = {
    "plain": scaffolded(share=0.0),
    "always all": scaffolded(graded=False, fades=False),
    "ever fewer in a group": scaffolded(fades=False),
    "ruscarl": scaffolded(),
    "trained as seen": scaffolded(context="scaffolded"),
    "corrected": scaffolded(context="corrected"),
}

EXPERIMENT = pl.ledger.Experiment(
    claim="Where only the criteria say what a question wants, groups of answers that are told of ever "
    "fewer of them in the first fifth of the steps give, without criteria, a share of held-out answers "
    "that meet all of them at least 5 points above that of RL on the same score.",
    quantity="HealthBench 23.6 to 50.3 with Qwen2.5-7B-Instruct, above RL with the same rubrics",
    start=after(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "ruscarl", "plain", by=0.05, why="less than a fifth of the paper's gain over its start"
    ),
    falsified_if="without criteria the share is less than 5 points above that of plain RL",
    reasons=(
        pl.ledger.Needs(
            "trained as seen", "training on the bare prompt what was said behind criteria"
        ),
        pl.ledger.Needs("ever fewer in a group", "criteria that are withdrawn"),
    ),
    vetoes={
        "all shown": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), 0.0, against="always all"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out answers that meet all criteria, which are not shown (temperature 1)",
    constants={a: {"rl.optimiser.lr": RATES} for a in ARMS},
    blocks=pl.ledger.TWENTY_SEEDS,
    task=HIDDEN,
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=60.0,
    controls={
        "share shown": pl.ledger.Logged("is:guided", last=0),
        "groups with a gradient": pl.ledger.Logged("groups_mixed", last=0),
    },
    note="A question names one of eight topics, and each wants four digits: a right one in its place is worth "
    "a quarter. The start has learned to keep criteria that are shown, on questions whose topics say "
    "nothing, and guesses otherwise. What was looked at: its score by the share shown, on 16 tasks x 8 on "
    "a seed that decides nothing: none .09, a quarter .14, half .24, three quarters .54, all .92; so "
    "guidance has a dose here, and what it says is not in the bare prompt's reach. A digit that is shown "
    "has about .9 and the same one unshown .1, so the correction has a gap to correct. Held-out questions "
    "have the same topics with other numbers: it is tested whether what was said behind criteria is kept, "
    "not whether it carries over to other topics. The eight codes are the same for all seeds, so the "
    "interval covers other numbers, starts and samples, and no other codes. In the first look, of ten "
    "seeds, `ever fewer in a group` was above `ruscarl`: that criteria are withdrawn over the steps is "
    "refuted as a reason already, and more seeds are for the claim itself. Criteria are checked by a "
    "program; a judge's mistakes, and answers that only recite criteria, are not tested. Of the paper's "
    "350 steps there are about 40, of which the first 8 show criteria; temperature 1, as a cut "
    "distribution would hide digits from the bare prompt.",
)
