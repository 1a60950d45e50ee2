"""GRPO whose advantages shrink with the answer: A_i / T_i^power, T_i the tokens of answer i."""

import numpy as np

import palaestra as pl


@pl.stage
class Shrink:
    """x / T^power, T the sampled tokens of the episode; where all rewards are equal, x stays 0."""

    power: float = 0.5

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        length_E = np.maximum(table.lengths_E, 1)
        return pl.Values(level=x.level, x_N=x.x_N / length_E**self.power)


def build(power: float = 0.5) -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"), credit=pl.chain(pl.Center("group"), pl.Scale("group"), Shrink(power))
    )
