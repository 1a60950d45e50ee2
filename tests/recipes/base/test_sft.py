"""Supervised fine-tuning: every token of the batch weighs the same."""

import pytest
from palaestra.explanation.method import explain
from palaestra.recipes.base import sft

from tests.recipes.helpers import FOUR


def test_sft_counts_tokens():
    assert explain(sft.build(), FOUR)["token_weights"][0][0] == pytest.approx([1 / 14] * 2)
