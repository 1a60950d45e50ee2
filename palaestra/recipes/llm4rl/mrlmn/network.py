"""A network of drones: hops of limited length carry the traffic of users on the ground to base stations.

n games, A drones, S base stations, U users, d = 2 dimensions. Distances are in cells.
"""

from __future__ import annotations

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.mrlmn.policy import action_towards
from palaestra.recipes.llm4rl.mrlmn.radio import RadioLinks, shares_of_hops

MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], float)
SPOTS = 3  # where users are crowded, in a layout
COARSE = 4  # parts of a side, of the map that every drone is told
FREE = 99.0  # hops to a drone without a link
ABOUT = """Drones fly over a square of {side} x {side} cells and serve users on the ground. A user is served by a drone \
within {reach:g} cells, less where other drones transmit beside it, that has a way to a base station, over other drones: a \
hop is at most {hop:g} cells long, between drones or from a drone to a base station. Users of a drone share its rate, and all \
whose traffic a hop carries share that of the hop. x and y are from 0 to {side}. Drones start near the base stations and \
move by a cell a step, for {horizon} steps."""


@pl.value_class
class HopLinks:
    """How drones are linked.

    Args:
        hops_nA: of a drone to a base station, `FREE` without a way.
        next_nA: the next drone on it, -1 = the base station.
        serves_nA: how many users a drone serves.
        served_nU: which users are served.
        snr_nA: of the hop to the next drone, or the base station; 0 without a way.
        rate_nU: of a user over all hops, in bits a second and hertz; 0 of one that is not served.
    """

    hops_nA: np.ndarray
    next_nA: np.ndarray
    serves_nA: np.ndarray
    served_nU: np.ndarray
    snr_nA: np.ndarray
    rate_nU: np.ndarray


@pl.value_class
class NetworkState:
    at_nAd: np.ndarray
    user_nUd: np.ndarray
    layout_n: np.ndarray
    group_nA: np.ndarray
    time: int
    links: HopLinks


@pl.stage
class DroneNetwork:
    """Pays every drone, in each step, (1 - quality) covered + quality satisfied: the share of users that are served, and
    the mean of min(1, rate / demand) over all users.

    A game has one of `layouts` places of users, drawn around three spots, which are the same in every run for a
    `seed`; from there users move in a direction that is that of the layout, and wander. Drones start on the left, beside
    the base stations, and are sorted by their distance to the nearest one into `groups` of like size, group 0 the
    nearest, for the whole game. Moves are of one cell.

    Args:
        reach: of a drone on the ground, in cells: where the signal is at the threshold and nothing interferes.
        hop: between drones, or a drone and a base station.
        radio: what a link is worth by its distance.
        quality: weight of rates beside coverage.
        demand: the rate that satisfies a user, in bits a second and hertz.
        drift: cells that all users move by in a step, in the layout's direction; 0 = none.
        wander: standard deviation of what each user moves by beside it, in cells an axis and step.
        seed: of the layouts.
    """

    agents: int = 6
    users: int = 24
    side: int = 12
    reach: float = 2.0
    hop: float = 3.5
    layouts: int = 4
    groups: int = 3
    horizon: int = 20
    seed: int = 0
    radio: RadioLinks = RadioLinks()
    quality: float = 0.3
    demand: float = 0.2
    drift: float = 0.05
    wander: float = 0.05

    def __post_init__(self) -> None:
        pl.check_bounds("drones: quality", self.quality, least=0, most=1)
        pl.check_bounds("drones: groups", self.groups, least=1, most=self.agents)

    @property
    def actions(self) -> int:
        return len(MOVES)

    @property
    def moves(self) -> np.ndarray:
        """[K, 2] how far an action moves a drone."""
        return MOVES

    @property
    def observation(self) -> int:
        return 3 + self.groups + self.agents + 4 + 5 * (self.agents - 1) + 2 * COARSE**2 + 5 + 4

    @property
    def base_Sd(self) -> np.ndarray:
        """[2, 2] the base stations, on the left side."""
        return np.array([(0.0, self.side / 4), (0.0, 3 * self.side / 4)])

    def layout(self, number: int) -> np.ndarray:
        """[U, 2] the users of a layout."""
        rng = pl.rng_of(("drones", self.seed, self.side, self.users, number))
        spots = rng.uniform((0.3 * self.side, 0.1 * self.side), 0.95 * self.side, (SPOTS, 2))
        at = spots[rng.integers(SPOTS, size=self.users)] + rng.normal(size=(self.users, 2))
        return np.clip(at, 0, self.side)

    def drift_of(self, number: int) -> np.ndarray:
        """[2] cells that the users of a layout move by in a step."""
        angle = pl.rng_of(("drones", self.seed, number, "drift")).uniform(0, 2 * np.pi)
        return self.drift * np.array([np.cos(angle), np.sin(angle)])

    def reset(self, rng: np.random.Generator, n: int) -> NetworkState:
        layout_n = rng.integers(self.layouts, size=n)
        users = np.stack([self.layout(i) for i in range(self.layouts)])
        at_nAd = rng.integers(0, (4, self.side + 1), (n, self.agents, 2)).astype(float)
        away_nA = np.linalg.norm(at_nAd[:, :, None] - self.base_Sd, axis=-1).min(-1)
        rank_nA = away_nA.argsort(1, kind="stable").argsort(1, kind="stable")
        return NetworkState(
            at_nAd=at_nAd,
            user_nUd=users[layout_n],
            layout_n=layout_n,
            group_nA=rank_nA * self.groups // self.agents,
            time=0,
            links=self.links(at_nAd, users[layout_n]),
        )

    def links(self, at_nAd: np.ndarray, user_nUd: np.ndarray) -> HopLinks:
        """How drones at these places are linked, by ways of fewest hops."""
        n, A, _ = at_nAd.shape
        to_base_nA = np.linalg.norm(at_nAd[:, :, None] - self.base_Sd, axis=-1).min(-1)
        apart_nAA = np.linalg.norm(at_nAd[:, :, None] - at_nAd[:, None], axis=-1)
        near_nAA = (apart_nAA <= self.hop) & ~np.eye(A, dtype=bool)
        hops_nA = np.where(to_base_nA <= self.hop, 1.0, FREE)
        next_nA = np.full((n, A), -1)
        for _ in range(A - 1):
            over_nAA = np.where(near_nAA, hops_nA[:, None], FREE) + 1
            best_nA = over_nAA.argmin(2)
            through_nA = np.take_along_axis(over_nAA, best_nA[..., None], 2)[..., 0]
            better_nA = through_nA < hops_nA
            hops_nA = np.where(better_nA, through_nA, hops_nA)
            next_nA = np.where(better_nA, best_nA, next_nA)
        linked_nA = hops_nA < FREE
        down_nUA = np.linalg.norm(user_nUd[:, :, None] - at_nAd[:, None], axis=-1)
        sinr_nUA = self.radio.sinr(self.radio.snr(down_nUA, self.reach), linked_nA)
        by_nU, best_nU = sinr_nUA.argmax(2), sinr_nUA.max(2)
        served_nU = best_nU >= self.radio.least * (1 - 1e-9)
        serves_nA = ((by_nU[..., None] == np.arange(A)) & served_nU[..., None]).sum(1).astype(float)
        to_next_nA = np.take_along_axis(apart_nAA, np.maximum(next_nA, 0)[..., None], 2)[..., 0]
        away_nA = np.where(next_nA < 0, to_base_nA, to_next_nA)
        snr_nA = self.radio.snr(away_nA, self.hop) * linked_nA
        load_nA = carried_users(serves_nA, hops_nA, next_nA)
        share_nA = shares_of_hops(snr_nA, hops_nA, next_nA, load_nA)
        of_mine = lambda x: np.take_along_axis(x, by_nU, 1)
        access_nU = np.log2(1 + best_nU) / np.maximum(of_mine(serves_nA), 1)
        return HopLinks(
            hops_nA=hops_nA,
            next_nA=next_nA,
            serves_nA=serves_nA,
            served_nU=served_nU,
            snr_nA=snr_nA,
            rate_nU=np.minimum(access_nU, of_mine(share_nA)) * served_nU,
        )

    def relays(self, links: HopLinks) -> np.ndarray:
        """[n, A] users of others whose traffic a drone passes on."""
        return carried_users(links.serves_nA, links.hops_nA, links.next_nA) - links.serves_nA

    def facts(self, state: NetworkState) -> dict[str, np.ndarray]:
        """[n, A] shares of the users: served by the drone, passed on by it, and served by all; the mean rate of all users;
        whether the drone has a way to a base station; and the layout.
        """
        links = state.links
        same = lambda x_n: np.repeat(x_n[:, None].astype(float), self.agents, 1)
        return {
            "serves": links.serves_nA / self.users,
            "relays": self.relays(links) / self.users,
            "covered": same(links.served_nU.mean(1)),
            "rate": same(links.rate_nU.mean(1)),
            "layout": same(state.layout_n),
            "linked": (links.hops_nA < FREE).astype(float),
        }

    def observe(self, state: NetworkState) -> np.ndarray:
        """[n, A, O]: time and own place, group and number, base stations and the other drones as seen from there, and
        whether those have a way, its ratio in tens of dB and the rate of their users, all users and the unserved ones by
        part of the map, users by direction within five cells and within reach, own link, its ratio, users and their rate.
        Counts of users are in quarters of all.
        """
        n, A, _ = state.at_nAd.shape
        at, side = state.at_nAd, self.side
        serves_nA, served_nU = state.links.serves_nA, state.links.served_nU
        linked_nA = (state.links.hops_nA < FREE).astype(float)
        apart = (at[:, None] - at[:, :, None]) / side
        tens_nA = np.log10(1 + state.links.snr_nA)
        rate_nA = self.rates_by_drone(state)
        links = np.stack([linked_nA, tens_nA, rate_nA], -1)
        flagged = np.concatenate([apart, np.repeat(links[:, None], A, 1)], -1)
        others = np.stack([np.delete(flagged[:, a], a, 1).reshape(n, -1) for a in range(A)], 1)
        rows_nU = np.clip(state.user_nUd * COARSE // side, 0, COARSE - 1).astype(int)
        cell_nU = rows_nU[..., 0] * COARSE + rows_nU[..., 1]
        in_cell = cell_nU[..., None] == np.arange(COARSE**2)
        coarse = np.concatenate([in_cell.sum(1), (in_cell & ~served_nU[..., None]).sum(1)], -1)
        to_nAUd = state.user_nUd[:, None] - at[:, :, None]
        near = np.linalg.norm(to_nAUd, axis=-1) <= 5
        wide = np.abs(to_nAUd[..., 0]) >= np.abs(to_nAUd[..., 1])
        sides = [wide & (to_nAUd[..., 0] < 0), wide & (to_nAUd[..., 0] >= 0)]
        sides += [~wide & (to_nAUd[..., 1] < 0), ~wide & (to_nAUd[..., 1] >= 0)]
        close = np.linalg.norm(to_nAUd, axis=-1) <= self.reach
        local = np.stack([(near & x).sum(2) for x in (*sides, close)], -1)
        base = ((self.base_Sd - at[:, :, None]) / side).reshape(n, A, -1)
        same = lambda x: np.repeat(x[:, None], A, 1)
        return np.concatenate(
            [
                np.full((n, A, 1), state.time / self.horizon),
                at / side,
                state.group_nA[..., None] == np.arange(self.groups),
                same(np.eye(A)[None].repeat(n, 0))[:, range(A), range(A)],
                base,
                others,
                same(coarse * 4 / self.users),
                local * 4 / self.users,
                linked_nA[..., None],
                tens_nA[..., None],
                serves_nA[..., None] * 4 / self.users,
                rate_nA[..., None],
            ],
            -1,
        )

    def rates_by_drone(self, state: NetworkState) -> np.ndarray:
        """[n, A] the summed rate of the users within reach of a drone, over what would satisfy a quarter of all."""
        to_nAU = np.linalg.norm(state.user_nUd[:, None] - state.at_nAd[:, :, None], axis=-1)
        near_nAU = to_nAU <= self.reach
        return (near_nAU * state.links.rate_nU[:, None]).sum(-1) * 4 / (self.users * self.demand)

    def legal(self, state: NetworkState) -> None:
        return None

    def step(
        self, state: NetworkState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[NetworkState, np.ndarray, np.ndarray]:
        after = self._moved(state, act_nA, rng)
        covered_n = after.links.served_nU.mean(1)
        satisfied_n = np.minimum(1.0, after.links.rate_nU / self.demand).mean(1)
        paid_n = (1 - self.quality) * covered_n + self.quality * satisfied_n
        paid_nA = np.repeat(paid_n[:, None], self.agents, 1)
        return after, paid_nA, np.zeros(len(paid_nA), bool)

    def _moved(
        self, state: NetworkState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> NetworkState:
        at_nAd = np.clip(state.at_nAd + MOVES[act_nA], 0, self.side)
        drift = np.stack([self.drift_of(i) for i in range(self.layouts)])[state.layout_n]
        wander = self.wander * rng.normal(size=state.user_nUd.shape)
        user_nUd = np.clip(state.user_nUd + drift[:, None] + wander, 0, self.side)
        return NetworkState(
            at_nAd=at_nAd,
            user_nUd=user_nUd,
            layout_n=state.layout_n,
            group_nA=state.group_nA,
            time=state.time + 1,
            links=self.links(at_nAd, user_nUd),
        )

    # ---- what guidance needs, see `program.GuidedGames`

    @property
    def group_at(self) -> int:
        return 3

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(2), np.full(2, float(self.side))

    def place(self, obs: np.ndarray) -> np.ndarray:
        return obs[..., 1:3] * self.side

    def situations(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, 1] the number of the layout."""
        return paths["layout"][:, 0, :1]

    def spell(self, situation: np.ndarray) -> str:
        """Where base stations and users are."""
        spots = lambda at: ", ".join(f"({x:.0f}, {y:.0f})" for x, y in at)
        layout = int(situation[0])
        about = ABOUT.format(side=self.side, reach=self.reach, hop=self.hop, horizon=self.horizon)
        way = self.drift_of(layout) * self.horizon
        return (
            f"{about}\nBase stations: {spots(self.base_Sd)}\nUsers: {spots(self.layout(layout))}\n"
            f"All of them move in a game by about: ({way[0]:.1f}, {way[1]:.1f})\nDrones: {self.agents}"
        )

    def forced(self, obs: np.ndarray) -> np.ndarray:
        """[...] the move towards the nearest base station of a drone of group 0 that is farther than a hop from it, else
        -1: the constraint of key drones.
        """
        first = 3 + self.groups + self.agents
        away = obs[..., first : first + 4].reshape(*obs.shape[:-1], 2, 2) * self.side
        nearest = np.linalg.norm(away, axis=-1).argmin(-1)
        delta = np.take_along_axis(away, nearest[..., None, None], -2)[..., 0, :]
        far = (np.linalg.norm(delta, axis=-1) > self.hop) & (obs[..., 3] > 0)
        return np.where(far, action_towards(delta, MOVES), -1)

    def plan(self, situation: np.ndarray) -> np.ndarray:
        """[J, 2] targets by a rule that knows the network, see `plan_targets`."""
        return plan_targets(self, int(situation[0]))


def carried_users(serves_nA: np.ndarray, hops_nA: np.ndarray, next_nA: np.ndarray) -> np.ndarray:
    """[n, A] users whose traffic goes over a drone, its own among them."""
    A = serves_nA.shape[1]
    load_nA = serves_nA.copy()
    for hop in range(A, 1, -1):
        for a in range(A):
            far_n = (hops_nA[:, a] == hop) & (next_nA[:, a] >= 0)
            load_nA[far_n, next_nA[far_n, a]] += load_nA[far_n, a]
    return load_nA


def plan_targets(sim: DroneNetwork, layout: int) -> np.ndarray:
    """[A, 2] cells from which the drones serve many users of a layout, by a greedy rule: of all users, the one whose
    surroundings hold most unserved users for each drone that a chain to them takes, again and again. In no order.
    """
    base = sim.base_Sd
    users = sim.layout(layout) + sim.drift_of(layout) * sim.horizon / 2  # half-way of a game
    grid = np.stack(np.meshgrid(*[np.arange(sim.side + 1.0)] * 2, indexing="ij"), -1).reshape(-1, 2)
    gains_MU = np.linalg.norm(grid[:, None] - users[None], axis=-1) <= sim.reach
    served, chain = np.zeros(len(users), bool), list[np.ndarray]()
    while len(chain) < sim.agents:
        nodes = np.array([*base, *chain])
        away_MN = np.linalg.norm(grid[:, None] - nodes[None], axis=-1)
        need_M = np.maximum(1, np.ceil(away_MN.min(1) / (sim.hop - 0.75))).astype(int)
        gain_M = (gains_MU & ~served).sum(1) / need_M
        gain_M[need_M > sim.agents - len(chain)] = 0
        best = int(gain_M.argmax())
        if gain_M[best] <= 0:
            break
        start, steps = nodes[away_MN[best].argmin()], need_M[best]
        for k in range(1, steps + 1):
            cell = np.round(start + (grid[best] - start) * k / steps)
            chain.append(cell)
            served |= np.linalg.norm(users - cell, axis=-1) <= sim.reach
    return np.array(chain).reshape(-1, 2)
