"""A network of what actions cost in the long run, trained with actions that integer programs choose.

B transitions, J arms, S states of each, n actions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl
from palaestra.recipes.llm4rl.sequoia.bandit import RestlessBandit
from palaestra.recipes.llm4rl.sequoia.milp import (
    Layer,
    is_feasible,
    least_linear,
    least_of_network,
    network_value,
)

Policy = Callable[[np.ndarray], np.ndarray]  # a state [J] to an action [n]
PAIRS = 10_000  # of a state and an action in the warm start, at most
TINY = 1e-6  # priority that every transition has at least


def td_targets(cost_B: np.ndarray, next_B: np.ndarray, gamma: float) -> np.ndarray:
    """[B] cost + gamma min_a' Q'(s', a'), of costs and the least values of what follows."""
    return cost_B + gamma * next_B


def exploration(step: int, start: float = 0.9, end: float = 0.05, decay: float = 1000.0) -> float:
    """The share of random actions, end + (start - end) exp(-step / decay)."""
    return float(end + (start - end) * np.exp(-step / decay))


def state_vector(state: np.ndarray, states: int) -> np.ndarray:
    """[..., J * S] which state each arm is in."""
    return np.eye(states)[state].reshape(*state.shape[:-1], -1)


class CostNetwork(nn.Module):
    """What (action, state) costs: ReLU units, so that an integer program can hold it."""

    def __init__(self, inputs: int, hidden: tuple[int, ...]):
        super().__init__()
        sizes = (inputs, *hidden)
        parts: list[nn.Module] = []
        for before, after in zip(sizes, hidden, strict=False):
            parts += [nn.Linear(before, after), nn.ReLU()]
        self.net = nn.Sequential(*parts, nn.Linear(sizes[-1], 1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)[..., 0]

    @property
    def layers(self) -> list[Layer]:
        """Weights and biases as numbers of double precision."""
        linear = [m for m in self.net if isinstance(m, nn.Linear)]
        number = lambda x: x.detach().numpy().astype(float)
        return [(number(m.weight), number(m.bias)) for m in linear]


@dataclass
class FeasibleActions:
    """Actions that are feasible, found by integer programs and remembered; a program that ends without an
    action is counted, and a random one taken.
    """

    bandit: RestlessBandit
    seconds: float
    rng: np.random.Generator
    failures: int = 0
    known: dict[bytes, bool] = field(default_factory=dict)
    pool: list[np.ndarray] = field(default_factory=list)

    def random(self) -> np.ndarray:
        """The feasible action with the least of random costs, of which some are below 0. Raises UserError
        where no action is feasible.
        """
        feasible = self.bandit.feasible
        drawn = least_linear(feasible, self.rng.normal(-0.5, 1, feasible.actions), self.seconds)
        if drawn is None:
            raise pl.UserError(
                f"sequoia: no action is feasible, or none is found in seconds={self.seconds}; look at limit"
            )
        return drawn

    def spare(self) -> np.ndarray:
        """A random one in place of one that was not found."""
        self.failures += 1
        return self.random()

    def some(self, n: int) -> np.ndarray:
        """[n, actions], drawn once."""
        while len(self.pool) < n:
            self.pool.append(self.random())
        return np.stack(self.pool[:n])

    def allows(self, action: np.ndarray) -> bool:
        name = action.tobytes()
        if name not in self.known:
            self.known[name] = is_feasible(self.bandit.feasible, action, self.seconds)
        return self.known[name]

    def least(self, network: CostNetwork, state: np.ndarray) -> np.ndarray:
        """The action that a network values least costly, by an integer program that holds it."""
        inputs = state_vector(state, self.bandit.states)
        chosen = least_of_network(self.bandit.feasible, network.layers, inputs, self.seconds)
        return self.spare() if chosen is None else chosen

    def greedy(self, network: CostNetwork, state: np.ndarray) -> np.ndarray:
        """One part of an action after another, each the feasible one that lowers the network's cost most,
        until none does.
        """
        layers, inputs = network.layers, state_vector(state, self.bandit.states)
        value = lambda a: float(network_value(layers, np.concatenate([a, inputs])))
        action = np.zeros(self.bandit.feasible.actions, int)
        if not self.allows(action):
            return self.spare()
        best = value(action)
        while True:
            tries = [
                np.where(np.arange(len(action)) == i, 1, action)
                for i in np.flatnonzero(action == 0)
            ]
            tries = sorted(((value(a), i, a) for i, a in enumerate(tries)), key=lambda x: x[:2])
            better = next((x for x in tries if x[0] < best - 1e-12 and self.allows(x[2])), None)
            if better is None:
                return action
            best, _, action = better

    def myopic(self, state: np.ndarray) -> np.ndarray:
        chosen = self.bandit.least_myopic(state, self.seconds)
        return self.spare() if chosen is None else chosen

    def best_of(self, n: int, state: np.ndarray) -> np.ndarray:
        """Of n random feasible ones that which pays most at once."""
        drawn = self.some(n)
        return drawn[self.bandit.cost(np.tile(state, (len(drawn), 1)), drawn).argmin()]


@dataclass
class PrioritisedReplay:
    """Transitions, drawn with probability priority^alpha / sum; weights (N p)^-beta, the largest one 1."""

    alpha: float = 0.6
    beta: float = 0.4
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray, float]] = field(default_factory=list)
    priority: list[float] = field(default_factory=list)

    def add(self, row: tuple[np.ndarray, np.ndarray, np.ndarray, float]) -> None:
        self.rows.append(row)
        self.priority.append(max(self.priority, default=1.0))

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Which rows, and their weights, [n] each."""
        p = np.array(self.priority) ** self.alpha
        p /= p.sum()
        which = rng.choice(len(p), size=n, p=p)
        weights = (len(p) * p[which]) ** -self.beta
        return which, weights / weights.max()

    def note(self, which: np.ndarray, error: np.ndarray) -> None:
        for i, e in zip(which, np.abs(error), strict=True):
            self.priority[i] = float(e) + TINY


@pl.stage
class SequentialCosts:
    """Learns Q(s, a), what an action costs in the long run, of which the next one is chosen by a program.

        warm start  Q(s, a) ~ c(s, a), the expected cost of a step, in states and actions that lie far apart
        then        Q(s, a) ~ (1 - gamma) c(s, a) + gamma min_a' Q'(s', a')    (Huber, prioritised replay)

    Values are discounted sums times 1 - gamma, so the warm start has their scale. The minimum is an
    integer program's, remembered for each state until it is `refresh` games old.

    Args:
        epochs: of the warm start.
        per_step: updates a step, of `batch` transitions.
        follow: an update's share that Q' follows Q by.
        decay: steps in which exploration falls by a factor of e, from 0.9 to 0.05.
        seconds: of an integer program, at most.
    """

    hidden: tuple[int, ...] = (8, 8)
    gamma: float = 0.9
    lr: float = 2e-3
    epochs: int = 60
    per_step: int = 2
    batch: int = 32
    follow: float = 0.02
    decay: float = 150.0
    refresh: int = 5
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < 1 or not 0 < self.follow <= 1:
            raise pl.UserError("sequoia: gamma is from 0 to below 1, follow above 0 to 1")
        if not self.hidden or min(*self.hidden, 1) < 1:
            raise pl.UserError("sequoia: hidden has the sizes of layers, such as hidden=[16,16]")
        if min(self.per_step, self.batch, self.refresh) < 1 or min(self.lr, self.seconds) <= 0:
            raise pl.UserError("sequoia: per_step, batch, refresh, lr and seconds are above 0")

    def network(self, bandit: RestlessBandit, key: pl.Key) -> CostNetwork:
        inputs = bandit.feasible.actions + bandit.arms * bandit.states
        return pl.control.draw_network(lambda: CostNetwork(inputs, self.hidden), key)

    def far_apart(
        self, bandit: RestlessBandit, actions: FeasibleActions, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """States and actions, each with each: all low, all high, one high, random; none, all, one, random."""
        J, n, top = bandit.arms, bandit.feasible.actions, bandit.states - 1
        states = [np.zeros(J, int), np.full(J, top), *(np.eye(J, dtype=int) * top)]
        states += list(rng.integers(bandit.states, size=(8 * J, J)))
        acts = [np.zeros(n, int), np.ones(n, int), *np.eye(n, dtype=int), *actions.some(2 * n)]
        pairs = [(s, a) for s in states for a in acts]
        if len(pairs) > PAIRS:
            pairs = [pairs[i] for i in rng.permutation(len(pairs))[:PAIRS]]
        return np.stack([s for s, _ in pairs]), np.stack([a for _, a in pairs])

    def warm_start(
        self, bandit: RestlessBandit, actions: FeasibleActions, key: pl.Key
    ) -> CostNetwork:
        """A network of what a step costs on average."""
        rng, network = pl.rng_of((*key, "warm")), self.network(bandit, key)
        states, acts = self.far_apart(bandit, actions, rng)
        inputs = torch.from_numpy(inputs_of(bandit, states, acts)).float()
        costs = torch.from_numpy(bandit.cost(states, acts)).float()
        optimiser = torch.optim.AdamW(network.parameters(), self.lr, eps=1.5e-4)
        for _ in range(self.epochs):
            for rows in np.array_split(rng.permutation(len(costs)), max(1, len(costs) // 64)):
                take = torch.from_numpy(rows)
                loss = ((network(inputs[take]) - costs[take]) ** 2).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return network

    def learn(
        self, bandit: RestlessBandit, steps: int, key: pl.Key
    ) -> tuple[CostNetwork, FeasibleActions, list[dict[str, Any]]]:
        """The network after at least `steps` steps of the bandit, the actions that it came across, and
        the curve.
        """
        rng = pl.rng_of((*key, "learn"))
        actions = FeasibleActions(bandit, self.seconds, pl.rng_of((*key, "feasible")))
        network, following = (self.warm_start(bandit, actions, key) for _ in range(2))
        learning = Learning(self, bandit, network, following, actions)
        lines, taken, game = list[dict[str, Any]](), 0, 0
        while taken < steps:
            if game % self.refresh == 0:
                learning.remembered.clear()
            game += 1
            state, paid, losses = bandit.first(rng, 1)[0], 0.0, list[float]()
            for _ in range(bandit.horizon):
                explores = rng.random() < exploration(taken, decay=self.decay)
                action = actions.random() if explores else actions.least(network, state)
                after = bandit.step(state, action, rng.random(bandit.arms))
                learning.replay.add((state, action, after, float(bandit.cost(state, action))))
                state, taken = after, taken + 1
                paid += float(bandit.paid(after))
                losses += [learning.update(rng) for _ in range(self.per_step)]
            lines.append({"env_steps": taken, "reward": paid, "loss": float(np.mean(losses))})
        return network, actions, lines


@dataclass
class Learning:
    """A network that learns, the one that follows it, and what was played."""

    settings: SequentialCosts
    bandit: RestlessBandit
    network: CostNetwork
    following: CostNetwork
    actions: FeasibleActions
    replay: PrioritisedReplay = field(default_factory=PrioritisedReplay)
    remembered: dict[bytes, np.ndarray] = field(default_factory=dict)  # best actions by state

    def __post_init__(self) -> None:
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), self.settings.lr, eps=1.5e-4, amsgrad=True
        )

    def best(self, state: np.ndarray) -> np.ndarray:
        name = state.tobytes()
        if name not in self.remembered:
            self.remembered[name] = self.actions.least(self.following, state)
        return self.remembered[name]

    def update(self, rng: np.random.Generator) -> float:
        """One batch; the loss."""
        settings = self.settings
        which, weights = self.replay.draw(rng, settings.batch)
        rows = [self.replay.rows[i] for i in which]
        states, acts, after = (np.stack([r[i] for r in rows]) for i in (0, 1, 2))
        cost = np.array([r[3] for r in rows])
        next_value = np.zeros(len(rows))
        if settings.gamma:
            best = np.stack([self.best(s) for s in after])
            inputs = inputs_of(self.bandit, after, best)
            next_value = network_value(self.following.layers, inputs)
        target = td_targets((1 - settings.gamma) * cost, next_value, settings.gamma)
        value = self.network(torch.from_numpy(inputs_of(self.bandit, states, acts)).float())
        error = value - torch.from_numpy(target).float()
        huber = nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none")
        loss = (torch.from_numpy(weights).float() * huber).mean()
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(self.network.parameters(), 5.0)
        self.optimiser.step()
        self.replay.note(which, error.detach().numpy())
        with torch.no_grad():
            for old, new in zip(
                self.following.parameters(), self.network.parameters(), strict=True
            ):
                old.lerp_(new, settings.follow)
        return float(loss.detach())


def inputs_of(bandit: RestlessBandit, states: np.ndarray, acts: np.ndarray) -> np.ndarray:
    """[..., n + J S] what a network reads."""
    return np.concatenate([acts, state_vector(states, bandit.states)], -1)
