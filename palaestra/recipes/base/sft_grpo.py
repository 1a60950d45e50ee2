"""Warm start: supervised fine-tuning on demonstrations, then GRPO from its weights (arXiv:2501.12948, section 2.3)."""

from palaestra.card import Card
from palaestra.catalogue import recipe
from palaestra.pipeline import Output, Part, Pipeline

CARD = Card(
    title="SFT, then GRPO",
    paper="arXiv:2501.12948",
    claim="A cold start on demonstrations gives RL a policy it can improve.",
    source="paper",
)


def build() -> Pipeline:
    return Pipeline(parts={"sft": Part(recipe("sft")), "rl": Part(recipe("grpo"), model=Output("sft"))})
