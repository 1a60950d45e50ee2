"""The claim of online-semi-online: how far behind the weights that sample may be."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.data.online_semi_online import build


def arm(sync: int, **options: Any) -> pl.Recipe:
    """8 prompts an update with 4 answers."""
    setting: dict[str, Any] = {"prompts": 8, "n": 4, **options}
    return build(sync, **setting)


EXPERIMENT = pl.Experiment(
    claim="On sums of six digits, DPO whose weights are copied to the generator every fifth update "
    "answers at least 10 points more held-out tasks at temperature 1 than offline DPO, and at most 5 "
    "points fewer than online DPO.",
    quantity="semi-online and online DPO and GRPO about equal on maths, all strongly above offline DPO",
    arms={
        "offline": arm(0),
        "online": arm(1),
        "s 5": arm(5),
        "s 5 by snapshots": arm(5, form="snapshots"),
        "grpo online": arm(1, method="grpo"),
        "grpo s 5": arm(5, method="grpo"),
    },
    expect=pl.Greater(
        "s 5", "offline", by=0.1, why="what a reader of the paper's curves would call strongly"
    ),
    falsified_if="s = 5 is less than 10 points above offline DPO, or more than 5 below online DPO",
    reasons=(pl.Needs("offline", "answers of weights that move"),),
    vetoes={
        "as good as online": pl.Veto(
            pl.Final("sampled_after.pass@1.mean"), falls=0.05, against="online"
        )
    },
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="add(d=6)",
    tokens=24_000,
    evaluate=96,
    samples=4,
    seconds=20.0,
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
