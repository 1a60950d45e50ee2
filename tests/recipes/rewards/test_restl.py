"""RESTL: aspects of a formula, its meaning, and four reward models before PPO."""

import asyncio

import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.rewards import restl
from palaestra.settings.overrides import make_smallest
from palaestra.types import Reward
from palaestra.verifiers.logic.temporal import formula_aspects
from palaestra.verifiers.text.similarity import relative_length

from tests.recipes.rewards.helpers import reward_of
from tests.rewards.texts import paid, task, totals

FORMULA = "G[0,21](velocity > 40 -> F[1,4](RPM < 2500))"
FIXED = (("atoms", 0.2), ("length", 0.35), ("tokens", 0.2))  # the template's likeness is 0.9 in the catalogue


def test_aspects_of_the_catalogue():
    reward = reward_of(restl.improve(weights=FIXED))
    near, half, thrice, right, empty = totals(
        reward,
        task(FORMULA),
        FORMULA.replace("21", "20"),
        "G[0,21](velocity > 40)",
        " and ".join([FORMULA] * 3),
        FORMULA,
        "",
    )
    assert near + 0.25 * 0.9 == pytest.approx(0.966304, abs=1e-6)
    assert half + 0.25 * 0.9 == pytest.approx(0.629412, abs=1e-6)
    assert thrice == pytest.approx(0.2 + 0.2 * formula_aspects(" and ".join([FORMULA] * 3), FORMULA)["tokens"])
    assert right == pytest.approx(0.75) and empty == 0.0
    assert relative_length(" and ".join([FORMULA] * 3), FORMULA) == pytest.approx(-1.227273, abs=1e-6)  # clamped to 0


def test_meaning_tells_a_wrong_bound_apart():
    reward = reward_of(restl.improve(semantic=1.0))
    near, right, junk = paid(reward, task(FORMULA), FORMULA.replace("21", "20"), f"<think>x</think>{FORMULA}", "(((")
    assert (near.parts["same"], right.parts["same"], junk.parts["same"]) == (0.0, 1.0, 0.0)
    assert right.total == pytest.approx(2.0) and near.total < 1.0
    lined = totals(reward_of(restl.improve(weights=(("atoms", 1.0),))), task("661"), "= 661", "= 166", "= 66")
    assert lined == [1.0, 1.0, 0.5], "atoms do not see the time"


def test_a_missing_proposition_and_faults():
    assert restl.Aspects((("atoms", 1.0),)).judge("G[0,1](y > 2)", task("G[0,1](x > 2)")).total == 0.0
    fault = Fault("reward-model", "nan")
    learned = restl.LearnedAspects()
    assert learned.total((Reward(total=1.0), fault, Reward(total=1.0), Reward(total=1.0))) is fault
    assert learned.total(tuple(Reward(total=0.5) for _ in range(4))).total == pytest.approx(0.5)


def test_easy_inputs_come_first(context):
    ctx, draw, state, seen = context(task="add(d=2)"), restl.EasyFirst(restl.length, block=8), {}, []
    for _ in range(4):
        tasks, state = draw(ctx, ("k",), 4, state)
        seen.append([restl.length(t) for t in tasks])
    assert seen[0] + seen[1] == sorted(seen[0] + seen[1]) and seen[2] + seen[3] == sorted(seen[2] + seen[3])
    assert len({t.id for t in tasks}) == 4


def test_four_reward_models_then_ppo(context, tmp_path):
    small = make_smallest(restl.build(steps=1))
    ctx = context(task="add(d=2)", out=tmp_path, evaluate=2, steps=1)
    result = asyncio.run(small.run(ctx))
    assert set(result.metrics["parts"]) == {"atoms", "template", "length", "tokens", "rl"}
    assert '"part/learned/atoms"' in (tmp_path / "rl" / "metrics.jsonl").read_text()


def test_a_reference_that_is_no_formula_is_refused():
    """It was read as an answer of the built-in problem, and every reply compared with that."""
    with pytest.raises(UserError, match="the answer 'always x > 3' is no formula of signal temporal logic"):
        restl.Aspects().judge("G[0,1](x > 3)", task("always x > 3"))
