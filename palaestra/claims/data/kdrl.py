"""The claim of kdrl: a reverse KL to a teacher inside GRPO's loss."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS, imitation
from palaestra.recipes.data.kdrl import TEACHER, build

BETA = "parts.rl.runnable.learners.policy.objective.parts.1.weight"
BETAS = (0.1, 1.0)
RUN = 16  # steps of an arm, about
STEPS = 12  # of the teacher


def taught(rl: pl.Runnable, teacher: str = "teacher") -> pl.Pipeline:
    """The student has imitated chains of 4 to 6 numbers for 25 steps, its teacher those of the task
    itself for a few more; then the arm, with 8 prompts a step.
    """
    return pl.Pipeline(
        parts={
            "sft": pl.warm(imitation(25), "chain(modulo=9)"),
            "teacher": pl.Part(imitation(STEPS), model=pl.Output("sft"), shared=True),
            "rl": pl.Part(rl, model=pl.Output("sft"), models={TEACHER: pl.Output(teacher)}),
        }
    )


def learned(recipe: pl.Recipe, teacher: str = "teacher") -> pl.Pipeline:
    return taught(pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=100)), teacher)


def distilled(beta: Any = BETAS[0], **options: Any) -> pl.Pipeline:
    return learned(build(beta, **options))


def imitated() -> pl.Pipeline:
    """The teacher's answers, imitated."""
    sampled = pl.links(pl.Sample(n=8, model=TEACHER), pl.Score(), pl.Offline())
    return learned(
        pl.vary(
            build(), collect=sampled, credit=pl.credit.Imitate(), objective=pl.Imitation(), needs=()
        )
    )


ARMS = {
    "grpo": learned(pl.vary(pl.recipe("grpo"), objective=pl.Clipped(reduce="tokens"))),
    "teacher alone": distilled(rl=False),
    "teacher imitated": imitated(),
    "kdrl": distilled(),
    "k3": distilled(kind="k3"),
    "annealed": distilled(pl.Linear(BETAS[1], BETAS[0], RUN)),
    "wrong answers": distilled(mask="answers"),
    "start as teacher": learned(build(BETAS[0]), "sft"),
}

EXPERIMENT = pl.ledger.Experiment(
    claim="On chains of 6 or 7 numbers modulo 9, with a teacher that is not perfect, GRPO with a reverse "
    "KL to it has a held-out accuracy at least 2 points above that of the KL to the teacher alone.",
    quantity="57.2% on average, 2.6 points over GRPO and 1.1 over distillation alone",
    start=taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("kdrl", "teacher alone", by=0.02, why=TWO_POINTS),
    falsified_if="the loss of both is less than 2 points above the KL alone, or more than 3 points below GRPO",
    reasons=(
        pl.ledger.Needs("grpo", "a teacher"),
        pl.ledger.Needs("start as teacher", "a teacher that knows more, beyond any KL"),
        pl.ledger.Needs("k3", "an estimate whose gradient is that of the reverse KL"),
    ),
    vetoes={
        "above grpo": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), 0.03, against="grpo"
        )
    },
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    constants={
        arm: {"rl.optimiser.lr": RATES[:2]}
        | ({BETA: BETAS} if arm in ("kdrl", "k3", "wrong answers", "start as teacher") else {})
        for arm in ARMS
    },
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=40_000,
    tuning_tokens=20_000,
    evaluate=256,
    samples=4,
    seconds=90.0,
    controls={
        "KL to the teacher, k2 or k3, whole run": pl.ledger.Logged(f"kl_{TEACHER}", last=0),
        "KL to the teacher, last ten": pl.ledger.Logged(f"kl_{TEACHER}"),
        "length": pl.ledger.Logged("length"),
    },
    note="Looked at before the declaration, on trial seed 2000 with 96 held-out tasks, greedy: the student of "
    "25 steps has .52, a teacher of 30 more steps .95 and of 12 more .72. With a perfect teacher the KL "
    "alone is expected to end as high as both, as the catalogue says, so the weaker one is taken: what RL "
    "adds is what lies beyond it. A run is about 16 steps of 64 answers. beta is tried at 0.1 and 1 "
    "instead of 0.002: weighed by .01 the divergence is far below the advantages, of about .9 a token, and "
    "so few steps do not add it up. `annealed` falls from 1 to .1 over the 16. The rates "
    "are those that leave a half-taught model whole: at 3e-4 a seed in ten falls far below its start in "
    "other claims on these chains. `teacher imitated` samples from the teacher, which costs as many "
    "tokens; the teacher's own imitation is no part of the budget. Cannot show: reasoning outside the "
    "trained problems, where the paper says that distillation is weak, and shorter answers, as all "
    "workings have one form.",
)
