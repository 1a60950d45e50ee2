"""What the claims about bandits over arms share: six arms, a bandit that stops to learn, the arms
in the order of their difficulty, and the share of draws that some of them get.
"""

from collections.abc import Mapping
from typing import ClassVar

import palaestra as pl
from palaestra.claims.starts import unmoved

SIX_ARMS = "+".join(f"knights(d={d})" for d in range(1, 7))
RATE = 1e-4  # of every arm: what is measured moves with the rate
HARD_ARMS = tuple(f"knights(d={d})" for d in (4, 5, 6))


@pl.stage
class FrozenAfter:
    """`observe` in the first `steps` steps; then the arms stay worth what they were."""

    observe: pl.Observe
    steps: int = 5
    clock: ClassVar[str] = "steps"

    def __call__(
        self, seen: pl.Groups, examples: Mapping[str, list[pl.Example]], state: pl.State
    ) -> pl.State:
        done = state.get("observed", 0)
        state = self.observe(seen, examples, state) if done < self.steps else state
        return {**state, "observed": done + 1}


def people(task: pl.Task) -> float:
    """How many people a puzzle has: what makes it hard."""
    return float(task.meta["d"])


@pl.stage
class DrawnShare:
    """The mean share of a step's groups that some arms gave, over all but the first `skip` steps
    that drew from several. NaN where there is none.
    """

    arms: tuple[str, ...] = HARD_ARMS
    skip: int = 0

    def __call__(self, cell: pl.ledger.Cell) -> float:
        several = [s for s in cell.steps if any(k.startswith("drawn/") for k in s)][self.skip :]
        shares = [sum(float(s.get(f"drawn/{a}") or 0) for a in self.arms) for s in several]
        return sum(shares) / len(shares) if shares else float("nan")


ACCURACY = pl.ledger.Final("sampled_after.pass@1.mean")
EASY_TO_HARD = pl.curriculum.EasyToHard(
    tasks=640, batches=1, difficulty=people
)  # 40 steps of 16 prompts
NOTE = (
    "Accuracy could not decide: in trials of 60,000 tokens no arm gained more than 3 points of the "
    "greedy accuracy that it began with (.39, known to 7 points in a cell), since the small model "
    "guesses as well as it works on these puzzles, and arms of 5 people and more are nearly out of "
    "its reach. So the share of groups whose rewards differ is the measure, and accuracy over all arms "
    "a veto. That share moves with the rate, as a policy that does not move keeps its groups mixed, so "
    "all arms have one rate, 1e-4: the effect is that of the draw at this rate, and what each arm "
    "would do at its best one is not shown. "
    "A bandit that follows |A| finds such groups nearly by construction; what can fail is that it "
    "lags behind the policy. Training reward is that of the arms drawn, so `area` compares no "
    "policies. `probed` measures pass rates before every fifth step, pays for it, and stands for "
    "an oracle of the arms. The paper's gain in accuracy needs a task on which more search or longer "
    "training pays."
)


def curriculum_experiment(
    *, claim: str, quantity: str, bandit: pl.Recipe, name: str, expect: pl.ledger.Greater, note: str,
    falsified_if: str,
) -> pl.ledger.Experiment:  # fmt: skip
    """The share of groups that teach, of six arms, at equal sampled tokens: `bandit`, called
    `name`, beside draws that are uniform, easy to hard, by a bandit that stops to learn, and by
    probes.
    """
    uniform = pl.recipe("grpo")
    return pl.ledger.Experiment(
        claim=claim,
        quantity=quantity,
        start=unmoved(uniform, steps=30),
        arms={
            "uniform": uniform,
            name: bandit,
            "frozen": pl.vary(bandit, observe=FrozenAfter(bandit.observe)),
            "easy to hard": pl.vary(uniform, draw=EASY_TO_HARD),
            "probed": pl.vary(uniform, draw=pl.curriculum.ProbedArms(every=5, tasks=2)),
        },
        expect=expect,
        falsified_if=falsified_if,
        reasons=(pl.ledger.Needs("frozen", "that the arms' values follow the policy"),),
        vetoes={"sampled accuracy": pl.ledger.Veto(ACCURACY, falls=0.03)},
        measure=pl.ledger.Logged("groups_mixed", last=30),
        metric="share of groups whose rewards differ, last 30 steps",
        tuned={"optimiser.lr": (RATE,)},
        task=SIX_ARMS,
        tokens=60_000,
        evaluate=192,
        samples=4,
        seconds=60.0,
        controls={
            "mixed groups, whole run": pl.ledger.Logged("groups_mixed", last=0),
            "draws of the hard arms": DrawnShare(),
            "draws of the hard arms later": DrawnShare(skip=25),
        },
        note=f"{note} {NOTE}",
    )
