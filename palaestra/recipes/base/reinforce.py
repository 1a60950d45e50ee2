"""REINFORCE with the batch mean as baseline.

loss = -(1/B) sum_i (r_i - mean_batch(r)) sum_t log pi(y_t): the score-function estimator (Williams 1992), no ratio, no clip.
"""

from palaestra.card import Card
from palaestra.catalogue import recipe
from palaestra.credit.links import Center, chain
from palaestra.objective.policy import Reinforce
from palaestra.step import Recipe
from palaestra.values import vary

CARD = Card(
    title="REINFORCE",
    paper="doi:10.1007/BF00992696",
    claim="The plain score-function gradient with a baseline improves expected reward.",
    source="paper",
)


def build() -> Recipe:
    return vary(recipe("grpo"), credit=chain(Center("batch")), objective=Reinforce(reduce="constant", length=1))
