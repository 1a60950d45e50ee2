"""Soft actor-critic: continuous actions from stored transitions.

B transitions, O observation, D dimensions of an action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from palaestra.control.actor_critic import Between, Log
from palaestra.control.networks import SquashedGaussian, TwinCritics, draw_network
from palaestra.control.q import TransitionStore, follow_network
from palaestra.control.shaping import Shaping, as_paid
from palaestra.control.simulators import Acting, Box, Simulator, play_games, returns_of
from palaestra.errors import Fault, UserError
from palaestra.types import Key, Metrics, need_at_least, rng_of, stage


@stage
class SAC:
    """Soft actor-critic (arXiv:1812.05905): a policy that is paid for its entropy, and two critics of
    which the lower one counts.

        y = r + gamma (1 - over) [min(Q1', Q2')(s', a') - alpha log p(a' | s')],  a' ~ p( . | s')
        critics: 1/2 (Q1 - y)^2 + 1/2 (Q2 - y)^2
        policy:  alpha log p(a | s) - min(Q1, Q2)(s, a)
        log alpha: -log alpha (log p(a | s) + target),  target = -D where `entropy` is None

    `over` is the end of a game, never its horizon. The first `warm` steps are even draws between the
    bounds. An iteration plays `games` games, then learns `per_step` batches for each of their steps.
    Actions and their densities are those between -1 and 1, whatever the bounds of the simulator are.
    """

    lr: float = 3e-4
    gamma: float = 0.99
    games: int = 1
    per_step: float = 1.0
    batch: int = 256
    keep: int = 100_000  # transitions
    warm: int = 1_000  # environment steps
    follow: float = 0.005  # an update's share that the second critics follow by
    alpha: float = 1.0  # of the entropy, at the start
    entropy: float | None = None  # nats that alpha is moved towards
    width: int = 256
    smallest: ClassVar[Mapping[str, float]] = {"per_step": 0.02, "warm": 0}

    def __post_init__(self) -> None:
        need_at_least(self, lr=0, gamma=0, games=1, per_step=0, batch=1, keep=1, warm=0, width=1)
        if self.alpha <= 0:
            raise UserError(f"alpha={self.alpha} has no logarithm; it needs more than 0")
        if max(self.gamma, self.follow) > 1:
            raise UserError(f"gamma={self.gamma} and follow={self.follow} are 1 at most")
        if not self.per_step:
            raise UserError("per_step=0 learns nothing; it needs more than 0")

    async def learn(
        self,
        sim: Simulator,
        steps: int,
        key: Key,
        shaping: Shaping = as_paid,
        between: Between | None = None,
        log: Log | None = None,
    ) -> SquashedGaussian:
        """A policy after at least `steps` environment steps; see `PPO.learn`.

        Raises UserError for actions that are not continuous, or have no bounds, and for `steps` that
        are all drawn evenly.
        """
        if steps <= self.warm:
            raise UserError(f"{steps} steps are all drawn evenly with warm={self.warm}; lower warm")
        learner, taken, i, due = self.learner(sim, key), 0, 0, 0.0
        while taken < steps:
            act = even_draws(learner.box) if taken < self.warm else learner.policy.act
            paths = play_games(sim, act, self.games, (*key, i))
            new, i = int(paths["alive"].sum()) * sim.agents, i + 1
            taken += int(paths["alive"].sum())
            learner.stored.add(paths, shaping(paths))
            due += new * self.per_step if taken >= self.warm else 0.0
            updates, due = int(due), due % 1
            metrics: Metrics = learner.update(updates, (*key, i, "replay"))
            more = await between(paths, i) if between else {}
            if log:
                reward = float(returns_of(paths).mean())
                log({"step": i, "env_steps": taken, "reward": reward} | metrics | more)
        return learner.policy

    def learner(self, sim: Simulator, key: Key) -> SoftLearner:
        """The state of learning before the first step."""
        box = sim.actions
        if not isinstance(box, Box):
            raise UserError("SAC needs continuous actions; DoubleQ and PPO take counted ones")
        O, w = sim.observation, self.width
        return SoftLearner(
            self,
            box,
            draw_network(lambda: SquashedGaussian(O, box, w), key),
            draw_network(lambda: TwinCritics(O, box, w), (*key, "critics")),
            draw_network(lambda: TwinCritics(O, box, w), (*key, "critics")),
        )


@dataclass
class SoftLearner:
    """A policy and its critics, with the critics that follow them.

    Args:
        settings: how they learn.
        box: the bounds of actions.
    """

    settings: SAC
    box: Box
    policy: SquashedGaussian
    critics: TwinCritics
    following: TwinCritics
    stored: TransitionStore = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.stored = TransitionStore(settings.keep)
        self.log_alpha = torch.tensor(settings.alpha).log().requires_grad_()
        self.target = -float(self.box.size) if settings.entropy is None else settings.entropy
        adam = lambda parameters: torch.optim.Adam(parameters, settings.lr)
        self.of_policy = adam(self.policy.parameters())
        self.of_critics = adam(self.critics.parameters())
        self.of_alpha = adam([self.log_alpha])

    def update(self, batches: int, key: Key) -> Metrics:
        """Learns so many batches. The means of what they measured; nothing where there are none."""
        rng, settings = rng_of(key), self.settings
        seen: list[dict[str, float]] = []
        for _ in range(batches):
            drawn = self.stored.draw(rng, settings.batch)
            noise = rng.normal(size=(2, settings.batch, self.box.size))
            metrics = self.learn_batch(drawn, torch.from_numpy(noise).float())
            follow_network(self.following, self.critics, settings.follow)
            seen.append(metrics)
        return {k: float(np.mean([m[k] for m in seen])) for k in seen[0]} if seen else {}

    def learn_batch(self, drawn: Mapping[str, np.ndarray], noise: Tensor) -> dict[str, float]:
        """One step of critics, policy and alpha.

        Args:
            noise: [2, B, D] of the actions in the observations, and in those that follow.
        """
        obs = torch.from_numpy(drawn["obs"]).float()
        act, logp_B = self.policy(obs, noise[0])
        alpha, entropy = self.log_alpha.exp().detach(), -logp_B.detach().mean()
        take_step(self.of_alpha, self.log_alpha * (entropy - self.target))
        critic_loss = self.critic_loss(drawn, noise[1], alpha)
        take_step(self.of_critics, critic_loss)
        self.critics.requires_grad_(False)  # the policy's gradient passes through, and stays out
        take_step(self.of_policy, (alpha * logp_B - torch.minimum(*self.critics(obs, act))).mean())
        self.critics.requires_grad_(True)
        return {
            "loss": float(critic_loss.detach()),
            "alpha": float(alpha),
            "entropy": float(entropy),
        }

    def critic_loss(
        self, drawn: Mapping[str, np.ndarray], noise: Tensor, alpha: Tensor | float
    ) -> Tensor:
        """The squared errors of both critics, halved; the mean over the batch.

        Args:
            noise: [B, D] of the actions in the observations that follow.
        """
        tensor = lambda name: torch.from_numpy(drawn[name]).float()
        next_obs = tensor("next_obs")
        with torch.no_grad():
            act, logp_B = self.policy(next_obs, noise)
            value_B = torch.minimum(*self.following(next_obs, act)) - alpha * logp_B
            target_B = tensor("reward") + self.settings.gamma * (1 - tensor("over")) * value_B
        done = self.policy.squeeze(tensor("act"))
        first_B, second_B = self.critics(tensor("obs"), done)
        return 0.5 * ((first_B - target_B) ** 2 + (second_B - target_B) ** 2).mean()


def take_step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down a loss. Raises Fault where it is no finite number."""
    if not bool(torch.isfinite(loss)):
        raise Fault("not-finite", "the loss of an update is no finite number")
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def even_draws(box: Box) -> Acting:
    """Actions drawn evenly between the bounds, see `Acting`."""

    def act(
        obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
    ) -> Mapping[str, np.ndarray]:
        return {"act": rng.uniform(box.low, box.high, (*obs.shape[:-1], box.size))}

    return act
