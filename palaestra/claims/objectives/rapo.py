"""The claim of rapo: RAPO: forward KL + reference reweighting for exploration."""

import palaestra as pl
from palaestra.claims.diversity import BOOLEAN, pass_at_8_experiment
from palaestra.recipes.objectives.rapo import build

REVERSE = pl.Clipped() + 0.01 * pl.KL("k3") + 0.001 * pl.Entropy()
ALPHA = {"objective.parts.1.weight": (0.01, 0.1)}  # of either KL

EXPERIMENT = pass_at_8_experiment(
    claim="On Boolean formulas of five or six operators, what is solved within 8 samples, above what the start "
    "solves at the temperature with the same pass@1, is at least 3 points more with RAPO than with a "
    "reverse KL and the same entropy bonus.",
    quantity=".479 of the AIME 2025 problems that the base model never solves, with 7B (a secondary source); "
    "none with a reverse KL",
    arms={
        "reverse KL": pl.vary(pl.recipe("grpo", kl=0.01), objective=REVERSE),
        "rapo": build(),
        "forward KL": build(phi="none"),
        "no KL": pl.recipe("grpo"),
    },
    expect=pl.Greater(
        "rapo",
        "reverse KL",
        by=0.03,
        why="what a reader of curves of pass@k would call another one",
    ),
    falsified_if="RAPO is less than 3 points above a reverse KL",
    reasons=(
        pl.Needs("forward KL", "a reference that is reweighted by the reward"),
        pl.Needs("start", "training, and not a temperature"),
    ),
    constants=dict.fromkeys(("reverse KL", "rapo", "forward KL"), ALPHA),
    controls={"forward KL a token": pl.Logged("kl_forward", last=3)},
    note="The older test did not tune its constants. Each arm with a KL has the better of two weights, beside "
    "three rates; the bonus for entropy is .001 in all three. phi, alpha and beta are not printed, and the "
    "exponent acts on every token here, as the recipe says. "
    f"{BOOLEAN} Cannot show: problems that the start never solves, "
    "which are the paper's point and need more samples than a cell has.",
)
