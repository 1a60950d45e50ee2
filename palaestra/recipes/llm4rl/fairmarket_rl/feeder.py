"""Prosumers of a distribution system: households that sell what their roofs give beyond their need, and buy in other
slots, in areas behind lines of limited capacity; n games at a time.

H households, A = H agents; T slots of a day. Kilowatt-hours, and dollars for one, as in `Microgrid`.
"""

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.fairmarket_rl.microgrid import (
    EPS,
    HIGH,
    LOW,
    MOST,
    PRICES,
    SHARES,
    SHORT,
    fairness_between,
    fairness_to_buyers,
    match_offers,
    read_actions,
)

ROOF, BARE = 8.0, 0.25  # the largest peak of a roof, and the share of households without one
NEED = (0.8, 2.4)  # of a household in a slot
ABOUT = """Households of a distribution grid trade energy for a day. Most have solar roofs: what a roof gives beyond \
the household's need it sells, and in other slots it buys. A seller names a price between 0.10, which the grid pays, and \
0.30, which the grid takes; buyers name the most that they pay, the cheapest offers are sold first, and what a buyer \
lacks comes from the grid. The line between the areas of the grid carries a limited amount in a slot."""


@pl.value_class
class FeederState:
    """The slot, and of each household [n, H] its roof's peak, what it needs or has to give away (below 0), what it
    traded in the last slot, for how much money, and what it had to trade there.
    """

    slot: int
    roof_nH: np.ndarray
    net_nH: np.ndarray
    traded_nH: np.ndarray
    money_nH: np.ndarray
    before_nH: np.ndarray


@pl.stage
class Feeder:
    """A slot pays a household with a surplus sold x (price - LOW), and one with a need minus what it pays, minus
    HIGH + SHORT for each kilowatt-hour that it lacks. Actions are those of `Microgrid`. Trades are matched over all
    households; of what crosses between areas, all trades are cut in the same proportion to what the line carries.
    Seen is what a household knows itself: slot, surplus, need, and amount and price of its last trade.

    Args:
        households: in `areas` of equal size, one after another.
        line: kilowatt-hours that cross between areas in a slot, at most.
    """

    households: int = 8
    areas: int = 2
    line: float = 4.0
    horizon: int = 8
    about: str = ABOUT

    def __post_init__(self) -> None:
        if self.households < 2 or not 1 <= self.areas <= self.households or self.horizon < 1:
            raise pl.UserError(
                "fairmarket-rl: a grid has 2 households, an area of one each at most, and 1 slot"
            )
        if self.line < 0:
            raise pl.UserError("fairmarket-rl: what a line carries is 0 or more")

    @property
    def agents(self) -> int:
        return self.households

    @property
    def actions(self) -> int:
        return PRICES * SHARES

    @property
    def observation(self) -> int:
        return 5

    @property
    def sells(self) -> np.ndarray:
        """[H] everyone sells at times, and buys at others."""
        return np.ones(self.households, bool)

    @property
    def area_H(self) -> np.ndarray:
        return np.arange(self.households) * self.areas // self.households

    def reset(self, rng: np.random.Generator, n: int) -> FeederState:
        shape = (n, self.households)
        roof_nH = rng.uniform(0.4 * ROOF, ROOF, shape) * (rng.random(shape) >= BARE)
        zero = np.zeros(shape)
        net_nH = self.net(roof_nH, 0, rng)
        return FeederState(
            slot=0, roof_nH=roof_nH, net_nH=net_nH, traded_nH=zero, money_nH=zero, before_nH=zero
        )

    def net(self, roof_nH: np.ndarray, slot: int, rng: np.random.Generator) -> np.ndarray:
        """[n, H] need less what the roof gives, most of it at noon."""
        sun = np.sin(np.pi * (slot % self.horizon + 0.5) / self.horizon) ** 2
        need_nH = rng.uniform(*NEED, roof_nH.shape)
        return np.clip(need_nH - sun * roof_nH * rng.uniform(0.7, 1.0, roof_nH.shape), -MOST, MOST)

    def observe(self, state: FeederState) -> np.ndarray:
        price_nH = state.money_nH / np.maximum(state.traded_nH, EPS)
        columns = (
            np.full(state.net_nH.shape, state.slot / self.horizon),
            np.maximum(-state.net_nH, 0.0) / MOST,
            np.maximum(state.net_nH, 0.0) / MOST,
            state.traded_nH / MOST,
            np.where(state.traded_nH > EPS, (price_nH - LOW) / (HIGH - LOW), 0.0),
        )
        return np.stack(columns, -1)

    def legal(self, state: FeederState) -> None:
        return None

    def step(
        self, state: FeederState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[FeederState, np.ndarray, np.ndarray]:
        price_nH, share_nH = read_actions(act_nA)
        surplus_nH, need_nH = np.maximum(-state.net_nH, 0.0), np.maximum(state.net_nH, 0.0)
        flow_nHH = match_offers(price_nH, surplus_nH * share_nH, price_nH, need_nH * share_nH)
        flow_nHH = limit_flow(flow_nHH, self.area_H, self.line)
        money_nHH = flow_nHH * price_nH[:, :, None]
        sold_nH, bought_nH = flow_nHH.sum(2), flow_nHH.sum(1)
        earned_nH, spent_nH = money_nHH.sum(2), money_nHH.sum(1)
        lack_nH = need_nH - bought_nH
        paid_nH = earned_nH - LOW * sold_nH - spent_nH - (HIGH + SHORT) * lack_nH
        after = FeederState(
            slot=state.slot + 1,
            roof_nH=state.roof_nH,
            net_nH=self.net(state.roof_nH, state.slot + 1, rng),
            traded_nH=sold_nH + bought_nH,  # one of the two is 0
            money_nH=earned_nH + spent_nH,
            before_nH=state.net_nH,
        )
        return after, paid_nH, np.full(len(paid_nH), after.slot >= self.horizon)

    def facts(self, state: FeederState) -> dict[str, np.ndarray]:
        """Of the last slot, [n, H]: what a household needed (below 0: had to sell), what it traded, and the
        money for it.
        """
        return {"net": state.before_nH, "traded": state.traded_nH, "money": state.money_nH}

    def sums(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        """[n, H] by name, of a game."""
        net, traded, money = (
            paths[k] * paths["alive"][:, None] for k in ("net", "traded", "money")
        )
        sells = net < 0
        total = lambda x, which: (x * which).sum(-1)
        return {
            "surplus": total(-net, sells),
            "sold": total(traded, sells),
            "earned": total(money, sells),
            "needed": total(net, ~sells),
            "received": total(traded, ~sells),
            "spent": total(money, ~sells),
        }

    def table(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        """What the transactions of a game sum up to, [n, H] by name."""
        of = self.sums(paths)
        price = lambda money, amount: np.where(amount > EPS, money / np.maximum(amount, EPS), 0.0)
        return {
            "kWh that it had to sell": of["surplus"],
            "kWh sold": of["sold"],
            "kWh that it needed": of["needed"],
            "kWh received from sellers": of["received"],
            "mean price in dollars": price(of["spent"], of["received"]),
            "mean price got in dollars": price(of["earned"], of["sold"]),
            "profit in dollars": of["earned"] - LOW * of["sold"],
        }

    def fairness(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, 2] FTB of what households bought, and FBS of what they earned by selling for a kilowatt-hour of
        surplus, so that a larger roof is no unfairness; of the households that had any. Where none of them
        earned anything it is 0: a day without trade is fair to nobody.
        """
        of = self.sums(paths)
        price = of["spent"] / np.maximum(of["received"], EPS)
        to_buyers = fairness_to_buyers(of["needed"], of["received"], price)
        rate = (of["earned"] - LOW * of["sold"]) / np.maximum(of["surplus"], EPS)
        between = np.ones(len(rate))
        for i, had in enumerate(of["surplus"] > EPS):
            if had.any():
                earned = rate[i, had].max() > EPS
                between[i] = fairness_between(rate[i : i + 1, had])[0] if earned else 0.0
        return np.stack([to_buyers, between], -1)

    def served(self, paths: pl.control.Paths) -> float:
        """The share of needs that households supplied, of what surpluses could have met: in each slot the smaller
        of all surpluses and all needs.
        """
        net = paths["net"] * paths["alive"][:, None]
        surplus, need = np.maximum(-net, 0).sum(1), np.maximum(net, 0).sum(1)
        received = (paths["traded"] * (net > 0)).sum()
        return float(received / np.maximum(np.minimum(surplus, need).sum(), EPS))


def limit_flow(flow_nHH: np.ndarray, area_H: np.ndarray, line: float) -> np.ndarray:
    """[n, H, H] trades, those between areas times min(1, line / their sum)."""
    across_HH = area_H[:, None] != area_H
    total_n = (flow_nHH * across_HH).sum((1, 2))
    keep_n = np.minimum(1.0, line / np.maximum(total_n, EPS))
    return np.where(across_HH, flow_nHH * keep_n[:, None, None], flow_nHH)
