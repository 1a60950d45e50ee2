"""The claim of online-semi-online: how far behind the weights that sample may be."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES, imitation
from palaestra.recipes.data.online_semi_online import build


def taught(rl: pl.Runnable) -> pl.Pipeline:
    """25 steps of imitation of chains of 4 to 6 numbers; then the arm."""
    easier = pl.warm(imitation(25), "chain(modulo=9)")
    return pl.Pipeline(parts={"sft": easier, "rl": pl.Part(rl, model=pl.Output("sft"))})


def arm(sync: int, **options: Any) -> pl.Pipeline:
    """8 prompts an update with 4 answers."""
    setting: dict[str, Any] = {"prompts": 8, "n": 4, **options}
    return taught(build(sync, **setting))


EXPERIMENT = pl.Experiment(
    claim="On chains of 6 or 7 numbers modulo 9, DPO whose weights are copied to the generator every tenth update "
    "answers at least 10 points more held-out tasks at temperature 1 than offline DPO, and at most 5 "
    "points fewer than online DPO.",
    quantity="semi-online and online DPO and GRPO about equal on maths, all strongly above offline DPO",
    start=taught(pl.Untrained()),
    arms={
        "offline": arm(0),
        "online": arm(1),
        "s 10": arm(10),
        "s 10 by snapshots": arm(10, form="snapshots"),
        "s 50 by snapshots": arm(50, form="snapshots"),
        "grpo online": arm(1, method="grpo"),
        "grpo s 10": arm(10, method="grpo"),
    },
    expect=pl.Greater(
        "s 10", "offline", by=0.1, why="what a reader of the paper's curves would call strongly"
    ),
    falsified_if="s = 10 is less than 10 points above offline DPO, or more than 5 below online DPO",
    reasons=(pl.Needs("offline", "answers of weights that move"),),
    vetoes={
        "as good as online": pl.Veto(
            pl.Final("sampled_after.pass@1.mean"), falls=0.05, against="online"
        )
    },
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"parts.rl.runnable.learners.policy.optimiser.lr": RATES},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=50_000,
    evaluate=128,
    samples=4,
    seconds=90.0,
    controls={
        "entropy": pl.Logged("entropy_sampled"),
        "length": pl.Logged("length"),
        "margin, nats times beta": pl.Logged("margin"),
    },
    note="8 prompts an update with 4 answers, of which about half of the groups hold a right and a wrong "
    "one at the start (.34 of samples are right there, which another claim measured). s = 10 draws 80 "
    "prompts at once and cuts their pairs into ten minibatches; by snapshots it draws 8 at a time. The "
    "chains do not end, so offline DPO sees each of its pairs once, which is kinder than the paper's "
    "several epochs over a fixed set; its reference is the model that answered, as in the paper. Looked "
    "at before the declaration: that two steps of every arm run, and nothing of their results. Cannot "
    "show: rewards of a reward model, and learning both kinds of tasks together; the time that a "
    "generator saves, as all is in one process; s of 100, which would be more updates than a "
    "cell has.",
)
