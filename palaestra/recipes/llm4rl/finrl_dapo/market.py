"""Trading stocks at their closing prices, n accounts at a time, and what news makes of a trade.

P paths, T days, K stocks. A share costs 100 on a path's first day: shares are split so that a file's
prices may be of any size.
"""

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.prices import NEUTRAL

CAPITAL, COST = 1_000_000.0, 0.001  # at the start, and of the money that a trade moves
PRICE = 100.0  # of a share on the first day
TURNOVER = 0.84  # of the capital, by full trades of all stocks: 84 stocks x 100 shares of about 100
UNIT = 1e-4  # of a reward, for 1 of money
SPANS = (1, 5, 20)  # days over which a price's change is seen
LEAST_DEVIATION = 1e-6  # of daily log-returns, which a smaller one is not scaled by


@pl.value_class
class StockState:
    """Accounts of n games. Of the last trade `learned` is what it is learned from, and `shaped` what was
    paid as news shapes it, see `StockMarket`.
    """

    path_n: np.ndarray
    day_n: np.ndarray
    cash_n: np.ndarray
    shares_nK: np.ndarray
    learned_n: np.ndarray
    shaped_n: np.ndarray


def scale_by_news(act: np.ndarray, sentiment: np.ndarray) -> np.ndarray:
    """Trades against the sentiment are made smaller and others larger, by 5% for each point that it is
    away from 3: times 0.9 or 1.1 for 1 and 5, 0.95 or 1.05 for 2 and 4 (the released environment).
    """
    lean = np.sign(act) * np.sign(sentiment - NEUTRAL)
    return act * (1 + 0.05 * lean * np.abs(sentiment - NEUTRAL))


def news_factor(
    act: np.ndarray,
    after: np.ndarray,
    score: np.ndarray,
    signed: bool,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> np.ndarray:
    """[...] S^alpha / (R^beta + 1e-8) of trades [..., K], arXiv:2505.06408.

    S = sum_j w_j m(sentiment_j), R = sum_j w_j m(risk_j), m(x) = 1 + 0.005 (x - 3), which is 0.99,
    0.995, 1, 1.005 and 1.01. w_j = a_j p_j / sum_k a_k p_k with the prices after the trade; unless
    `signed` |a_j| is in the place of a_j: of signed ones the sum may be near 0, and w_j has no bound.
    1 where nothing is traded. S and R that are not above 0, which signed weights can make, are 0.01.
    """
    value = (act if signed else np.abs(act)) * after
    total = value.sum(-1)
    still = total == 0
    weight = value / np.where(still, 1.0, total)[..., None]
    mean = lambda i: (weight * (1 + 0.005 * (score[..., i] - NEUTRAL))).sum(-1)
    good, risky = (np.maximum(mean(i), 0.01) for i in range(2))
    return np.where(still, 1.0, good**alpha / (risky**beta + 1e-8))


def counterfactual_reward(act: np.ndarray, price: np.ndarray, after: np.ndarray) -> np.ndarray:
    """[...] sum_j a_j (p'_j / p_j - 1): the released reward of what is not executed."""
    return (act * (after / price - 1)).sum(-1)


class StockMarket:
    """Prices that trades do not move. An action is a number from -1 to 1 for each stock, times `most`
    shares; it is scaled by the news of the day, sells are made first, the largest buys before the
    others, in whole shares, as far as shares and cash go, at a cost of 0.1%. A step pays 1e-4 of what
    the assets changed by until the next close.

    Seen are the share of cash, of each stock, its log-returns over 1, 5 and 20 days in deviations of
    the days before `unseen`, and its scores.

    The last trade is learned from with r' = r S / R (`news_factor`). r is what the trade itself
    changed: what was paid, less what would have been without it; a loss is divided by the factor, so
    that good news never makes it worse. As `released`, r is all that was paid, a loss is multiplied,
    weights are signed, and scores are those of the next day.

    Args:
        close_PTK: prices.
        score_PTK2: sentiment and risk of each day, known before its close.
        first, last: games lie between these days, [first, last].
        unseen: the first day that the scale of what is seen may not know.
        days: of a game that begins on a random day of a random path; 0 = game i is path i, whole.
    """

    agents = 1

    def __init__(
        self,
        close_PTK: np.ndarray,
        score_PTK2: np.ndarray,
        first: int,
        last: int,
        unseen: int,
        days: int = 0,
        released: bool = False,
        alpha: float = 1.0,
        beta: float = 1.0,
    ):
        self.price_PTK = close_PTK / close_PTK[:, :1] * PRICE
        self.score_PTK2, self.first, self.last, self.days = score_PTK2, first, last, days
        self.released, self.alpha, self.beta = released, alpha, beta
        self.K = close_PTK.shape[2]
        self.most = max(1, int(TURNOVER * CAPITAL / (PRICE * self.K)))
        self.seen_PTF = indicators(self.price_PTK, unseen)
        self.horizon = days or last - first
        self.observation = 1 + (1 + len(SPANS) + 2) * self.K
        self.actions = pl.control.Box(low=(-1.0,) * self.K, high=(1.0,) * self.K)

    def reset(self, rng: np.random.Generator, n: int) -> StockState:
        if self.days:
            path_n = rng.integers(0, len(self.price_PTK), n)
            day_n = rng.integers(self.first, self.last - self.days + 1, n)
        else:
            path_n = np.arange(n) % len(self.price_PTK)
            day_n = np.full(n, self.first)
        return StockState(
            path_n=path_n,
            day_n=day_n,
            cash_n=np.full(n, CAPITAL),
            shares_nK=np.zeros((n, self.K)),
            learned_n=np.zeros(n),
            shaped_n=np.zeros(n),
        )

    def prices(self, state: StockState, ahead: int = 0) -> np.ndarray:
        return self.price_PTK[state.path_n, np.minimum(state.day_n + ahead, self.last)]

    def scores(self, state: StockState, ahead: int = 0) -> np.ndarray:
        """[n, K, 2]"""
        return self.score_PTK2[state.path_n, np.minimum(state.day_n + ahead, self.last)]

    def assets(self, state: StockState) -> np.ndarray:
        return state.cash_n + (state.shares_nK * self.prices(state)).sum(1)

    def observe(self, state: StockState) -> np.ndarray:
        assets_n1 = self.assets(state)[:, None]
        held_nK = state.shares_nK * self.prices(state) / assets_n1
        score_nF = ((self.scores(state) - NEUTRAL) / 2).reshape(len(held_nK), -1)
        seen_nF = self.seen_PTF[state.path_n, state.day_n]
        columns = (state.cash_n[:, None] / assets_n1, held_nK, seen_nF, score_nF)
        return np.concatenate(columns, -1)[:, None]

    def without_news(self, obs: np.ndarray) -> np.ndarray:
        """Observations in which every score is neutral."""
        blind = obs.copy()
        blind[..., -2 * self.K :] = 0.0
        return blind

    def legal(self, state: StockState) -> None:
        return None

    def step(
        self, state: StockState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[StockState, np.ndarray, np.ndarray]:
        act_nK, after_nK = act_nA[:, 0], self.prices(state, 1)
        cash_n, shares_nK = self.trade(state, act_nK)
        assets_n = cash_n + (shares_nK * after_nK).sum(1)
        without_n = state.cash_n + (state.shares_nK * after_nK).sum(1)
        paid_n = UNIT * (assets_n - self.assets(state))
        base_n = paid_n if self.released else UNIT * (assets_n - without_n)
        after = StockState(
            path_n=state.path_n,
            day_n=np.minimum(state.day_n + 1, self.last),
            cash_n=cash_n,
            shares_nK=shares_nK,
            learned_n=self.shape(state, act_nK, base_n),
            shaped_n=self.shape(state, act_nK, paid_n),
        )
        return after, paid_n[:, None], np.zeros(len(paid_n), bool)

    def trade(self, state: StockState, act_nK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cash and shares after trades."""
        scaled_nK = scale_by_news(act_nK, self.scores(state)[..., 0])
        want_nK = np.trunc(scaled_nK * self.most)
        price_nK, rows = self.prices(state), np.arange(len(want_nK))
        sold_nK = np.minimum(np.maximum(-want_nK, 0), state.shares_nK)
        cash_n = state.cash_n + (sold_nK * price_nK).sum(1) * (1 - COST)
        shares_nK = state.shares_nK - sold_nK
        order_nK = np.argsort(-want_nK, 1, kind="stable")
        for j_n in order_nK.T:
            price_n = price_nK[rows, j_n] * (1 + COST)
            bought_n = np.minimum(np.maximum(want_nK[rows, j_n], 0), cash_n // price_n)
            cash_n = cash_n - bought_n * price_n
            shares_nK[rows, j_n] += bought_n
        return cash_n, shares_nK

    def shape(self, state: StockState, act_nK: np.ndarray, reward_n: np.ndarray) -> np.ndarray:
        """r' of trades."""
        after_nK = self.prices(state, 1)
        score = self.scores(state, 1 if self.released else 0)
        factor_n = news_factor(act_nK, after_nK, score, self.released, self.alpha, self.beta)
        if self.released:
            return reward_n * factor_n
        return np.where(reward_n >= 0, reward_n * factor_n, reward_n / factor_n)

    def facts(self, state: StockState) -> dict[str, np.ndarray]:
        """The money that an account has, and what the last day paid as news shapes it."""
        return {"assets": self.assets(state)[:, None], "shaped": state.shaped_n[:, None]}


def shaped_reward(paths: pl.control.Paths) -> np.ndarray:
    """[n, 1, T] what was paid as news shapes it."""
    return paths["shaped"]


def indicators(price_PTK: np.ndarray, unseen: int) -> np.ndarray:
    """[P, T, 3 K] log-returns up to a day over 1, 5 and 20 days, in deviations of a day's log-return
    before `unseen` times the root of the days; 0 for what lies before the first day.
    """
    log = np.log(price_PTK)
    deviation = np.diff(log[:, :unseen], axis=1).std()
    deviation = deviation if deviation > LEAST_DEVIATION else 1.0
    columns: list[np.ndarray] = []
    for span in SPANS:
        change = np.zeros_like(log)
        change[:, span:] = log[:, span:] - log[:, :-span]
        columns.append(np.clip(change / (deviation * span**0.5), -5, 5))
    return np.concatenate(columns, -1)
