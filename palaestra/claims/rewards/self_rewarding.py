"""The claim of self-rewarding: Self rewarding, self improving (Countdown, integration)."""

from palaestra.catalogue import recipe
from palaestra.judges.standin import Grader, matches_last_digit
from palaestra.ledger.experiment import Cell, Experiment, Final, Greater, Logged
from palaestra.recipes.rewards.self_rewarding import build
from palaestra.services.chat.scripted import Scripted
from palaestra.types import stage
from palaestra.update import AdamW
from palaestra.values import vary


@stage
class Inflation:
    """Mean self-reward less mean formal reward over the last `last` steps."""

    last: int = 10

    def __call__(self, cell: Cell) -> float:
        return Logged("reward", self.last)(cell) - Logged("part/gold", self.last)(cell)


def erring_judge(error: float) -> Scripted:
    """A judge that verifies without a reference, and errs in this share of its verdicts."""
    return Scripted(Grader(error=error, yes="[[RIGHT]]", no="[[WRONG]]"), name=f"errs {error:g}")


LAZY_JUDGE = Scripted(Grader(check=matches_last_digit, yes="[[RIGHT]]", no="[[WRONG]]"), name="lazy")


EXPERIMENT = Experiment(
    claim="On `add`, held-out accuracy rises by training on a judge that errs in one of ten verdicts and sees no reference.",
    arms={
        "start": vary(recipe("grpo"), optimiser=AdamW(lr=0.0)),
        "errs 1%": build(erring_judge(0.01)),
        "errs 10%": build(erring_judge(0.1)),
        "errs 25%": build(erring_judge(0.25)),
        "lazy judge": build(LAZY_JUDGE),
        "built-in model": build(),
        "formal": recipe("grpo"),
    },
    expect=Greater("errs 10%", "start", by=0.05),
    falsified_if="accuracy is less than five points above the start",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={"inflation": Inflation(), "self-reward": Logged("reward"), "true reward": Logged("part/gold")},
    note="The paper's judge is a 7B model; here a stand-in that checks the sum and errs. The lazy judge looks at the last digit "
    "alone, so one column is enough for it: the exploit is there to be found, and its inflation shows it. The built-in model "
    "judges no better than a coin.",
)
