"""The claim of l2t: Learning to Think: information-gain dense process reward
(PAC-Bayes, Fisher).
"""

import palaestra as pl
from palaestra.recipes.rewards.l2t import build


@pl.stage
class TokensPerRight:
    """Sampled tokens for each right answer, over the last steps."""

    last: int = 10

    def __call__(self, cell: pl.Cell) -> float:
        right = pl.Logged(
            "part/outcome" if "part/outcome" in cell.steps[-1] else "reward", self.last
        )(cell)
        return pl.Logged("length", self.last)(cell) / max(right, 1e-3)


EXPERIMENT = pl.Experiment(
    claim="On `add`, L2T spends fewer tokens for a right answer than GRPO with the outcome alone.",
    arms={"grpo": pl.recipe("grpo"), "l2t": build(), "no penalty": build(beta=0.0)},
    expect=pl.Greater("grpo", "l2t", by=1.0),
    falsified_if="a right answer costs no token less",
    measure=TokensPerRight(),
    metric="sampled tokens a right answer, last ten steps",
    task="add",
    tokens=30_000,
    seconds=40.0,
    controls={
        "accuracy": pl.Final(),
        "length": pl.Logged("length"),
        "gain": pl.Logged("part/gain"),
        "compression": pl.Logged("part/compression"),
        "clamped": pl.Logged("clamped"),
    },
    note="The paper's rollouts have thousands of tokens and may wander; here a working has a line "
    "a digit and little is idle.",
)
