"""Supervised fine-tuning: the mean negative log-likelihood of demonstrations, over tokens."""

from palaestra.card import Card
from palaestra.catalogue import recipe
from palaestra.credit.rows import Imitate
from palaestra.objective.policy import Imitation
from palaestra.rollout.collect import links
from palaestra.rollout.recorded import Demonstrate
from palaestra.step import Recipe, Schedule
from palaestra.values import vary

CARD = Card(
    title="Supervised fine-tuning",
    claim="Imitating demonstrations raises the likelihood of good answers.",
    source="textbook",
)


def build() -> Recipe:
    return vary(
        recipe("grpo"),
        collect=links(Demonstrate()),
        credit=Imitate(),
        objective=Imitation(),
        schedule=Schedule(prompts=64, steps=100),
    )
