"""Trading of energy between the households of a microgrid, n games at a time, and how fair it is.

m sellers come first, then b buyers, A = m + b agents; T slots of a day. Kilowatt-hours, and dollars for
one. The grid buys at `LOW` and sells at `HIGH`, so trades between the two are good for both sides.
"""

import numpy as np

import palaestra as pl

LOW, HIGH = 0.10, 0.30  # what the grid pays for energy, and what it takes for it
SHORT = 0.05  # a buyer's loss for energy that no seller supplied, beside the grid's price
PRICES, SHARES = 5, 4  # bins of an action: the price, and the share of the stock or the demand
MOST = 6.0  # of a seller's stock, or a buyer's demand, in a slot
EPS = 1e-9
ABOUT = """Households of a microgrid trade energy for a day. Sellers have solar power and name a price in \
every slot, between 0.10, which the grid pays, and 0.30, which the grid takes; buyers name the most that they \
pay, the cheapest offers are sold first, and what a buyer lacks comes from the grid."""


@pl.value_class
class MicrogridState:
    """The slot, what each agent has or wants in it, and what its last slot was, [n, A] each: the
    amount traded, its mean price, and all of both so far.
    """

    slot: int
    size_nA: np.ndarray  # of a household: its mean stock or demand
    amount_nA: np.ndarray
    traded_nA: np.ndarray
    price_nA: np.ndarray
    offered_nA: np.ndarray


@pl.stage
class Microgrid:
    """A slot pays a seller sold x (price - LOW), what it earns beyond the grid; and a buyer minus what
    it pays, minus HIGH + SHORT for each kilowatt-hour that it lacks. An action is a price bin and a
    share of the stock or the demand, `PRICES` x `SHARES` of them. Cheapest offers go first, to the
    buyers that pay most, at the seller's price. Seen is what an agent knows itself: its role, slot,
    amount, and the amount and the price of its last trade.
    """

    sellers: int = 2
    buyers: int = 2
    horizon: int = 8
    about: str = ABOUT

    def __post_init__(self) -> None:
        if min(self.sellers, self.buyers, self.horizon) < 1:
            raise pl.UserError("a microgrid has 1 seller, 1 buyer and 1 slot at least")

    @property
    def agents(self) -> int:
        return self.sellers + self.buyers

    @property
    def actions(self) -> int:
        return PRICES * SHARES

    @property
    def observation(self) -> int:
        return 5

    @property
    def sells(self) -> np.ndarray:
        """[A] who is a seller."""
        return np.arange(self.agents) < self.sellers

    def reset(self, rng: np.random.Generator, n: int) -> MicrogridState:
        size_nA = rng.uniform(2.0, MOST - 1.0, (n, self.agents))
        nothing = np.zeros((n, self.agents))
        return MicrogridState(
            slot=0,
            size_nA=size_nA,
            amount_nA=self.amounts(size_nA, rng),
            traded_nA=nothing,
            price_nA=nothing,
            offered_nA=nothing,
        )

    def amounts(self, size_nA: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.clip(size_nA + rng.uniform(-1.0, 1.0, size_nA.shape), 0.0, MOST)

    def observe(self, state: MicrogridState) -> np.ndarray:
        shape = state.amount_nA.shape
        columns = (
            np.broadcast_to(self.sells.astype(float), shape),
            np.full(shape, state.slot / self.horizon),
            state.amount_nA / MOST,
            state.traded_nA / MOST,
            np.where(state.traded_nA > 0, (state.price_nA - LOW) / (HIGH - LOW), 0.0),
        )
        return np.stack(columns, -1)

    def legal(self, state: MicrogridState) -> None:
        return None

    def step(
        self, state: MicrogridState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[MicrogridState, np.ndarray, np.ndarray]:
        price_nA, share_nA = read_actions(act_nA)
        offered_nA, m = state.amount_nA * share_nA, self.sellers
        flow_nmb = match_offers(
            price_nA[:, :m], offered_nA[:, :m], price_nA[:, m:], offered_nA[:, m:]
        )
        money_nmb = flow_nmb * price_nA[:, :m, None]
        traded_nA = np.concatenate([flow_nmb.sum(2), flow_nmb.sum(1)], 1)
        money_nA = np.concatenate([money_nmb.sum(2), money_nmb.sum(1)], 1)
        lack_nA = state.amount_nA - traded_nA
        paid_nA = np.where(
            self.sells, money_nA - LOW * traded_nA, -money_nA - (HIGH + SHORT) * lack_nA
        )
        after = MicrogridState(
            slot=state.slot + 1,
            size_nA=state.size_nA,
            amount_nA=self.amounts(state.size_nA, rng),
            traded_nA=traded_nA,
            price_nA=np.where(traded_nA > 0, money_nA / np.maximum(traded_nA, EPS), 0.0),
            offered_nA=state.amount_nA,
        )
        return after, paid_nA, np.full(len(paid_nA), after.slot >= self.horizon)

    def facts(self, state: MicrogridState) -> dict[str, np.ndarray]:
        """Of the last slot, [n, A]: what an agent had or wanted, what it traded, for how much money."""
        return {
            "wanted": state.offered_nA,
            "traded": state.traded_nA,
            "money": state.traded_nA * state.price_nA,
        }

    def table(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        """What the transactions of a game sum up to, [n, A] by name."""
        wanted, traded, money = (paths[k].sum(-1) for k in ("wanted", "traded", "money"))
        return {
            "kWh that it had to sell": np.where(self.sells, wanted, 0.0),
            "kWh sold": np.where(self.sells, traded, 0.0),
            "kWh that it needed": np.where(self.sells, 0.0, wanted),
            "kWh received from sellers": np.where(self.sells, 0.0, traded),
            "mean price in dollars": money / np.maximum(traded, EPS) * (traded > 0),
            "profit in dollars": np.where(self.sells, money - LOW * traded, 0.0),
        }

    def fairness(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, 2] FTB and FBS by their formulas, see `fairness_to_buyers` and `fairness_between`."""
        wanted, traded, money = (paths[k].sum(-1) for k in ("wanted", "traded", "money"))
        m = self.sellers
        price = money / np.maximum(traded, EPS)
        to_buyers = fairness_to_buyers(wanted[:, m:], traded[:, m:], price[:, m:])
        return np.stack([to_buyers, fairness_between((money - LOW * traded)[:, :m])], -1)

    def served(self, paths: pl.control.Paths) -> float:
        """The share of the buyers' demand that sellers supplied."""
        m = self.sellers
        return float(paths["traded"][:, m:].sum() / np.maximum(paths["wanted"][:, m:].sum(), EPS))


def read_actions(act_nA: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The price of an action, LOW to HIGH, and its share, 1 / SHARES to 1."""
    price_nA = LOW + (HIGH - LOW) * (act_nA // SHARES) / (PRICES - 1)
    return price_nA, (act_nA % SHARES + 1) / SHARES


def match_offers(
    ask_nm: np.ndarray, offer_nm: np.ndarray, bid_nb: np.ndarray, demand_nb: np.ndarray
) -> np.ndarray:
    """[n, m, b] what sellers deliver to buyers: the cheapest offer first, to the buyer that pays most, as
    long as it pays the price. Of equal prices the larger offer, or demand, goes first.
    """
    n, m = ask_nm.shape
    b, rows = bid_nb.shape[1], np.arange(len(ask_nm))
    flow_nmb = np.zeros((n, m, b))
    left_nm, need_nb = offer_nm.copy(), demand_nb.copy()
    sellers_nm = np.lexsort((-offer_nm, ask_nm), axis=1)
    buyers_nb = np.lexsort((-demand_nb, -bid_nb), axis=1)
    for i_n in sellers_nm.T:
        for j_n in buyers_nb.T:
            pays_n = bid_nb[rows, j_n] >= ask_nm[rows, i_n] - EPS
            amount_n = np.minimum(left_nm[rows, i_n], need_nb[rows, j_n]) * pays_n
            flow_nmb[rows, i_n, j_n] = amount_n
            left_nm[rows, i_n] -= amount_n
            need_nb[rows, j_n] -= amount_n
    return flow_nmb


def fairness_to_buyers(
    demand_nb: np.ndarray, served_nb: np.ndarray, price_nb: np.ndarray
) -> np.ndarray:
    """[n] mean over buyers of (served / demand) (HIGH - price) / (HIGH - LOW); 1 of no demand is 1."""
    share_nb = np.where(demand_nb > 0, served_nb / np.maximum(demand_nb, EPS), 1.0)
    good_nb = np.where(served_nb > 0, (HIGH - price_nb) / (HIGH - LOW), demand_nb <= 0)
    return np.clip((share_nb * good_nb).mean(1), 0.0, 1.0)


def fairness_between(profit_nm: np.ndarray) -> np.ndarray:
    """[n] 1 - Gini of the sellers' profits, Gini = sum_ij |x_i - x_j| / (2 m^2 mean x). Losses count as
    0; 1 where nobody earns anything.
    """
    profit_nm = np.maximum(profit_nm, 0.0)
    m, mean_n = profit_nm.shape[1], profit_nm.mean(1)
    apart_n = np.abs(profit_nm[:, :, None] - profit_nm[:, None]).sum((1, 2))
    gini_n = np.where(mean_n > EPS, apart_n / (2 * m * m * np.maximum(mean_n, EPS)), 0.0)
    return 1.0 - gini_n
