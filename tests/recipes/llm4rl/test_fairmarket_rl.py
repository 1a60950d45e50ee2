"""FairMarket-RL: the microgrid, how fair it is, what a critic's scores become, and the arms."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import fairmarket_rl
from palaestra.recipes.llm4rl.fairmarket_rl.critic import written_scores_of_fairness
from palaestra.recipes.llm4rl.fairmarket_rl.microgrid import (
    Microgrid,
    MicrogridState,
    fairness_between,
    fairness_to_buyers,
    match_offers,
    read_actions,
)
from palaestra.recipes.llm4rl.fairmarket_rl.program import (
    FairnessShaping,
    FairSetting,
    IndependentTraders,
    own_paths,
    ramp,
    steps_of,
)
from palaestra.stats import rank_correlation

LEARNER = pl.control.PPO(games=4, minibatches=1, epochs=1, width=8, bootstrap=True)
ROW = np.array([[0.0, 1.0]])


def program(**settings):
    made = fairmarket_rl.embedded()
    return replace(made, **{"learner": LEARNER, "steps": 96, "games": 8, "calls": 12, **settings})


def setting(context, **settings):
    return FairSetting(program(**settings), context(), ("test",))


def state_of(amount):
    nothing = np.zeros((1, len(amount)))
    return MicrogridState(
        slot=0, size_nA=nothing + 3, amount_nA=np.array([amount], float), traded_nA=nothing, price_nA=nothing,
        offered_nA=nothing,
    )  # fmt: skip


def test_fairness_to_buyers_by_hand():
    """Fulfilment 0.9 and 1, price terms 0.5 and 0.6: (0.45 + 0.6) / 2."""
    found = fairness_to_buyers(np.array([[10.0, 10.0]]), np.array([[9.0, 10.0]]), np.array([[0.20, 0.18]]))
    assert found == pytest.approx([0.525])
    assert fairness_to_buyers(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2))) == 1.0
    assert fairness_to_buyers(np.ones((1, 2)), np.zeros((1, 2)), np.zeros((1, 2))) == 0.0


def test_fairness_between_sellers_by_hand():
    """Profits of 2, 3 and 5 have a Gini coefficient of 0.2; Jain's index would be 0.877."""
    profits = np.array([[2.0, 3.0, 5.0], [0.0, 0.0, 0.0], [4.0, 4.0, 4.0], [6.0, 0.0, 0.0]])
    assert fairness_between(profits) == pytest.approx([0.8, 1.0, 1.0, 1 / 3])


def test_ramp_by_hand():
    """Of a lambda of 0.5 from episode 100 to 300 of 1500 there is 0, 0.125 and 0.5 after 50, 150 and 400."""
    shares = [0.5 * ramp(e / 1500, 100 / 1500, 300 / 1500) for e in (50, 150, 400)]
    assert shares == pytest.approx([0.0, 0.125, 0.5])
    assert [ramp(x, 0.5, 0.5) for x in (0.4, 0.5)] == [0.0, 1.0]


def test_actions_are_bins():
    price, share = read_actions(np.array([[0, 3, 19, 10]]))
    assert price[0] == pytest.approx([0.10, 0.10, 0.30, 0.20]) and share[0].tolist() == [0.25, 1.0, 1.0, 0.75]


def test_the_cheapest_offer_goes_first_to_the_buyer_that_pays_most():
    """3 at 0.15 and 5 at 0.25; the second buyer pays 0.3 for 4, the first 0.2 for 2."""
    flow = match_offers(
        np.array([[0.25, 0.15]]), np.array([[5.0, 3.0]]), np.array([[0.2, 0.3]]), np.array([[2.0, 4.0]])
    )
    assert flow[0].tolist() == [[0, 1], [0, 3]]
    # 5 at 0.15: what the second buyer leaves is the first one's
    flow = match_offers(
        np.array([[0.25, 0.15]]), np.array([[5.0, 5.0]]), np.array([[0.2, 0.3]]), np.array([[2.0, 4.0]])
    )
    assert flow[0].tolist() == [[0, 0], [1, 4]]


def test_a_slot_pays_by_hand():
    """Seller 1 offers 4 at 0.10 + 0.05 x 1, seller 2 half of 4 at 0.3. Buyer 1 takes all 3 that it needs at up to 0.3,
    buyer 2 half of 4 at up to 0.15: it has the one that is left."""
    sim, rng = Microgrid(), np.random.default_rng(0)
    act = np.array([[1 * 4 + 3, 4 * 4 + 1, 4 * 4 + 3, 1 * 4 + 1]])
    state, paid, over = sim.step(state_of([4, 4, 3, 4]), act, rng)
    assert state.traded_nA[0] == pytest.approx([4, 0, 3, 1]) and not over.any()
    assert paid[0] == pytest.approx([4 * 0.05, 0, -3 * 0.15, -0.15 - 3 * 0.35])
    facts = sim.facts(state)
    assert facts["wanted"][0].tolist() == [4, 4, 3, 4] and facts["money"][0] == pytest.approx([0.6, 0, 0.45, 0.15])
    assert sim.observe(state)[0, 0] == pytest.approx([1, 1 / 8, state.amount_nA[0, 0] / 6, 4 / 6, 0.25])


def test_a_day_ends_and_its_table_sums_up():
    sim = Microgrid(horizon=2)
    columns = {
        "wanted": [[4, 4], [4, 2], [3, 3], [4, 0]],
        "traded": [[4, 2], [0, 0], [3, 2], [1, 0]],
        "money": [[0.6, 0.5], [0, 0], [0.45, 0.5], [0.15, 0]],
    }
    paths = {k: np.array([v], float) for k, v in columns.items()}
    table = {k: v[0] for k, v in sim.table(paths).items()}
    assert table["kWh that it had to sell"].tolist() == [8, 6, 0, 0] and table["kWh that it needed"].tolist() == [
        0,
        0,
        6,
        4,
    ]
    assert table["mean price in dollars"] == pytest.approx([1.1 / 6, 0, 0.95 / 5, 0.15])
    assert table["profit in dollars"] == pytest.approx([0.5, 0, 0, 0])
    first, second = 5 / 6 * (0.3 - 0.19) / 0.2, 1 / 4 * 0.15 / 0.2
    assert sim.fairness(paths)[0] == pytest.approx([(first + second) / 2, 0.5]) and sim.served(paths) == 0.6
    state = sim.reset(np.random.default_rng(0), 3)
    act = np.zeros((3, 4), int)
    ends = []
    for _ in range(2):
        state, _, over = sim.step(state, act, np.random.default_rng(0))
        ends.append(over.tolist())
    assert ends == [[False] * 3, [True] * 3]
    with pytest.raises(UserError, match="1 seller"):
        Microgrid(sellers=0)


def test_scores_are_paid_at_the_end_and_to_whom_they_belong(context):
    """A seller's profit of 1 with a deviation of 0.5, lambdas of 0.125 and scores of 0.8 make 2 + 0.1 + 0.1."""
    place = setting(context, to_buyers=0.125, between=0.125)
    guide = pl.control.ComputedGuide(lambda rows: np.tile([0.8, 0.8], (len(rows), 1)))
    given = FairnessShaping(place, guide, steps=32, at_once=True)
    games = place.sample
    asyncio.run(given.between(games, 1))
    given.count, given.total, given.square = 1, np.zeros(4), np.full(4, 0.25)  # a deviation of 0.5
    added = given(games) - games["reward"] / 0.5
    assert added[:, :, :-1] == pytest.approx(0)
    asked = place.situations(games)
    known = given.advisor.cache.nearest(asked, 1e6) >= 0
    assert known.all()
    assert added[:, :2, -1] == pytest.approx(0.2) and added[:, 2:, -1] == pytest.approx(0.1)
    assert given.paid == pytest.approx(0, abs=1e-12)  # the same for every game: that moves nobody
    half = np.arange(len(asked)) < len(asked) / 2
    given.scores = lambda paths: np.where(half[:, None], [0.8, 0.8], [0.4, 0.8])
    given(games)
    assert given.paid == pytest.approx(0.025)  # 0.1 and 0.05 for FTB, in half of the games each


def test_profits_are_in_units_of_their_deviation_over_all_games(context):
    place = setting(context)
    given = FairnessShaping(place, None, 512, False)
    games = [{**place.sample, "reward": place.sample["reward"] * k} for k in (1.0, 3.0)]
    for i, part in enumerate(games, 1):
        asyncio.run(given.between(part, i))
    paid = np.concatenate([g["reward"].sum(-1) for g in games])
    assert given.scale == pytest.approx(paid.std(0)) and given.weight == 0
    assert given(games[0]) == pytest.approx(games[0]["reward"] / paid.std(0)[:, None])


def test_nobody_is_asked_before_scores_count(context):
    place = setting(context, start=0.5, full=0.75, calls=96)
    asked = []

    def compute(rows):
        asked.append(len(rows))
        return np.zeros((len(rows), 2))

    given = FairnessShaping(place, pl.control.ComputedGuide(compute), 8 * place.sample["alive"].size, False)
    weights = []
    for i in range(1, 9):
        asyncio.run(given.between(place.sample, i))
        weights.append(given.weight)
    assert weights == [0, 0, 0, 0, 0.5, 1, 1, 1] and len(asked) == 4 and max(asked) == 96 // 8


def test_the_ramp_and_the_budget_follow_the_steps_that_were_taken(context):
    """Games that end after a quarter of their slots are a quarter of the steps, so four times as many updates."""
    place = setting(context, start=0.5, full=0.75, calls=96)
    short = {**place.sample, "alive": place.sample["alive"] & (np.arange(8) < 2)}
    guide = pl.control.ComputedGuide(lambda rows: np.zeros((len(rows), 2)))
    given = FairnessShaping(place, guide, 2 * place.sample["alive"].size, False)
    weights = []
    for i in range(1, 9):
        asyncio.run(given.between(short, i))
        weights.append(given.weight)
    assert weights == [0, 0, 0, 0, 0.5, 1, 1, 1] and given.advisor.asking.most == 12


@pytest.mark.parametrize(("steps", "updates"), [(96, 3), (319, 10)])
def test_few_updates_are_said(context, steps, updates):
    """Four games of eight steps are an update."""
    ctx, told = context(), []
    ctx.say = told.append
    FairSetting(program(steps=steps), ctx, ("test",))
    few = [x for x in told if f"steps={steps} are {updates} updates" in x and "steps=320 are 10 updates" in x]
    assert len(few) == (updates < 10)


def test_scores_of_trained_agents_lie_beyond_the_games_of_the_start(context):
    """Games that pay several times what the start earns are told apart, and spelled as they are."""
    place = setting(context)
    table = place.table(place.sample)
    at = list(table).index("profit in dollars")
    games = {k: np.repeat(v[:1], 2, 0) for k, v in place.sample.items()}
    games["money"] = games["money"] * np.array([5.0, 8.0])[:, None, None]
    rows, true = place.situations(games), place.table(games)["profit in dollars"]
    assert (rows[0] != rows[1]).any() and true.max() > 2 * table["profit in dollars"].max()
    for row, profit in zip(rows, true, strict=True):
        text = place.spell(row).split("- seller 1: ")[1].split("\n")[0]
        said = float(text.split("profit in dollars = ")[1])
        assert said == pytest.approx(profit[0], abs=place.step_AC[0, at] / 2 + 0.005 * abs(profit[0]))
    idle = {**games, "money": 0 * games["money"], "traded": 0 * games["traded"]}
    assert "kWh sold = 0, mean price in dollars = 0, profit in dollars = 0\n" in place.spell(place.situations(idle)[0])


def test_what_is_the_same_in_the_games_of_the_start_is_told_once_it_differs():
    step, plain = steps_of(np.array([[[0.0, 6.0, 1.0]], [[0.0, 6.0, 4.0]]]))
    assert step[0] == pytest.approx([1 / 12, 0.5, 0.25]) and plain[0, :2].tolist() == [0, 12] and np.isnan(plain[0, 2])


def test_a_question_tells_of_trades_and_of_no_reward(context):
    place = setting(context)
    row = place.situations(place.sample)[0]
    text, table = place.spell(row), place.table(place.sample)
    assert "- seller 2: " in text and "- buyer 2: " in text and "seller 3" not in text
    sold = float(text.split("- seller 1: ")[1].split("kWh sold = ")[1].split(",")[0])
    high, low = (getattr(table["kWh sold"][:, 0], k)() for k in ("max", "min"))
    assert sold == pytest.approx(table["kWh sold"][0, 0], abs=(high - low) / 24 + 0.05)
    assert "reward" not in text and "lambda" not in text and "kWh that it needed" not in text.split("- buyer")[0]


def test_the_written_rule_goes_with_the_formulas(context):
    place = setting(context)
    said = []
    for row in place.situations(place.sample):
        request = pl.ChatRequest(messages=pl.services.question_messages(place.spell(row)))
        said.append(list(written_scores_of_fairness(request).values()))
    said, true = np.array(said), place.program.sim.fairness(place.sample)
    assert said * 20 == pytest.approx(np.round(said * 20)) and said.min() >= 0 and said.max() <= 1
    assert rank_correlation(said[:, 0], true[:, 0]) > 0.4 and rank_correlation(said[:, 1], true[:, 1]) > 0.6
    assert (
        rank_correlation(np.ones(3), np.arange(3)) == 0 and rank_correlation(np.arange(3), -(np.arange(3) ** 3)) == -1
    )


def test_every_agent_learns_alone(context):
    """Agents have weights of their own, and the rewards of others change nothing."""
    place = setting(context)
    lines, ends = [], []
    for other in (0.0, 5.0):
        given = FairnessShaping(place, None, 512, False)
        paid = lambda paths, other=other, given=given: (
            given(paths) + other * (np.arange(4) > 0)[:, None] * paths["obs"][..., 2]
        )
        paid.between, paid.weight, paid.paid = given.between, 0.0, 0.0
        learner = IndependentTraders(learner=LEARNER)
        ends.append(asyncio.run(learner.learn(place.program.sim, 32, ("a",), paid, lines.append)))
    same = [
        all((x == y).all() for x, y in zip(a.parameters(), b.parameters(), strict=True))
        for a, b in zip(*ends, strict=True)
    ]
    assert same == [True, False, False, False] and lines[0]["env_steps"] == 32
    first = [next(p.parameters()) for p in ends[0]]
    assert not (first[0] == first[1]).all()
    own = own_paths(place.sample, place.sample["reward"] * 2, 3)
    assert own["obs"].shape[1] == 1 and (own["reward"][:, 0] == 2 * place.sample["reward"][:, 3]).all()


def test_a_killed_run_ends_with_the_same(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(request)
        return "fair enough" if len(asked) == 1 else written_scores_of_fairness(request)

    made = program(asked=pl.Scripted(answer))
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and len(asked) == calls
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "constant", "shuffled", "oracle"]
    assert {a["env_steps"] for a in arms.values()} == {96} and first["fairness_paid"] > 0 == arms["none"][
        "fairness_paid"
    ]
    assert 0 < arms["guide"]["asked"] <= 12 and {"FTB", "FBS", "served", "profit"} <= set(arms["none"])
    policies = [pl.control.load_policy(tmp_path / "policy" / f"agent_{a}") for a in range(4)]
    assert {p.actions for p in policies} == {20}


def test_a_simulator_of_ones_own(context, tmp_path):
    """One that says nothing of sellers: all are, and the question has what each earned and its facts."""
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"FTB": 0.5, "FBS": 0.5}

    made = program(sim=pl.control.SimpleSpread(horizon=5), asked=pl.Scripted(answer), steps=40)
    found = asyncio.run(made.run(context())).metrics
    assert "- agent 3: earned = " in seen[0] and found["fairness_paid"] == pytest.approx(0)
    assert "oracle" not in found["arms"] and "FTB" not in found["arms"]["guide"]


def test_what_cannot_run_says_why(context):
    def answer(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        asyncio.run(program(asked=pl.Scripted(answer)).run(context()))
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(program(), asked=None).run(context()))
    with pytest.raises(UserError, match="several agents"):
        program(sim=pl.control.CarFollowing())
    with pytest.raises(UserError, match="start <= full"):
        program(start=0.5, full=0.1)
