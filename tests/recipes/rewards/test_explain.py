"""`explain` on rewards with models of their own: what it says that it misses."""

import pytest
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import (
    creative_writing,
    encore,
    mm_rlhf,
    multilabel_grpo,
    reward_robust,
    rlbff,
    rlcf,
    salu,
)


def test_explain_says_what_it_misses():
    rows = [[{"reward": 1.0, "ref_logp": [-1.0] * 4}, {"reward": 0.0, "ref_logp": [-1.0] * 4}]]
    recipes = (
        rlbff.embedded(), multilabel_grpo.improve(), encore.build().parts["rl"].runnable, creative_writing.build(),
        rlcf.build().parts["rl"].runnable, salu.improve(),
    )  # fmt: skip
    for recipe in recipes:
        first, second = explain(recipe, rows)["advantages"][0]
        assert first > 0 > second
    with pytest.raises(UserError, match="no reward has the part 'gold'"):
        explain(mm_rlhf.embedded(), rows)
    bare = explain(salu.improve(), [[{"reward": 1.0}, {"reward": 0.0}]])
    assert bare["token_weights"] is None and "'ref_logp'" in bare["notes"][0]
    with pytest.raises(UserError, match="value"):
        explain(reward_robust.build(), rows)
