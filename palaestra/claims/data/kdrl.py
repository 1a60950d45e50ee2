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
    words=__file__,
    start=taught(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("kdrl", "teacher alone", by=0.02, why=TWO_POINTS),
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
)
