"""The claim of self-rewarding: Self rewarding, self improving (Countdown, integration)."""

import palaestra as pl
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
    claim="On `add`, held-out accuracy rises by training on a judge that errs in one of ten "
    "verdicts and sees no reference.",
    arms={
        "start": pl.vary(pl.recipe("grpo"), optimiser=pl.AdamW(lr=0.0)),
        "errs 1%": build(erring_judge(0.01)),
        "errs 10%": build(erring_judge(0.1)),
        "errs 25%": build(erring_judge(0.25)),
        "lazy judge": build(LAZY_JUDGE),
        "built-in model": build(),
        "formal": pl.recipe("grpo"),
    },
    expect=pl.Greater("errs 10%", "start", by=0.05),
    falsified_if="accuracy is less than five points above the start",
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
    note="The paper's judge is a 7B model; here a stand-in that checks the sum and errs. The lazy "
    "judge looks at the last digit alone, so one column is enough for it: the exploit is there to "
    "be found, and its inflation shows it. The built-in model judges no better than a coin.",
)
