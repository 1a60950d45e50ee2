"""Warm start: supervised fine-tuning on demonstrations, then GRPO from its weights
(arXiv:2501.12948, section 2.3).
"""

import palaestra as pl

CARD = pl.Card(
    title="SFT, then GRPO",
    paper="arXiv:2501.12948",
    claim="A cold start on demonstrations gives RL a policy it can improve.",
    source="paper",
)


def build() -> pl.Pipeline:
    return pl.Pipeline(
        parts={
            "sft": pl.Part(pl.recipe("sft")),
            "rl": pl.Part(pl.recipe("grpo"), model=pl.Output("sft")),
        }
    )
