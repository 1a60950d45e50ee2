"""SPA-RL: what a turn is paid, the estimator of it, and who learns when."""

import asyncio

import numpy as np
import pytest
import torch
from palaestra.credit.links import chain
from palaestra.errors import UserError
from palaestra.recipes.objectives import spa_rl
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.update import pack
from palaestra.values import vary

from tests.recipes.objectives.helpers import advantages, near, scored


def turn_rewards(recipe, **fields):
    """What the three turns of one trajectory are paid, one token each."""
    link = recipe.learners["policy"].credit.links[0]
    from palaestra.credit.table import Table, Values

    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (-1.0,)}
    segments = (Segment(ids=(0,)), *(Segment(ids=(t + 1,), turn=t, **said) for t in range(3)))
    row = Row(segments=segments)
    facts = {k: v for k, v in fields.items() if k == "executed"}
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=1.0), facts=facts),))
    signals = [[[{spa_rl.SIGNAL: np.array([9.0, *fields["c"]])}]]]
    table = Table([group], signals, {})
    return link(Values(level="episode", x_N=table.reward_E), table).x_N.tolist()


def test_spa_turn_rewards():
    c = [0.2, 0.5, 0.3]
    assert turn_rewards(spa_rl.build(), c=c, executed=(True, False, True)) == near([0.7, 0.5, 0.8])
    assert turn_rewards(spa_rl.build(), c=c, executed=(True, False, False)) == near([0.7, 0.5, 0.8])  # the last counts
    assert turn_rewards(spa_rl.build(beta=0.0), c=c) == near(c)
    assert turn_rewards(spa_rl.build(by="uniform", beta=0.0), c=c) == near([1 / 3] * 3)
    assert turn_rewards(spa_rl.build(by="outcome", beta=0.0), c=c) == [0.0] * 3  # nobody to compare with


def test_spa_pays_at_the_end_of_the_turn():
    """Values 0, gamma 1, lambda .95: turns of 2 and 1 tokens paid 1 and 0 give .95 1 0, then whitened over the batch."""
    t = {
        "reward": 1,
        "turn_lengths": [2, 1],
        "executed": [True, True],
        "value": [0, 0, 0],
        "estimator_progress": [9, 1, 0],
    }
    found = np.array(advantages(spa_rl.build(beta=0.0), t)[0])
    raw = np.array([0.95, 1.0, 0.0])
    assert found == near((raw - raw.mean()) / raw.std(ddof=1))
    with pytest.raises(UserError, match="estimator_progress"):
        advantages(spa_rl.build(), {"reward": 1, "value": [0]})


@pytest.mark.parametrize(("c", "expected"), [([0.2, 0.5, 0.2], 1.0), ([0.5, 0.2, 0.5], -1.0), ([0.3] * 3, 0.0)])
def test_spa_agreement_is_the_correlation_with_progress(c, expected):
    from palaestra.credit.table import Table, Values

    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (-1.0,)}
    row = Row(segments=(Segment(ids=(0,)), *(Segment(ids=(t + 1,), turn=t, **said) for t in range(3))))
    episode = Episode(rows=(row,), reward=Reward(total=1.0), facts={"closer": (0, 1, 0)})
    table = Table([Group(task=Task(id="t"), episodes=(episode,))], [[[{}]]], {})
    spa_rl.ProgressAgreement()(Values(level="turn", x_N=np.array(c)), table)
    assert table.columns["agreement"].x_N.mean() == near(expected)


def test_spa_trains_the_estimator_before_the_policy(context):
    ctx, state = context("grid"), start(0)
    recipe = make_smallest(spa_rl.build(warmup=1))
    prepare(recipe, ctx)
    moved = []
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        moved.append([n for n in ("policy", "estimator") if metrics.get(f"{n}/updates")])
    assert moved == [["estimator"], ["policy"]]


def estimator_loss(c, total, mask=(0, 1, 1, 1)):
    row = Row(segments=(Segment(ids=(0,)), *(Segment(ids=(t,), turn=t, trained=True, logp=(-1.0,)) for t in (1, 2, 3))))
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=total)),))
    batch = pack(spa_rl.TurnEnds()([group], [[[{}]]], {})[0], "estimator")
    assert batch.mask[0].tolist() == list(mask)
    out = torch.tensor([[5.0, *c]], requires_grad=True)
    loss, _ = spa_rl.Decompose()({"progress": out}, batch)
    loss.backward()
    return loss.item(), out.grad[0].tolist()


def test_spa_estimator():
    assert estimator_loss([0.2, 0.5, 0.3], 1.0)[0] == near(0.0)
    loss, gradient = estimator_loss([0.1, 0.4, 0.3], 1.0)
    assert loss == near(0.04) and gradient == near([0, -0.4, -0.4, -0.4])  # 2 (sum - R) at turn ends, nowhere else


def test_a_learner_without_a_model_starts_from_the_policy(context):
    ctx = context()
    prepare(spa_rl.build(), ctx)
    policy, estimator = ctx.model("policy"), ctx.model("estimator")
    assert policy.module is not estimator.module and "progress" in estimator.heads and "progress" not in policy.heads
    assert all(
        torch.equal(a, b) for a, b in zip(policy.module.parameters(), estimator.module.parameters(), strict=True)
    )


def test_spa_pays_the_kl_in_the_reward():
    """Two tokens of one turn, R = 1 at the last, d = .5 a token, V = 0: A_2 = 1 - .05, A_1 = -.05 + .95 A_2 (lambda .95)."""
    recipe = spa_rl.build(by="uniform", beta=0.0, kl=0.1)
    paid = vary(recipe, credit=chain(*recipe.learners["policy"].credit.links[:2]))  # not whitened
    group = scored(1, length=[2], value=[[0.0, 0.0]], ref_logp=[[-1.5, -1.5]])
    assert advantages(paid, *group) == [near([-0.05 + 0.95 * 0.95, 0.95])]
    assert recipe.references == {"ref": "policy"} and spa_rl.build().references == {}
