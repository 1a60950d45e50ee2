"""GRPO whose advantages shrink with the answer: A_i / T_i^power, T_i the tokens of answer i."""

import numpy as np

from palaestra.catalogue import recipe
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.table import Table, Values
from palaestra.step import Recipe
from palaestra.types import stage
from palaestra.values import vary


@stage
class Shrink:
    """x / T^power, T the sampled tokens of the episode; where all rewards are equal, x stays 0."""

    power: float = 0.5

    def __call__(self, x: Values, table: Table) -> Values:
        length_E = np.maximum(table.lengths_E, 1)
        return Values(level=x.level, x_N=x.x_N / length_E**self.power)


def build(power: float = 0.5) -> Recipe:
    return vary(recipe("grpo"), credit=chain(Center("group"), Scale("group"), Shrink(power)))
