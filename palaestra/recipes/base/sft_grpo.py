"""Warm start: supervised fine-tuning on demonstrations, then GRPO from its weights (arXiv:2501.12948, section 2.3)."""

from palaestra.card import Card
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.base import grpo, sft

CARD = Card(
    id="sft-grpo",
    family="base",
    title="SFT, then GRPO",
    shape="pipeline",
    paper="arXiv:2501.12948",
    claim="A cold start on demonstrations gives RL a policy it can improve.",
    source="paper",
)


def build() -> Pipeline:
    return Pipeline(parts={"sft": Part(sft.build()), "rl": Part(grpo.build(), model=Output("sft"))})
