"""Supervised fine-tuning: the mean negative log-likelihood of demonstrations, over tokens."""

import palaestra as pl

CARD = pl.Card(
    title="Supervised fine-tuning",
    claim="Imitating demonstrations raises the likelihood of good answers.",
    source="textbook",
)


def build() -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Demonstrate()),
        credit=pl.credit.Imitate(),
        objective=pl.Imitation(),
        schedule=pl.Schedule(prompts=64, steps=100),
    )
