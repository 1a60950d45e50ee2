"""The claim of self-rewarding: Self rewarding, self improving (Countdown, integration)."""

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.rewards.self_rewarding import build


@pl.stage
class Inflation:
    """Mean self-reward less mean formal reward over the last `last` steps."""

    last: int = 10

    def __call__(self, cell: pl.Cell) -> float:
        return pl.Logged("reward", self.last)(cell) - pl.Logged("part/gold", self.last)(cell)


def erring_judge(error: float) -> pl.Scripted:
    """A judge that verifies without a reference, and errs in this share of its verdicts."""
    return pl.Scripted(
        pl.Grader(error=error, yes="[[RIGHT]]", no="[[WRONG]]"), name=f"errs {error:g}"
    )


LAZY_JUDGE = pl.Scripted(
    pl.Grader(check=pl.matches_last_digit, yes="[[RIGHT]]", no="[[WRONG]]"), name="lazy"
)


EXPERIMENT = pl.Experiment(
    claim="On `add`, held-out accuracy rises by at least 5 points above the start where the model "
    "itself judges its answers without a reference.",
    quantity="8% above the baseline on integration with questions and verdicts of the model's own",
    arms={
        "own judge": build(),
        "coin": build(erring_judge(0.5)),
        "errs 10%": build(erring_judge(0.1)),
        "lazy judge": build(LAZY_JUDGE),
        "formal": pl.recipe("grpo"),
    },
    expect=pl.Greater("own judge", "start", by=0.05, why="about half of the paper's gain"),
    falsified_if="accuracy is less than five points above the start",
    reasons=(pl.Needs("coin", "that the judge knows more than a coin"),),
    tuned={"optimiser.lr": RATES},
    choose=pl.Final("sampled_after.pass@1.mean"),
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={
        "inflation": Inflation(),
        "self-reward": pl.Logged("reward"),
        "true reward": pl.Logged("part/gold"),
    },
    note="The paper's judge is a 7B model, here the small model itself, which hardly judges better "
    "than a coin. `errs 10%` is a program that checks the sum and errs: what a good judge would "
    "do. The lazy judge looks at the last digit alone, so one column is enough for it: the exploit "
    "is there to be found, and its inflation shows it.",
)
