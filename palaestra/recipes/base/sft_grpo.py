"""Imitates demonstrations first, then learns from its own answers by GRPO, from the weights that
imitation left (arXiv:2501.12948, section 2.3).
"""

from dataclasses import replace

import palaestra as pl

CARD = pl.Card(
    title="SFT, then GRPO",
    paper="arXiv:2501.12948",
    claim="A cold start on demonstrations gives RL a policy it can improve.",
    source="paper",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(pl.needs.DEMONSTRATION, otherwise="the answer is imitated, without a working"),
        ),
        shows="groups_mixed",
        off={"rl.collect.links.0.n": 1},
        own={"sft.schedule.prompts": 4, "rl.schedule.prompts": 2, "rl.collect.links.0.n": 4},
    ),
    use="It helps where the policy hardly ever solves a problem and good answers are there to begin with.",
    lacks=(
        "The later stages of the paper, rejection sampling and a second RL, are not there.",
        "The reward for one language in an answer is not there.",
        "Smaller models are not distilled from the trained one.",
    ),
    grade="B",
)


def build() -> pl.Pipeline:
    return pl.Pipeline(
        parts={
            "sft": pl.Part(pl.recipe("sft")),
            "rl": pl.Part(pl.recipe("grpo"), model=pl.Output("sft")),
        }
    )
