"""The claim of effective-rank: Hidden-state exploration: Effective Rank, ERV, ERA (VERL)."""

import palaestra as pl
from palaestra.claims.diversity import BOOLEAN, pass_at_8_experiment
from palaestra.recipes.objectives.effective_rank import build

KAPPA = {"credit.links.2.kappa": (2.0, 4.0)}

EXPERIMENT = pass_at_8_experiment(
    claim="On Boolean formulas of five or six operators, what is solved within 8 samples, above what the start "
    "solves at the temperature with the same pass@1, is at least 3 points more with VERL's bonus than "
    "with GRPO.",
    quantity="up to 21.4 points above GRPO, on Gaokao 2024",
    arms={
        "grpo": pl.recipe("grpo"),
        "verl": build(stride=2),
        "placebo": build(stride=2, placebo=True),
    },
    expect=pl.Greater("verl", "grpo", by=0.03, why="a seventh of the paper's largest gain"),
    falsified_if="VERL is less than 3 points above GRPO, or bonuses of other answers do as well",
    reasons=(
        pl.Needs("placebo", "that the bonus belongs to the answer whose states earned it"),
        pl.Needs("start", "training, and not a temperature"),
    ),
    constants={"verl": KAPPA, "placebo": KAPPA},
    note="In the older test no arm was above the untrained start. Prefixes of 2 tokens in answers of 10 to 50, "
    "where the paper has 40 in a thousand. In answers this short the rank is nearly a count of tokens, so the "
    "bonus pays for working, which is what is to be learned: a gain may be one of length, which is shown. "
    f"{BOOLEAN} Cannot show: ranks that differ between answers of one length.",
)
