"""The claim of multilabel-grpo: GRPO with multi-label reward regression."""

import palaestra as pl
from palaestra.recipes.rewards.multilabel_grpo import MultiLabel, credit, label_learner


def two_stages(
    reward: pl.RewardFn, rater: pl.Learner, aggregate: str = "before_norm"
) -> pl.Pipeline:
    """A reward model on noisy labels of the start policy's answers; then GRPO on it, frozen."""
    start = pl.vary(
        pl.recipe("grpo"), credit=credit(aggregate), schedule=pl.Schedule(prompts=8, steps=20)
    )
    rated = pl.vary(
        start,
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=pl.rewards.Noisy(pl.Labels(), 0.1))),
        learners={"reward": rater},
    )
    rl_with_judge = pl.vary(
        start,
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward), pl.Beside(pl.Labels(), "label")),
    )
    return pl.Pipeline(
        parts={
            "rm": pl.Part(rated),
            "rl": pl.Part(rl_with_judge, models={"reward": pl.Output("rm", "reward")}),
        }
    )


@pl.stage
class Least:
    """The least of several logged means: what none of the labels falls below."""

    metrics: tuple[str, ...]

    def __call__(self, cell: pl.ledger.Cell) -> float:
        return min(pl.ledger.Logged(m)(cell) for m in self.metrics)


TRUE = tuple(f"part/label/{k}" for k in pl.rewards.QUALITY_LABELS)


EXPERIMENT = pl.ledger.Experiment(
    not_testable="two rewards that differ in more than how they are estimated: the paper's own weights, or labels of "
    "which some are missing or bound the rest; with the equal weights that are known, a model of four labels and "
    "one of their mean learn the same reward from the same answers",
    words=__file__,
    arms={
        "one score": two_stages(
            pl.Learned("reward", squash=True), label_learner(("total",), ("score",))
        ),
        "four labels": two_stages(MultiLabel(), label_learner(pl.rewards.QUALITY_LABELS)),
        "four labels after_norm": two_stages(
            MultiLabel(), label_learner(pl.rewards.QUALITY_LABELS), "after_norm"
        ),
    },
    expect=pl.ledger.Greater("four labels", "one score"),
    measure=Least(TRUE),
    metric="lowest of four true labels of samples, last ten steps",
    task="add",
    tokens=10_000,
    evaluate=32,
    controls={k: pl.ledger.Logged(f"part/label/{k}") for k in pl.rewards.QUALITY_LABELS},
)
