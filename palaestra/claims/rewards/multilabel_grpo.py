"""The claim of multilabel-grpo: GRPO with multi-label reward regression."""

from palaestra.catalogue import recipe
from palaestra.context import RewardFn
from palaestra.ledger.experiment import Cell, Experiment, Greater, Logged
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.rewards.multilabel_grpo import MultiLabel, credit, label_learner
from palaestra.rewards.labels import QUALITY_LABELS, Beside, Labels, Noisy
from palaestra.rewards.learned import Learned
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Learner, Schedule
from palaestra.types import stage
from palaestra.values import vary


def two_stages(reward: RewardFn, rater: Learner, aggregate: str = "before_norm") -> Pipeline:
    """A reward model on noisy labels of the start policy's answers; then GRPO on it, frozen."""
    start = vary(recipe("grpo"), credit=credit(aggregate), schedule=Schedule(prompts=8, steps=20))
    rated = vary(start, collect=links(Sample(n=8), Score(reward=Noisy(Labels(), 0.1))), learners={"reward": rater})
    judged = vary(start, collect=links(Sample(n=8), Score(reward=reward), Beside(Labels(), "label")))
    return Pipeline(parts={"rm": Part(rated), "rl": Part(judged, models={"reward": Output("rm", "reward")})})


@stage
class Least:
    """The least of several logged means: what none of the labels falls below."""

    metrics: tuple[str, ...]

    def __call__(self, cell: Cell) -> float:
        return min(Logged(m)(cell) for m in self.metrics)


TRUE = tuple(f"part/label/{k}" for k in QUALITY_LABELS)


EXPERIMENT = Experiment(
    claim="The lowest of four true labels ends higher with a reward of four predicted labels than with one predicted score.",
    arms={
        "one score": two_stages(Learned("reward", squash=True), label_learner(("total",), ("score",))),
        "four labels": two_stages(MultiLabel(), label_learner(QUALITY_LABELS)),
        "four labels after_norm": two_stages(MultiLabel(), label_learner(QUALITY_LABELS), "after_norm"),
    },
    expect=Greater("four labels", "one score"),
    falsified_if="the lowest true label is less than two points higher than with the one score",
    measure=Least(TRUE),
    metric="lowest of four true labels of samples, last ten steps",
    task="add",
    tokens=10_000,
    evaluate=32,
    controls={k: Logged(f"part/label/{k}") for k in QUALITY_LABELS},
    note="Labels that a program checks, a tenth of them wrong: right, worked, brief, tidy; worked and brief are at odds. "
    "With uniform weights both rewards estimate the same mean, so a difference is one of estimation.",
)
