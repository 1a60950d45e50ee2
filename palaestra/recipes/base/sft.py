"""Supervised fine-tuning: imitates demonstrations. The loss is their mean negative log-likelihood,
over tokens.
"""

from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="Supervised fine-tuning",
    claim="Imitating demonstrations raises the likelihood of good answers.",
    source="textbook",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(pl.needs.DEMONSTRATION, otherwise="the answer is imitated, without a working"),
            replace(pl.needs.ANSWER, otherwise="the demonstration alone is imitated"),
        ),
        shows="nll",
        never_off="A demonstration's negative log-likelihood is 0 only for a model that is certain of "
        "every token of it, so imitation has no arm with a 0: without it nothing is read.",
        own={"schedule.prompts": 8},
    ),
    use="It helps where good answers are there; it learns nothing from wrong ones, and forgets what the "
    "demonstrations do not show.",
    grade="A",
)


def build() -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Demonstrate()),
        credit=pl.credit.Imitate(),
        objective=pl.Imitation(),
        schedule=pl.Schedule(prompts=64, steps=100),
    )
