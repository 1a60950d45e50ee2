"""Supervised fine-tuning: the mean negative log-likelihood of demonstrations, over tokens."""

from palaestra.card import Card
from palaestra.credit.rows import Imitate
from palaestra.objective.policy import Imitation
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import links
from palaestra.rollout.recorded import Demonstrate
from palaestra.step import Recipe, Schedule
from palaestra.values import vary

CARD = Card(
    id="sft",
    family="base",
    title="Supervised fine-tuning",
    parent="grpo",
    claim="Imitating demonstrations raises the likelihood of good answers.",
    changes={
        "collect": "demonstrations of the data instead of samples",
        "credit": "every row counts the same",
        "objective": "-log pi of the demonstrated tokens",
    },
    source="textbook",
)


def build() -> Recipe:
    return vary(
        grpo.build(),
        collect=links(Demonstrate()),
        credit=Imitate(),
        objective=Imitation(),
        schedule=Schedule(prompts=64, steps=100),
    )
