"""What learns from groups of equal rewards refuses a pool that drops them."""

from dataclasses import replace

import pytest
from palaestra.credit.links import Center, Outcome, Shift, chain
from palaestra.curriculum.pool import Everything, Mixed
from palaestra.errors import UserError
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import asymre, capo, confucius3, kimi_k1_5, lite_ppo, nsr, pav, rec
from palaestra.values import vary


def test_gates_refuse_credit_that_learns_from_equal_rewards():
    for recipe in (asymre.build(), nsr.build(positive=0.1)):
        with pytest.raises(UserError, match="Mixed drops"):
            vary(recipe, pool=Mixed(4))
        assert vary(recipe, pool=Everything()).learners["policy"].credit.keeps_equal
    for recipe in (asymre.build(shift=0.0), rec.build(), confucius3.build(), lite_ppo.build(), grpo.build()):
        assert vary(recipe, pool=Mixed(4)).pool.size == 4
    assert chain(Outcome(), Center("batch")).keeps_equal and not chain(Outcome(), Center("group")).keeps_equal
    assert not chain(Shift(0.1), Center("group")).keeps_equal


@pytest.mark.parametrize(
    "build", [capo.build, pav.build, lambda: kimi_k1_5.build(length=0.5)], ids=["capo", "pav", "kimi"]
)
def test_what_learns_from_equal_rewards_refuses_a_gate(build):
    with pytest.raises(UserError, match="learns from groups whose rewards are all equal"):
        replace(build(), pool=Mixed(size=2))
    assert replace(kimi_k1_5.build(length=0.0), pool=Mixed(size=2)).pool == Mixed(size=2)
