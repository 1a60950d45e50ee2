"""The rewards that are learned from: what was paid, potentials, or an episode's return divided over
its steps.

A hook of a learner: from the paths of an iteration to rewards [n, A, T]. It may be fitted to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from palaestra.control.networks import draw_network, tower
from palaestra.control.simulators import Paths, returns_of
from palaestra.errors import UserError
from palaestra.types import Key, need_at_least, rng_of, stage

Shaping: TypeAlias = Callable[[Paths], np.ndarray]


def as_paid(paths: Paths) -> np.ndarray:
    """[n, A, T] the simulator's rewards."""
    return paths["reward"]


def at_the_end(paths: Paths) -> np.ndarray:
    """[n, A, T] an agent's share of its team's return at the game's last step, and 0 before."""
    n, A, T = paths["reward"].shape
    given = np.zeros((n, A, T))
    given[np.arange(n), :, paths["alive"].sum(1) - 1] = returns_of(paths)[:, None] / A
    return given


def stay_rewards(reward: np.ndarray, paths: Paths, horizon: int, gamma: float) -> np.ndarray:
    """[n, A, T] rewards of states, in which a game that ends before the horizon is paid as if its last
    state stayed: r (1 + gamma + ... + gamma^k) with k steps left. Else ending early would cost what
    good states pay for the steps that are left, also where the end is what is wanted.
    """
    left_T = horizon - 1 - np.arange(reward.shape[-1])
    stay_T = (1 - gamma ** (left_T + 1)) / (1 - gamma) if gamma < 1 else left_T + 1
    return reward * np.where(paths["over"], stay_T, 1.0)[:, None] * paths["alive"][:, None]


@stage
class Potential:
    """r + gamma phi(s') - phi(s), which leaves the best policy as it is (Ng et al. 1999); phi of the
    state after the end is 0.

    Args:
        phi: [..., O] observations to [...] potentials.
        gamma: the learner's.
    """

    phi: Callable[[np.ndarray], np.ndarray]
    gamma: float = 0.99

    def __call__(self, paths: Paths) -> np.ndarray:
        after = self.phi(paths["next_obs"]) * ~paths["over"][:, None]
        added = self.gamma * after - self.phi(paths["obs"])
        return paths["reward"] + added * paths["alive"][:, None]


def decomposition_loss(share_NK: Tensor, mean_N: Tensor, steps_N: Tensor | None = None) -> Tensor:
    """[N] (mean of K predicted shares - R / T)^2, return decomposition (RUDDER, arXiv:1806.07857).

    With `steps_N`, the number of steps T that the K were drawn from without putting back, it is
    less (1 - K/T) s^2 / K, s^2 the sample variance of the shares: the unbiased loss of randomized
    return decomposition (RRD, arXiv:2111.13485), which may be negative.

    Args:
        share_NK: predicted rewards of K steps of each of N games.
        mean_N: what the games paid for each of their steps on average, R / T.
    """
    loss_N = (share_NK.mean(1) - mean_N) ** 2
    if steps_N is None:
        return loss_N
    K = share_NK.shape[1]
    return loss_N - (1 - K / steps_N) * share_NK.var(1) / K


@stage
class Decomposition:
    """How a network is fitted to stored games, so that its rewards of all steps and agents sum to
    the game's return. `sampled` steps of a game are used for a fit (0 = all).
    """

    sampled: int = 0
    width: int = 64
    lr: float = 1e-3
    updates: int = 8  # an iteration
    games: int = 64  # an update
    keep: int = 1024  # games

    def __post_init__(self) -> None:
        need_at_least(self, sampled=0, width=1, updates=1, games=1, keep=1)
        if self.sampled == 1:
            raise UserError("Decomposition.sampled: the variance of one step is not known; take 2")

    def start(self, features: Callable[[Paths], np.ndarray], key: Key) -> Decomposer:
        """A fresh network.

        Args:
            features: of every step, [n, A, T, F].
        """
        return Decomposer(self, features, key)


class Decomposer:
    """A shaping that learns: it stores the games that it is given and gives their steps rewards."""

    def __init__(self, settings: Decomposition, features: Callable[[Paths], np.ndarray], key: Key):
        self.settings, self.features, self.key = settings, features, key
        self.rng = rng_of((*key, "decomposition"))
        self.stored: list[
            tuple[np.ndarray, float]
        ] = []  # steps [S, F], and what one paid on average
        self.loss = float("nan")
        self.net: torch.nn.Module | None = None
        self.optimiser: torch.optim.Optimizer | None = None

    def __call__(self, paths: Paths) -> np.ndarray:
        """[n, A, T] times the number of agents, so that those of an agent sum to the team's return.

        The network is fitted first, to these games too.
        """
        x = self.features(paths).astype(np.float32)
        self.store(x, paths)
        for _ in range(self.settings.updates):
            self.fit()
        return self.reward(paths, x)

    def reward(self, paths: Paths, x: np.ndarray | None = None) -> np.ndarray:
        """[n, A, T] as the network stands."""
        if self.net is None:
            raise UserError("a decomposition that was fitted to nothing has no rewards")
        x = self.features(paths).astype(np.float32) if x is None else x
        with torch.no_grad():
            rewards = self.net(torch.from_numpy(x))[..., 0].numpy().astype(float)
        return rewards * x.shape[1] * paths["alive"][:, None]

    def store(self, x: np.ndarray, paths: Paths) -> None:
        returns_n, alive_n = returns_of(paths), paths["alive"].sum(1)
        for game, (total, T) in enumerate(zip(returns_n, alive_n, strict=True)):
            steps = x[game, :, :T].reshape(-1, x.shape[-1])
            self.stored.append((steps, float(total) / len(steps)))
        self.stored = self.stored[-self.settings.keep :]

    def fit(self) -> None:
        """One step of Adam on games drawn from the store."""
        net, optimiser = self._network()
        chosen = [
            self.stored[i] for i in self.rng.integers(len(self.stored), size=self.settings.games)
        ]
        K = self.settings.sampled
        parts = [x[self._choose(len(x), K)] for x, _ in chosen]
        mean_N = torch.tensor([mean for _, mean in chosen], dtype=torch.float32)
        share_S = net(torch.from_numpy(np.concatenate(parts)))[:, 0]
        shares = torch.split(share_S, [len(p) for p in parts])
        if K:
            steps_N = torch.tensor([len(x) for x, _ in chosen], dtype=torch.float32)
            loss = decomposition_loss(torch.stack(shares), mean_N, steps_N).mean()
        else:
            means = torch.stack([s.mean() for s in shares])
            loss = decomposition_loss(means[:, None], mean_N).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        self.loss = float(loss.detach())

    def _choose(self, steps: int, K: int) -> slice | np.ndarray:
        if not K:
            return slice(None)
        if steps < K:
            raise UserError(f"Decomposition.sampled: a game has {steps} steps, fewer than {K}")
        return self.rng.choice(steps, K, replace=False)

    def _network(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        if self.net is None or self.optimiser is None:
            inputs, width = self.stored[0][0].shape[1], self.settings.width
            self.net = draw_network(lambda: tower(inputs, 1, width, torch.nn.ReLU), self.key)
            self.optimiser = torch.optim.Adam(self.net.parameters(), self.settings.lr)
        return self.net, self.optimiser
