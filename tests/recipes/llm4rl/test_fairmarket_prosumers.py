"""FairMarket-RL: households of a distribution grid that sell in some slots and buy in others."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import fairmarket_rl
from palaestra.recipes.llm4rl.fairmarket_rl.critic import evenly_paid, written_scores_of_fairness
from palaestra.recipes.llm4rl.fairmarket_rl.feeder import Feeder, FeederState, limit_flow
from palaestra.recipes.llm4rl.fairmarket_rl.program import FairSetting

LEARNER = pl.control.PPO(games=4, minibatches=1, epochs=1, width=8, bootstrap=True)


def state_of(net, slot=0):
    net = np.array([net], float)
    zero = np.zeros(net.shape)
    return FeederState(slot=slot, roof_nH=zero, net_nH=net, traded_nH=zero, money_nH=zero, before_nH=zero)


def action(price, share):
    """Price bins are 0.10, 0.15 ... 0.30, shares quarters."""
    return round((price - 0.1) / 0.05) * 4 + round(share * 4) - 1


def test_what_crosses_is_cut_in_proportion_and_the_rest_is_not():
    flow = np.zeros((1, 4, 4))
    flow[0, 0, 1], flow[0, 0, 2], flow[0, 3, 1] = 5, 3, 1  # 3 and 1 cross
    area = np.array([0, 0, 1, 1])
    cut = limit_flow(flow, area, 2.0)[0]
    assert (cut[0, 1], cut[0, 2], cut[3, 1]) == (5, 1.5, 0.5)
    assert limit_flow(flow, area, 4.0) == pytest.approx(flow) and limit_flow(flow, area, 0.0)[0, 0, 2] == 0
    assert limit_flow(np.zeros((1, 4, 4)), area, 0.0).sum() == 0


def test_a_slot_pays_by_hand():
    """The first household has 4 too much and asks 0.2 for all, the second needs 2, the third, behind the line, needs 4 and
    bids for half; the fourth needs 1 and bids less. The line carries 1.
    """
    sim = Feeder(households=4, areas=2, line=1.0)
    act = np.array([[action(0.2, 1), action(0.3, 1), action(0.25, 0.5), action(0.15, 1)]])
    after, paid, over = sim.step(state_of([-4, 2, 4, 1]), act, np.random.default_rng(0))
    # 2 go to the neighbour, 2 would cross, 1 does
    assert after.traded_nH[0] == pytest.approx([3, 2, 1, 0]) and not over[0]
    assert after.money_nH[0] == pytest.approx([0.6, 0.4, 0.2, 0])
    assert paid[0] == pytest.approx([0.6 - 0.3, -0.4, -0.2 - 0.35 * 3, -0.35])
    assert sim.observe(after)[0, 0, 3:] == pytest.approx([3 / 6, 0.5])
    assert sim.facts(after)["net"][0].tolist() == [-4, 2, 4, 1]


def test_a_day_sums_up_by_hand():
    """Two slots: the first household sells, then buys; the second the other way round; the third only buys."""
    paths = {
        "net": np.array([[[-4, 2], [2, -4], [1, 1]]], float),
        "traded": np.array([[[2, 1], [2, 2], [0, 1]]], float),
        "money": np.array([[[0.4, 0.3], [0.4, 0.4], [0, 0.1]]]),
        "alive": np.ones((1, 2), bool),
    }
    sim = Feeder(households=3, areas=1)
    table = {k: v[0] for k, v in sim.table(paths).items()}
    assert table["kWh that it had to sell"].tolist() == [4, 4, 0] and table["kWh that it needed"].tolist() == [2, 2, 2]
    assert table["profit in dollars"] == pytest.approx([0.2, 0.2, 0])
    assert table["mean price in dollars"] == pytest.approx([0.3, 0.2, 0.1])
    assert table["mean price got in dollars"] == pytest.approx([0.2, 0.2, 0])
    to_buyers, between = sim.fairness(paths)[0]
    # half served at 0.3, all at 0.2, half at 0.1; both sellers earned 0.05 a kilowatt-hour of surplus
    assert to_buyers == pytest.approx((0.5 * 0 + 1 * 0.5 + 0.5 * 1) / 3) and between == pytest.approx(1)
    # needs of 3 a slot, below the surplus of 4 in both: 4 of 6
    assert sim.served(paths) == pytest.approx(4 / 6)
    late = {k: v for k, v in paths.items() if k != "alive"} | {"alive": np.array([[True, False]])}
    assert sim.sums(late)["needed"][0].tolist() == [0, 2, 1]


def test_a_day_without_trade_is_fair_to_nobody():
    """Neither by the formula nor by the written rule; nor is it unfair where there was nothing to sell."""
    zero = np.zeros((1, 2, 1))
    paths = {"net": np.array([[[-4.0], [2.0]]]), "traded": zero, "money": zero, "alive": np.ones((1, 1), bool)}
    sim = Feeder(households=2, areas=1)
    assert sim.fairness(paths)[0].tolist() == [0.5, 0.0]  # the first one needed nothing
    assert sim.fairness({**paths, "net": -np.abs(paths["net"]) * 0})[0].tolist() == [1.0, 1.0]
    line = "- prosumer {}: kWh that it had to sell = {}, kWh sold = 1, profit in dollars = {}"
    text = lambda *rows: "\n".join(line.format(i, *row) for i, row in enumerate(rows, 1))
    assert evenly_paid(text((4, 0.4), (2, 0.1))) == pytest.approx(0.5)
    assert evenly_paid(text((4, 0.0), (2, 0.0))) == 0 and evenly_paid(text((0.1, 0.0))) == 1
    assert evenly_paid(text((4, 0.4), (0, 0.0))) == 1  # who has no roof is none of them


def test_at_noon_roofs_give_more_than_is_needed_and_at_the_ends_less():
    sim, rng = Feeder(households=40), np.random.default_rng(0)
    state, nets = sim.reset(rng, 20), []
    for _ in range(sim.horizon):
        nets.append(state.net_nH.mean())
        state, _, over = sim.step(state, np.zeros((20, 40), int), rng)
    assert over.all() and nets[0] > 0 > nets[4] and nets[-1] > 0
    bare = state.roof_nH == 0
    assert 0.15 < bare.mean() < 0.35 and state.roof_nH[~bare].min() >= 3.2
    for wrong in ({"households": 1}, {"areas": 41}, {"line": -1.0}):
        with pytest.raises(UserError):
            replace(sim, **wrong)


def test_prosumers_have_both_scores_and_are_told_as_such(context):
    made = fairmarket_rl.embedded(prosumers=4)
    made = replace(made, learner=LEARNER, steps=96, games=8, calls=12)
    setting = FairSetting(made, context(), ("test",))
    text = setting.spell(setting.situations(setting.sample)[0])
    assert "- prosumer 4: " in text and "seller 1" not in text and "kWh received from sellers" in text
    assert setting.sells.all()
    said, true = [], made.sim.fairness(setting.sample)
    for row in setting.situations(setting.sample):
        request = pl.ChatRequest(messages=pl.services.question_messages(setting.spell(row)))
        said.append(list(written_scores_of_fairness(request).values()))
    agree = [pl.stats.rank_correlation(np.array(said)[:, i], true[:, i]) for i in range(2)]
    assert min(agree) > 0.3
    found = asyncio.run(made.run(context())).metrics
    assert list(found["arms"]) == ["none", "guide", "constant", "shuffled", "oracle"]
    guide = found["arms"]["guide"]
    assert (
        0 <= guide["FTB"] <= 1 and 0 <= guide["FBS"] <= 1 and 0 <= guide["served"] <= 1 and found["fairness_paid"] > 0
    )
    with pytest.raises(UserError, match="not both"):
        fairmarket_rl.build(sim="x.py:make", prosumers=4)
