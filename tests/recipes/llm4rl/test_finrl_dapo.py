"""FinRL-DAPO: trades, what news makes of them, the advantages of groups, files of prices, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import finrl_dapo
from palaestra.recipes.llm4rl.finrl_dapo.group import TradingGroups, group_advantage
from palaestra.recipes.llm4rl.finrl_dapo.headlines import BANK, SCORE_OF, written_scores
from palaestra.recipes.llm4rl.finrl_dapo.market import (
    StockMarket,
    counterfactual_reward,
    indicators,
    news_factor,
    scale_by_news,
)
from palaestra.recipes.llm4rl.finrl_dapo.news import (
    exchanged,
    score_headlines,
    spread_evenly,
    whole_scores,
)
from palaestra.recipes.llm4rl.finrl_dapo.prices import hindsight, made_up_prices, read_prices
from palaestra.recipes.llm4rl.finrl_dapo.program import TradingArms, first_held_day, held_assets, measures

KEY = ("test",)
SMALL = TradingGroups(games=2, group=3, width=8)


def program(**settings):
    critic = pl.control.PPO(games=2, bootstrap=True, width=8)
    small = {"learner": SMALL, "critic": critic, "steps": 20, "days": 5, "paths": 2}
    return replace(finrl_dapo.build(), **{**small, **settings})


def market(close, score=None, **settings):
    close = np.array(close, float)[None]
    score = np.full((*close.shape, 2), 3.0) if score is None else score
    last = close.shape[1] - 1
    return StockMarket(close, score, **{"first": 0, "last": last, "unseen": last + 1, **settings})


def csv(tmp_path, text, name="prices.csv"):
    file = tmp_path / name
    file.write_text(text)
    return str(file)


def rows(days, tickers=("AAA", "BBB"), cells="", head=""):
    """Prices of days from 2024-01-01 on, 100, 101 and so on, with more cells in each row."""
    day = lambda t: str(np.datetime64("2024-01-01") + t)
    lines = [f"{day(t)},{k},{100 + t}{cells}" for t in range(days) for k in tickers]
    return "\n".join([f"date,ticker,close{head}", *lines]) + "\n"


# ---- formulas


def test_the_factor_of_news_by_hand():
    """Halves of two stocks: S = (1.01 + 1) / 2, R = (0.99 + 1) / 2, their quotient 1.010050."""
    act, after = np.array([0.5, 0.5]), np.array([100.0, 100.0])
    score = np.array([[5.0, 1.0], [3.0, 3.0]])
    assert news_factor(act, after, score, signed=True) == pytest.approx(1.005 / 0.995, abs=1e-7)
    assert news_factor(act, after, score, signed=True) == pytest.approx(1.010050, abs=1e-6)
    assert news_factor(act, after, score, signed=False, alpha=2, beta=0) == pytest.approx(1.005**2, abs=1e-7)
    assert news_factor(np.zeros(2), after, score, signed=False) == 1.0
    # weights by prices: 3/4 of the value is the first stock
    assert news_factor(act, np.array([300.0, 100.0]), score, signed=False, beta=0) == pytest.approx(1.0075)


def test_signed_weights_have_no_bound_and_those_of_sizes_do():
    """0.5 and -0.49 of equal prices weigh 50 and -49: S = 50 x 1.01 - 49 = 1.5."""
    act, after = np.array([0.5, -0.49]), np.array([100.0, 100.0])
    score = np.array([[5.0, 3.0], [3.0, 3.0]])
    assert news_factor(act, after, score, signed=True) == pytest.approx(1.5)
    assert 1.0 < news_factor(act, after, score, signed=False) < 1.01
    far = np.array([0.5, -0.4999])
    assert news_factor(far, after, score[::-1], signed=True) > 0  # S would be -49


def test_trades_are_scaled_by_news():
    act = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 0.5, 0.0])
    sentiment = np.array([5.0, 5.0, 2.0, 2.0, 3.0, 4.0, 1.0])
    assert scale_by_news(act, sentiment) == pytest.approx([1.1, -0.9, 0.95, -1.05, 1.0, 0.525, 0.0])


def test_counterfactual_reward_by_hand():
    price, after = np.array([100.0, 50.0]), np.array([101.0, 49.0])
    assert counterfactual_reward(np.array([0.5, -0.2]), price, after) == pytest.approx(0.009)


def test_advantages_of_groups_have_the_deviation_of_the_population():
    A, kept = group_advantage(np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0], [0.0, 0.0, 9e-7]]))
    assert A[0] == pytest.approx([-1.224745, 0.0, 1.224745], abs=1e-6)
    assert kept.tolist() == [True, False, False] and not A[1:].any()


@pytest.mark.parametrize(("rho", "A", "loss"), [(1.5, 1, -1.28), (0.5, 1, -0.5), (1.5, -1, 1.5), (0.5, -1, 0.8)])
def test_the_objective_clips_higher(rho, A, loss):
    one = lambda x: torch.full((1, 1), float(x))
    columns = {"behaviour_logp": one(0), "advantage": one(A), "trained": one(1)}
    batch = pl.Batch(columns=columns, unit_B=torch.zeros(1, dtype=torch.long), n_tokens=1, n_rows=1, n_units=1)
    value, _ = SMALL.learner.objective({"logp": one(np.log(rho))}, batch)
    assert float(value) == pytest.approx(loss)


def test_measures_by_hand():
    """1,000,000 goes to 1.1, 0.99 and 1.188 of it: +10%, -10%, +20%; the largest loss from a peak is 10%."""
    assets = 1e6 * np.array([[1.1, 0.99, 1.188]])
    found = measures(assets, 1e6 * np.array([[1.0, 1.0, 1.0]]))
    change = np.array([0.1, -0.1, 0.2])
    assert found["percent"] == pytest.approx(18.8) and found["drawdown"] == pytest.approx(10)
    assert found["sharpe"] == pytest.approx(change.mean() / change.std() * 252**0.5)
    assert found["cvar"] == pytest.approx(-10) and found["information_ratio"] == pytest.approx(found["sharpe"])
    still = measures(np.full((1, 4), 1e6), np.full((1, 4), 1e6))
    assert not any(still.values())


# ---- the market


def test_a_day_of_trades_by_hand():
    """Full trades of two stocks are 4,200 shares. All of the first one is bought at 100 with a cost of 0.1%; it rises
    by 1%, the account by 4,200 - 420."""
    sim = market([[10.0, 50.0], [10.1, 50.0], [10.1, 49.0]])
    state = sim.reset(np.random.default_rng(0), 1)
    assert sim.most == 4200 and sim.horizon == 2
    state, paid, over = sim.step(state, np.array([[[1.0, 0.0]]]), np.random.default_rng(0))
    assert state.shares_nK.tolist() == [[4200, 0]] and not over.any()
    assert state.cash_n == pytest.approx(1e6 - 420_000 * 1.001)
    assert paid[0, 0] == pytest.approx(1e-4 * (4200 - 420)) and state.learned_n == pytest.approx(paid[0, 0])
    # the next day half of them are sold, then the other stock is bought, which falls by 2%
    after, paid, _ = sim.step(state, np.array([[[-0.5, 1.0]]]), np.random.default_rng(0))
    assert after.shares_nK.tolist() == [[2100, 4200]]
    cost, loss = 0.001 * (2100 * 101 + 4200 * 100), 4200 * 2.0
    assert paid[0, 0] == pytest.approx(-1e-4 * (cost + loss)) and after.learned_n == pytest.approx(paid[0, 0])
    assert sim.assets(after) == pytest.approx(1e6 - 420 + 4200 - cost - loss)
    assert state.shares_nK.tolist() == [[4200, 0]]  # a state is a value


def test_what_a_trade_is_learned_from_is_not_what_shares_earned_before():
    sim = market([[10.0], [11.0], [12.1]])
    rng = np.random.default_rng(0)
    state, *_ = sim.step(sim.reset(rng, 1), np.ones((1, 1, 1)), rng)
    held, paid, _ = sim.step(state, np.zeros((1, 1, 1)), rng)
    assert paid[0, 0] > 0 and held.learned_n == 0


def test_cash_and_shares_are_limits():
    """Of two full buys the larger one comes first; nobody sells what they do not have, and shares are whole."""
    sim = market([[10.0, 50.0], [10.0, 50.0]], np.array([[[[3.0, 3], [5.0, 3]], [[3.0, 3], [3.0, 3]]]]))
    state = sim.reset(np.random.default_rng(0), 1)
    poor = replace(state, cash_n=np.array([50_000.0]))
    cash, shares = sim.trade(poor, np.array([[1.0, 1.0]]))
    assert shares.tolist() == [[0, 499]] and 0 <= cash[0] < 100.1  # the second is wanted 1.1 times
    cash, shares = sim.trade(state, np.array([[-1.0, -0.3]]))
    assert not shares.any() and cash[0] == 1e6
    rich = replace(poor, cash_n=np.array([0.0]), shares_nK=np.array([[1000.0, 0.0]]))
    cash, shares = sim.trade(rich, np.array([[-1.0, 1.0]]))  # a sale pays for a buy
    assert shares.tolist() == [[0, 998]] and 0 <= cash[0] < 100.1
    _, shares = sim.trade(state, np.array([[0.5 / 4200, 1.9 / 4200]]))
    assert shares.tolist() == [[0, 2]]  # 1.9 x 1.1 = 2.09


def test_good_news_makes_no_loss_worse_unless_released():
    score = np.full((1, 3, 1, 2), 3.0)
    score[..., 0] = 5.0
    for released, times in ((False, 1 / 1.01), (True, 1.01)):
        sim = market([[10.0], [9.0], [9.0]], score, released=released)
        rng = np.random.default_rng(0)
        after, paid, _ = sim.step(sim.reset(rng, 1), np.ones((1, 1, 1)), rng)
        assert paid[0, 0] < 0 and after.learned_n == pytest.approx(paid[0, 0] * times)
    late = np.full((1, 3, 1, 2), 3.0)
    late[:, 1, :, 0] = 5.0  # released rewards read the scores of the day after
    for released, times in ((False, 1.0), (True, 1.01)):
        sim = market([[10.0], [12.0], [12.0]], late, released=released)
        rng = np.random.default_rng(0)
        after, paid, _ = sim.step(sim.reset(rng, 1), np.ones((1, 1, 1)), rng)
        assert after.learned_n == pytest.approx(paid[0, 0] * times)


def test_nothing_that_is_seen_lies_ahead():
    table = made_up_prices(KEY, paths=2, days=60, stocks=3)
    other = table.close_PTK.copy()
    other[:, 40:] *= np.random.default_rng(0).uniform(0.5, 2.0, other[:, 40:].shape)
    score = whole_scores(table.latent_PTK2)
    sims = [StockMarket(close, score, first=20, last=39, unseen=40, days=5) for close in (table.close_PTK, other)]
    views = [s.observe(s.reset(np.random.default_rng(1), 50)) for s in sims]
    assert (views[0] == views[1]).all() and views[0].shape == (50, 1, sims[0].observation)
    blind = sims[0].without_news(views[0])
    assert not blind[..., -6:].any() and (blind[..., :-6] == views[0][..., :-6]).all()


def test_indicators_by_hand():
    """Prices that double each day change by ln 2 over a day and 5 ln 2 over five; they deviate by nothing, so nothing scales."""
    seen = indicators(2.0 ** np.arange(7)[None, :, None], unseen=7)
    assert seen[0, 6] == pytest.approx([np.log(2), 5 * np.log(2) / 5**0.5, 0.0]) and seen[0, 4, 1] == 0


# ---- groups


def groups_of(released):
    sim = market([[10.0, 50.0], [10.1, 49.0], [10.1, 49.0]], released=released)
    state = sim.reset(np.random.default_rng(0), 2)
    act = np.zeros((2, 3, 1, 2))
    act[:, :, 0] = [[0.5, -0.2], [0.5, -0.2], [0.0, 0.0]]
    return SMALL.rewards(sim, state, act, np.random.default_rng(0))


def test_actions_of_a_group_are_paid_alike_unless_released():
    """The same two actions: both earn 1% of 2,100 shares less their cost; released, one has 0.18 and the other 0.009."""
    same = groups_of(released=False)
    earned = 1e-4 * (2100 - 210)
    assert same.tolist() == [pytest.approx([earned, earned, 0.0])] * 2
    released = groups_of(released=True)
    assert released[0] == pytest.approx([earned, 0.009, 0.0])


def test_groups_learn_to_buy_what_rises():
    sim = market(100 * 1.02 ** np.arange(30)[:, None] * [[1.0, 1.0]] * np.array([1.0, 0.98]) ** np.arange(30)[:, None])
    lines = []
    learner = TradingGroups(games=4, width=16)
    policy = learner.learn(sim, 700, KEY, lines.append)
    act = policy.act(sim.observe(sim.reset(np.random.default_rng(0), 1)), None, None, greedy=True)["act"][0, 0]
    assert act[0] > 0.15 > act[1]
    assert lines[-1]["env_steps"] == 812 and {"reward", "dropped", "passes", "clipped"} <= set(lines[-1])


def test_passes_end_at_the_divergence():
    sim = market(100 * 1.02 ** np.arange(30)[:, None])
    for kl, most in ((1e-9, 2), (1e9, 7)):
        lines = []
        replace(SMALL, kl=kl, passes=7, lr=0.05).learn(sim, 60, KEY, lines.append)
        assert max(x["passes"] for x in lines) == most


def test_a_flat_market_teaches_nothing():
    """Where every group has the same rewards there is no update: nothing is sold of nothing, so all negative trades tie."""
    sim = market(np.full((6, 1), 10.0))
    act = np.full((2, 3, 1, 1), -0.5)
    assert not SMALL.rewards(sim, sim.reset(np.random.default_rng(0), 2), act, np.random.default_rng(0)).any()
    with pytest.raises(UserError, match="2 actions"):
        TradingGroups(group=1)


# ---- files


def test_a_file_of_prices(tmp_path):
    text = rows(70, cells=",,,", head=",headline,sentiment,risk").replace(
        "2024-01-03,AAA,102,,,", '2024-01-03,AAA,102,"Orders, ""record""",5,\n2024-01-03,AAA,102,Other,2,4'
    )
    late = "\n".join(line for line in text.splitlines() if not line.startswith(("2024-01-01,BBB", "2024-01-05,BBB")))
    table = read_prices(csv(tmp_path, late))
    assert table.tickers == ("AAA", "BBB") and table.days[0] == "2024-01-02" and table.shape == (1, 69, 2)
    assert table.close_PTK[0, :5].tolist() == [[101, 101], [102, 102], [103, 103], [104, 103], [105, 105]]
    assert table.given_PTK2[0, 1, 0].tolist() == [3.5, 3.5]  # (5 + 2) / 2, and (3 + 4) / 2
    assert np.isnan(table.given_PTK2[0, 1, 1]).all()
    assert [(h.day, h.stock, h.text) for h in table.headlines] == [(1, 0, 'Orders, "record"'), (1, 0, "Other")]
    assert table.notes == (
        "1 days are left out: some ticker has no price before them",
        "1 missing prices are those of the day before",
    )
    assert table.latent_PTK2[0, 0, 0].tolist() == [5, 3] and table.latent_PTK2[0, -1, 0].tolist() == [3, 3]


def test_names_of_finrl_files_are_read(tmp_path):
    text = rows(60, cells=",0.0,4", head=",llm_sentiment,llm_risk").replace("ticker", "tic")
    table = read_prices(csv(tmp_path, text))
    assert (table.given_PTK2 == [3.0, 4.0]).all()  # 0 is no news


def test_an_index_without_a_name_is_no_headline(tmp_path):
    """pandas writes its index as a column named "", beside a table that may have headlines or none."""
    index = lambda text: "\n".join(f"{i - 1 if i else ''},{x}" for i, x in enumerate(text.splitlines()))
    assert not read_prices(csv(tmp_path, index(rows(60)))).headlines
    text = rows(60, cells=",nan", head=",headline").replace("2024-01-03,AAA,102,nan", "2024-01-03,AAA,102,Orders")
    assert [h.text for h in read_prices(csv(tmp_path, index(text))).headlines] == ["Orders"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda x: x.replace("close", "value"), "no column 'close'; it has date, ticker, value"),
        (lambda x: x.replace(",103", ",-3", 1), "row 7: close is '-3', and a price is above 0"),
        (lambda x: x.replace(",103", ",", 1), "row 7: close is None, and a price"),
        (lambda x: x.replace(",103", ",dear", 1), "row 7: close is 'dear' and no number"),
        (lambda x: x.replace("2024-01-04", "4.1.24", 1), "row 7: the date '4.1.24' is not written as"),
        (lambda x: x.replace(",BBB", ",", 1), "row 2: it has no ticker"),
        (lambda x: x + "2024-01-04,AAA,7\n", "AAA has another price on 2024-01-04"),
        (lambda x: "\n".join(x.splitlines()[:100]), "50 days with prices of all 2 tickers"),
        (lambda x: x.splitlines()[0] + "\n", "no rows|empty"),
        (lambda x: "date,ticker,close,risk\n2024-01-01,A,1,7\n", "row 1: risk is 7, and scores are from 1 to 5"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path, change, why):
    with pytest.raises(UserError, match=why):
        read_prices(csv(tmp_path, change(rows(60))))


def test_hindsight():
    assert hindsight(np.array([[[1.0], [2.0], [1.0], [1.0]]]))[0, :, 0, 0].tolist() == [5, 1, 3, 3]


# ---- news


def test_every_written_headline_has_scores():
    assert len(SCORE_OF) == sum(map(len, BANK.values()))
    text = 'News of the stock A.\nHeadline: "Product recall in two countries"\nHow'
    request = lambda text: pl.ChatRequest(messages=pl.services.question_messages(text))
    assert json.loads(written_scores(request(text))) == {"sentiment": 2, "risk": 4}
    assert json.loads(written_scores(request("?"))) == {"sentiment": 3, "risk": 3}


def test_headlines_are_scored_once_and_averaged(context, tmp_path):
    text = rows(60, tickers=("AAA",), cells=",", head=",headline")
    text = text.replace(",102,", ',102,Good\n2024-01-03,AAA,102,"Bad ""x""\nnews"').replace(",104,", ",104,Good")
    text = text.replace(",105,", ",105,Odd").replace(",106,", ",106,Late")
    table, asked = read_prices(csv(tmp_path, text)), []

    def answer(request):
        question = request.messages[0].content
        asked.append(question)
        if "Odd" in question:
            return "fine, 9 of 10"
        return {"sentiment": 5, "risk": 1} if '"Good"' in question else {"sentiment": 2}

    score, counts = asyncio.run(score_headlines(context(), pl.Scripted(answer), table, 3))
    assert counts == {"asked": 3, "fallbacks": 1, "left_out": 1}
    assert sum('Headline: "Good"' in q for q in asked) == 1 and not any("Bad" in q for q in asked)
    assert score[0, 2, 0].tolist() == [5, 1] and score[0, 4, 0].tolist() == [5, 1]  # the second of a day waits
    assert score[0, 5, 0].tolist() == [3, 3] and score[0, 6, 0].tolist() == [2, 3]
    score, counts = asyncio.run(score_headlines(context(), pl.Scripted(answer), table, 4))
    assert score[0, 2, 0].tolist() == [3.5, 2.0] and counts["left_out"] == 0
    assert any("Headline: \"Bad 'x' news\"" in q for q in asked)
    with pytest.raises(Fault, match="down"):

        def fails(request):
            raise pl.Fault("chat-500", "down")

        asyncio.run(score_headlines(context(), pl.Scripted(fails), table, 3))


def test_questions_are_spread_evenly_over_the_days(context, tmp_path):
    """Of 60 days and 10 stocks 240 are asked about, so there are four of each day, and of each stock about 24."""
    day = lambda t: str(np.datetime64("2024-01-01") + t)
    lines = [f"{day(t)},{k},{100 + t},News {t}" for t in range(60) for k in "ABCDEFGHIJ"]
    table = read_prices(csv(tmp_path, "\n".join(["date,ticker,close,headline", *lines])))
    for calls, least, most in ((240, 4, 4), (90, 1, 2), (6, 0, 1)):
        score, counts = asyncio.run(score_headlines(context(), pl.Scripted(lambda r: {"sentiment": 5}), table, calls))
        asked = ~np.isnan(score[0]).any(-1)
        assert counts["asked"] == calls == asked.sum() and counts["left_out"] == 600 - calls
        of_day = asked.sum(1)
        assert (of_day.min(), of_day.max()) == (least, most)
        assert of_day[40:].sum() == calls / 3  # the last third of the days
        assert calls < 240 or asked.sum(0).min() > 12
    twice = read_prices(csv(tmp_path, "\n".join(["date,ticker,close,headline", *lines, *(x + "!" for x in lines)])))
    score, _ = asyncio.run(score_headlines(context(), pl.Scripted(lambda r: {"sentiment": 5}), twice, 600))
    assert not np.isnan(score).any()  # a second headline waits for the first ones of the other stocks
    assert spread_evenly([], 5) == [] and spread_evenly([1, 1, 1, 2], 3) == [0, 3, 1]


def test_nobody_is_asked_about_what_the_file_has_scored(context, tmp_path):
    text = rows(60, tickers=("AAA",), cells=",Old,5,1", head=",headline,sentiment,risk")
    text = text.replace("2024-01-03,AAA,102,Old,5,1", "2024-01-03,AAA,102,New,,")
    table, asked = read_prices(csv(tmp_path, text)), []

    def answer(request):
        asked.append(request.messages[0].content)
        return {"sentiment": 1}

    score, counts = asyncio.run(score_headlines(context(), pl.Scripted(answer), table, 3))
    assert counts == {"asked": 1, "fallbacks": 0, "left_out": 0} and '"New"' in asked[0] and len(asked) == 1
    assert score[0, 2, 0].tolist() == [1, 3] and np.isnan(score).sum() == 59 * 2


def test_exchanged_scores_stay_on_their_side_of_the_cut():
    score = np.full((2, 6, 2, 2), np.nan)
    score[:, :, 0, 0] = np.arange(12).reshape(2, 6)
    score[:, :, 0, 1] = 3
    mixed = exchanged(score, (slice(0, 4), slice(4, None)), KEY)
    for part in (slice(0, 4), slice(4, None)):
        before, after = score[:, part, 0, 0].ravel(), mixed[:, part, 0, 0].ravel()
        assert sorted(before) == sorted(after) and (before != after).all()
    assert np.isnan(mixed[:, :, 1]).all()


def test_a_score_of_the_file_comes_first():
    nan = np.nan
    file, model = np.array([[[[5.0, 1.0], [nan, nan], [nan, nan]]]]), np.array([[[[1.0, 1.0], [2.0, 2.0], [nan, nan]]]])
    assert whole_scores(file, model)[0, 0].tolist() == [[5, 1], [2, 2], [3, 3]]


# ---- runs


def test_training_ends_before_the_test_begins(context):
    made = program(days=500)
    table = made_up_prices(KEY, paths=2, days=90)
    arms = TradingArms(made, context(), table, np.full((*table.shape, 2), np.nan), KEY)
    assert arms.cut == 60 and arms.days == 39
    train, test = arms.market(table.latent_PTK2), arms.market(table.latent_PTK2, test=True)
    state = train.reset(np.random.default_rng(0), 500)
    assert state.day_n.min() >= 20 and state.day_n.max() + train.days <= 59
    assert test.reset(np.random.default_rng(0), 4).path_n.tolist() == [0, 1, 0, 1] and test.horizon == 29
    assert held_assets(test).shape == (2, 29)


def test_a_run_says_which_headlines_and_days_have_no_score(context, tmp_path):
    """One score in the first row, and 59 headlines of which nobody is asked; none of the 19 traded days has one."""
    text = rows(60, tickers=("AAA",), cells=",Bare,,", head=",headline,sentiment,risk").replace(
        ",Bare,,", ",Scored,5,1", 1
    )
    made = program(prices=csv(tmp_path, text), asked=None)
    ctx, told = context(out=tmp_path / "a"), []
    ctx.say = told.append
    assert asyncio.run(made.run(ctx)).metrics["held_scored"] == 0
    assert any("59 headlines without a score count as 3: nobody is asked" in x for x in told)
    assert any("0 of 19 held-out days of stocks have a score" in x for x in told)
    source = pl.Scripted(lambda r: {"sentiment": 5})
    found = asyncio.run(replace(made, asked=source, calls=3).run(context(out=tmp_path / "b"))).metrics
    assert found["held_scored"] == 19 and found["asked"] == 1  # the same words of one stock


def test_a_share_that_leaves_nothing_to_train_on_is_refused(context, tmp_path):
    made = program(prices=csv(tmp_path, rows(60)), held=0.7)
    with pytest.raises(UserError, match=r"held=0.7 leaves 18 of 60 days .* held=0.63 at most"):
        asyncio.run(made.run(context()))
    assert first_held_day(60, 0.63) == 22 and first_held_day(60, 0.001) == 58
    found = asyncio.run(replace(made, held=0.63, scores="none").run(context(out=tmp_path / "most"))).metrics
    assert found["days"] == 38


def test_a_killed_run_ends_with_the_same(context, tmp_path):
    asked, made = [], program()

    def answer(request):
        asked.append(request)
        return written_scores(request)

    source = pl.Scripted(answer)
    run = lambda: asyncio.run(replace(made, asked=source).run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    again = run()
    assert again == first and len(asked) == calls == first["asked"]
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "shuffled", "oracle", "released", "ppo", "hold"]
    assert {a["env_steps"] for n, a in arms.items() if n != "hold"} == {20}
    assert arms["none"]["news_effect"] == 0 < arms["guide"]["news_effect"]
    assert first["return"] == pytest.approx(first["percent"])  # 10,000 is 1% of the capital
    assert pl.control.load_policy(tmp_path / "policy").observation == 31


def test_scores_of_a_file_need_no_model_and_headlines_do(context, tmp_path):
    scored = csv(tmp_path, rows(60, cells=",5,1", head=",sentiment,risk"))
    made = program(prices=scored, asked=None)
    found = asyncio.run(made.run(context(out=tmp_path / "a"))).metrics
    assert found["news_effect"] > 0 and found["days"] == 20 and found["arms"]["guide"]["error"] == 0
    assert found["arms"]["hold"]["percent"] == pytest.approx(100 * (159 / 140 / 1.001 - 1), abs=1e-6)
    text = csv(tmp_path, rows(60, cells=",Orders rise", head=",headline"))
    with pytest.raises(UserError, match=r"--llm endpoint.*or scores=none"):
        asyncio.run(program(prices=text, asked=None).run(context(out=tmp_path / "b")))
    plain = asyncio.run(program(prices=text, asked=None, scores="none").run(context(out=tmp_path / "c"))).metrics
    assert plain["news_effect"] == 0 and "oracle" not in plain["arms"] and "shuffled" not in plain["arms"]
