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
    for module in (rlbff, multilabel_grpo, encore, creative_writing, rlcf, salu):
        first, second = explain(module.build(), rows)["advantages"][0]
        assert first > 0 > second
    with pytest.raises(UserError, match="no reward has the part 'gold'"):
        explain(mm_rlhf.build(), rows)
    bare = explain(salu.build(), [[{"reward": 1.0}, {"reward": 0.0}]])
    assert bare["token_weights"] is None and "'ref_logp'" in bare["notes"][0]
    with pytest.raises(UserError, match="value"):
        explain(reward_robust.build(), rows)
