"""PPO for policies that are no language models: a time step takes the place of a token, an agent's
trajectory that of a row, and the objectives are the project's own.

Several agents share their weights (independent PPO, arXiv:2011.09533). B trajectories, T steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.control.networks import ActorCritic, draw_network
from palaestra.control.shaping import Shaping, as_paid
from palaestra.control.simulators import (
    Paths,
    Simulator,
    play_games,
    returns_of,
)
from palaestra.credit.advantages import discounted_sums
from palaestra.errors import Fault
from palaestra.objective.policy import Clipped
from palaestra.objective.terms import Entropy, ValueLoss
from palaestra.types import Batch, Key, Metrics, Objective, need_at_least, rng_of, stage

# called with the paths of every iteration, after the learner has learned from them
Between: TypeAlias = Callable[[Paths, int], Awaitable[Metrics]]
Log: TypeAlias = Callable[[Metrics], None]
BATCH_COLUMNS = ("obs", "act", "legal")


@stage
class PPO:
    """Proximal policy optimisation (arXiv:1707.06347) on whole games, for one agent or several.

    An iteration plays `games` games and makes `epochs` passes over their trajectories in
    `minibatches` parts of whole trajectories, or with `part_steps` in parts of so many single steps, which
    few games need: a part of one trajectory says little of the others. Advantages are those of GAE, less their mean
    at the same time step over all games and agents, divided by their standard deviation. With `part_steps`,
    and for a single trajectory, the mean is that of all steps: of n trajectories, each would else take 1/n of
    its own advantage away, and the last one that goes on all of it. What follows the
    horizon is worth nothing, or with `bootstrap` as much as the critic says: for games that the
    horizon only cuts.
    """

    objective: Objective = Clipped(reduce="tokens") + 0.5 * ValueLoss(clip=0.0) + 0.01 * Entropy()
    lr: float = 1e-3
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.99
    lam: float = 0.95
    games: int = 64
    width: int = 64
    max_norm: float = 0.5  # of a gradient
    bootstrap: bool = False
    part_steps: int = 0
    smallest: ClassVar[Mapping[str, float]] = {"games": 4, "epochs": 2, "minibatches": 2}

    def __post_init__(self) -> None:
        need_at_least(self, lr=0, epochs=1, minibatches=1, gamma=0, lam=0, games=1, width=1)
        need_at_least(self, part_steps=0)

    def start(self, sim: Simulator, key: Key) -> ActorCritic:
        """The policy before the first step."""
        return draw_network(lambda: ActorCritic(sim.observation, sim.actions, self.width), key)

    async def learn(
        self,
        sim: Simulator,
        steps: int,
        key: Key,
        shaping: Shaping = as_paid,
        between: Between | None = None,
        log: Log | None = None,
    ) -> ActorCritic:
        """A policy after at least `steps` environment steps; the same bits for the same key.

        Args:
            steps: those of all games, each counted once however many agents it has.
            shaping: the rewards that are learned from.
            between: is awaited after every iteration, such as an `Advisor` that asks its guide.
            log: takes the numbers of an iteration: "step", "env_steps", "reward" (the mean return of
                a game as the simulator paid it), those of the objective, and those of `between`.
        """
        policy = self.start(sim, key)
        optimiser = torch.optim.Adam(policy.parameters(), self.lr, eps=1e-5)
        taken, i = 0, 0
        while taken < steps:
            paths = play_games(sim, policy.act, self.games, (*key, i))
            taken, i = taken + int(paths["alive"].sum()), i + 1
            metrics = self.update(
                policy, optimiser, self.batch_of(policy, paths, shaping), (*key, i)
            )
            more = await between(paths, i) if between else {}
            if log:
                reward = float(returns_of(paths).mean())
                log({"step": i, "env_steps": taken, "reward": reward} | metrics | more)
        return policy

    def update(
        self, policy: ActorCritic, optimiser: torch.optim.Optimizer, batch: Batch, key: Key
    ) -> Metrics:
        """Several passes over a batch. Returns the mean of the objective's metrics."""
        seen: list[Mapping[str, Tensor]] = []
        parts = min(self.minibatches, batch.n_rows)
        if self.part_steps:
            parts = max(1, round(batch.n_rows / self.part_steps))
        for epoch in range(self.epochs):
            order = rng_of((*key, "rows", epoch)).permutation(batch.n_rows)
            for rows in np.array_split(order, parts):
                part = rows_of(batch, torch.from_numpy(rows))
                loss, metrics = self.objective(policy(part.columns), part)
                if not bool(torch.isfinite(loss)):
                    raise Fault("not-finite", "the loss of an update is no finite number")
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), self.max_norm)
                optimiser.step()
                seen.append({**metrics, "loss": loss.detach()})
        return {k: float(np.mean([float(m[k]) for m in seen])) for k in seen[0]}

    def batch_of(self, policy: ActorCritic, paths: Paths, shaping: Shaping = as_paid) -> Batch:
        """The trajectories of all agents as rows, with advantages and the critic's targets."""
        reward, value = shaping(paths), paths["value"]
        alive_nT = paths["alive"]
        n, A, T = reward.shape
        after = np.zeros((n, A))  # what follows the horizon is worth
        if self.bootstrap:
            with torch.no_grad():
                last = policy.critic(torch.from_numpy(paths["next_obs"][:, :, -1]).float())
            cut_n = alive_nT[:, -1] & ~paths["over"][:, -1]
            after = last[..., 0].numpy() * cut_n[:, None]
        adv = advantages(reward, value, after, alive_nT, self.gamma, self.lam)
        mask = np.broadcast_to(alive_nT[:, None], (n, A, T)).copy()
        # an observation need not tell the time, on which what is still to be paid depends
        mean_T = adv.sum((0, 1)) / np.maximum(mask.sum((0, 1)), 1)
        few = self.part_steps or n * A == 1
        centred = (adv - (adv[mask].mean() if few else mean_T)) * mask
        flat = lambda x: torch.from_numpy(np.ascontiguousarray(x).reshape(n * A, T, *x.shape[3:]))
        columns = {k: flat(paths[k]).float() for k in BATCH_COLUMNS if k in paths}
        columns |= {
            "behaviour_logp": flat(paths["logp"]).float(),
            "policy_value": flat(value).float(),
            "return": flat(adv + value).float(),
            "trained": flat(mask).float(),
            "advantage": flat(centred / (centred[mask].std() + 1e-8)).float(),
        }
        if self.part_steps:
            columns = single_steps(columns)
        rows = torch.arange(len(columns["trained"]))
        return rows_of(Batch(columns=columns, unit_B=rows, n_tokens=0, n_rows=0, n_units=0), rows)


def single_steps(columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """[S, 1, ...] the trained steps of columns [B, T, ...] as rows of their own."""
    trained = columns["trained"] > 0
    return {k: v[trained][:, None] for k, v in columns.items()}


def advantages(
    reward: np.ndarray,
    value: np.ndarray,
    after: np.ndarray,
    alive_nT: np.ndarray,
    gamma: float,
    lam: float,
) -> np.ndarray:
    """[n, A, T] generalised advantage estimation (arXiv:1506.02438 eq. 16), 0 where a game is over.

    Args:
        reward, value: of each step, [n, A, T].
        after: the value of what follows the last step, [n, A].
    """
    alive = alive_nT[:, None]
    value = value * alive
    next_value = np.concatenate([value[..., 1:], after[..., None]], -1)
    delta = (reward + gamma * next_value - value) * alive
    return np.moveaxis(discounted_sums(np.moveaxis(delta, -1, 0), gamma * lam), 0, -1)


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Some rows as a batch of their own, which counts its own steps."""
    columns = {k: v[rows] for k, v in batch.columns.items()}
    n = len(rows)
    counted = max(1, int(columns["trained"].sum()))
    return Batch(columns=columns, unit_B=batch.unit_B[rows], n_tokens=counted, n_rows=n, n_units=n)
