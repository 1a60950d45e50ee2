"""The claim of g2rl: G2RL: gradient-guided exploration."""

import palaestra as pl
from palaestra.claims.diversity import BOOLEAN, pass_at_8_experiment
from palaestra.recipes.objectives.g2rl import build

MIXED = pl.recipe("dars").pool  # groups whose rewards differ, none drawn again
WEIGHTS = {"credit.links.0.weight": (0.5, 1.0)}

EXPERIMENT = pass_at_8_experiment(
    claim="On Boolean formulas of five or six operators at least 3 points more is solved within 8 samples with G2RL "
    "than with GRPO.",
    quantity="AIME25 with Qwen3-4B: 20.1 in one sample against 10.0 of GRPO and 17.5 of the best other; maj@16 "
    "29.0 against 23.9",
    arms={
        "grpo": pl.recipe("grpo"),
        "g2rl": build(weight=0.5),
        "g2rl by equation 12": build("equation", weight=0.5),
        "placebo": build(weight=0.5, placebo=True),
        "mixed groups": pl.vary(build(weight=0.5), pool=MIXED),
        "placebo of mixed groups": pl.vary(build(weight=0.5, placebo=True), pool=MIXED),
    },
    expect=pl.ledger.Greater(
        "g2rl", "grpo", by=0.03, why="a third of what the paper gains in one sample"
    ),
    falsified_if="G2RL is less than 3 points above GRPO, or permuted novelty does as well",
    reasons=(pl.ledger.Needs("placebo", "the direction of an answer's gradient"),),
    constants=dict.fromkeys(
        ("g2rl", "g2rl by equation 12", "placebo", "mixed groups", "placebo of mixed groups"),
        WEIGHTS,
    ),
    controls={"maj@8": pl.ledger.Final("sampled_after.maj@8.mean")},
    note="In the older test no arm was above the untrained start. The paper prints no lambda: each arm that "
    "has one gets the better of two. The placebo permutes the novelty within the group. "
    "A third of the start's groups are all wrong, in which GRPO has no advantage and novelty one of full size: "
    "that of the commonest wrong answer in the paper's text, of the rarest by its equation 12. Two arms leave such "
    "groups out. "
    f"{BOOLEAN} Cannot show: several ideas for one problem, as a formula has one way to be worked out, "
    "with an order of its own; so a tie would not refute the method where ideas differ; nor whether directions "
    "widened, which is not logged.",
)
