"""Double Q learning with legal masks, a prior over actions, and a pessimistic term.

B transitions, K actions, O observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.control.actor_critic import Between, Log
from palaestra.control.networks import LOGIT_OF_ILLEGAL, ActionValues, DuelingValues, draw_network
from palaestra.control.shaping import Shaping, as_paid
from palaestra.control.simulators import Acting, Box, Paths, Simulator, play_games, returns_of
from palaestra.errors import UserError
from palaestra.types import Key, Metrics, need_at_least, rng_of, stage

# observations [..., O] to log-probabilities of actions [..., K], in nats
Prior: TypeAlias = Callable[[np.ndarray], np.ndarray]


class Spaces(Protocol):
    """What is observed and done, of a simulator or of anything else that values are learned for."""

    @property
    def observation(self) -> int: ...
    @property
    def actions(self) -> int | Box: ...


@stage
class DoubleQ:
    """Deep Q learning with two networks (arXiv:1509.06461): the one that moves chooses the next
    action, the one that follows it says what that is worth.

        y = r + gamma (1 - over) Q'(s', argmax_a [Q(s', a) + prior log p(a | s')])

    over legal actions alone; of paths with a column "discount", such as `decision_paths`, that is gamma.
    `prior` weighs the log-probabilities of a prior over actions, which is asked for every choice and
    shapes exploration too; 0 = there is none. `cql` weighs log sum exp Q - Q(s, a), which keeps values
    of what was not tried low (arXiv:2006.04779); with `cql_by_prior` it is
    log sum_a p(a | s) exp Q(s, a) - Q(s, a), the prior as the proposal (arXiv:2505.07274). `dueling`
    networks have a head for the value and one for the advantages, see `DuelingValues`. With `per_step`
    so many batches are learned for each step of an iteration's games in place of `updates`, however
    long games are.
    """

    lr: float = 5e-4
    gamma: float = 0.97
    games: int = 16
    updates: int = 64  # an iteration
    batch: int = 128
    keep: int = 50_000  # transitions
    explore: float = 1.0  # share of random actions at the start
    explore_end: float = 0.05
    explore_steps: float = 0.5  # share of all steps after which it is reached
    follow: float = 0.01  # an update's share that the second network follows by
    prior: float = 0.0
    cql: float = 0.0
    width: int = 128
    dueling: bool = False
    per_step: float = 0.0
    cql_by_prior: bool = False
    smallest: ClassVar[Mapping[str, float]] = {"games": 8, "updates": 2, "per_step": 0.05}

    def __post_init__(self) -> None:
        need_at_least(self, lr=0, gamma=0, games=1, updates=1, batch=1, keep=1, prior=0, cql=0)
        need_at_least(self, per_step=0)

    async def learn(
        self,
        sim: Simulator,
        steps: int,
        key: Key,
        shaping: Shaping = as_paid,
        prior: Prior | None = None,
        between: Between | None = None,
        log: Log | None = None,
    ) -> ActionValues:
        """Action values after at least `steps` environment steps; see `PPO.learn`.

        Raises UserError for continuous actions.
        """
        learner, taken, i = self.learner(sim, key), 0, 0
        while taken < steps:
            epsilon = self.epsilon(taken / steps)
            act = self.acting(learner.values, epsilon, prior)
            paths = play_games(sim, act, self.games, (*key, i))
            taken, i = taken + int(paths["alive"].sum()), i + 1
            loss = learner.update(paths, shaping(paths), (*key, i, "replay"), prior)
            more = await between(paths, i) if between else {}
            if log:
                metrics: Metrics = {"reward": float(returns_of(paths).mean())}
                metrics |= {"loss": loss, "epsilon": epsilon}
                log({"step": i, "env_steps": taken} | metrics | more)
        return learner.values

    def learner(self, spaces: Spaces, key: Key) -> QLearner:
        """The state of learning before the first step, for those who play by themselves."""
        return QLearner(self, self.start(spaces, key), self.start(spaces, key))

    def batches(self, paths: Paths) -> int:
        """That are learned after games, one at least."""
        if not self.per_step:
            return self.updates
        return max(1, round(self.per_step * int(paths["alive"].sum()) * paths["reward"].shape[1]))

    def epsilon(self, share: float) -> float:
        """The share of random actions when a share of all steps is taken."""
        way = min(1.0, share / self.explore_steps) if self.explore_steps else 1.0
        return self.explore + way * (self.explore_end - self.explore)

    def start(self, spaces: Spaces, key: Key) -> ActionValues:
        """The values before the first step."""
        actions, kind = spaces.actions, DuelingValues if self.dueling else ActionValues
        if isinstance(actions, Box):
            raise UserError("DoubleQ needs actions that can be counted; PPO takes continuous ones")
        return draw_network(lambda: kind(spaces.observation, actions, self.width), key)

    def acting(
        self, values: ActionValues, epsilon: float = 0.0, prior: Prior | None = None
    ) -> Acting:
        """The best action, or with probability `epsilon` one by the prior, which is even over legal
        ones where there is none.
        """

        def act(
            obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
        ) -> Mapping[str, np.ndarray]:
            with torch.no_grad():
                values_BK = values(torch.from_numpy(obs).float()).numpy().astype(float)
            prior_BK = self._told(prior, obs, values_BK.shape)
            if legal is not None:
                values_BK, prior_BK = (
                    np.where(legal, x, LOGIT_OF_ILLEGAL) for x in (values_BK, prior_BK)
                )
            best = (values_BK + self.prior * prior_BK).argmax(-1)
            other = (prior_BK + rng.gumbel(size=prior_BK.shape)).argmax(-1)
            return {"act": np.where(rng.random(best.shape) < epsilon, other, best)}

        return act

    def loss(
        self,
        values: ActionValues,
        following: ActionValues,
        drawn: Mapping[str, np.ndarray],
        prior: Prior | None = None,
    ) -> Tensor:
        """Huber's loss of the values of what was done, with the pessimistic term."""
        tensor = lambda name: torch.from_numpy(drawn[name]).float()
        obs, next_obs = tensor("obs"), tensor("next_obs")
        legal = torch.from_numpy(drawn["legal"]) if "legal" in drawn else None
        next_legal = torch.from_numpy(drawn["next_legal"]) if "next_legal" in drawn else None
        with torch.no_grad():
            chooser_BK = values(next_obs)
            if self.prior and prior:
                prior_BK = self._told(prior, drawn["next_obs"], tuple(chooser_BK.shape))
                chooser_BK = chooser_BK + self.prior * torch.from_numpy(prior_BK).float()
            target_B = q_targets(
                tensor("reward"),
                tensor("over"),
                chooser_BK,
                following(next_obs),
                tensor("discount") if "discount" in drawn else self.gamma,
                next_legal,
            )
        q_BK = values(obs)
        q_B = q_BK.gather(1, torch.from_numpy(drawn["act"])[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q_B, target_B)
        if self.cql:
            log_p_BK = None
            if self.cql_by_prior and prior:
                told_BK = self._told(prior, drawn["obs"], tuple(q_BK.shape))
                log_p_BK = torch.from_numpy(told_BK).float()
            loss = loss + self.cql * pessimism(q_BK, q_B, legal, log_p_BK).mean()
        return loss

    def _told(self, prior: Prior | None, obs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape) if prior is None else np.asarray(prior(obs), float)


@dataclass
class QLearner:
    """Values that learn from stored transitions, with the network that follows them.

    Args:
        settings: how they learn.
    """

    settings: DoubleQ
    values: ActionValues
    following: ActionValues
    stored: TransitionStore = field(init=False)

    def __post_init__(self) -> None:
        self.stored = TransitionStore(self.settings.keep)
        self.optimiser = torch.optim.Adam(self.values.parameters(), self.settings.lr)

    def update(
        self, paths: Paths, reward: np.ndarray, key: Key, prior: Prior | None = None
    ) -> float:
        """Stores what was played, and learns as many batches as are due. The mean of their losses.

        Args:
            reward: that is learned from, [n, A, T].
            key: of the batches.
        """
        self.stored.add(paths, reward)
        rng, losses, settings = rng_of(key), list[float](), self.settings
        for _ in range(settings.batches(paths)):
            drawn = self.stored.draw(rng, settings.batch)
            loss = settings.loss(self.values, self.following, drawn, prior)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            follow_network(self.following, self.values, settings.follow)
            losses.append(float(loss.detach()))
        return float(np.mean(losses))


def q_targets(
    reward_B: Tensor,
    over_B: Tensor,
    chooser_BK: Tensor,
    value_BK: Tensor,
    gamma: float | Tensor,
    legal_BK: Tensor | None = None,
) -> Tensor:
    """[B] r + gamma (1 - over) value(argmax chooser), the maximum over legal actions; gamma may be that
    of each transition [B], as of decisions that last several steps.
    """
    if legal_BK is not None:
        chooser_BK = chooser_BK.masked_fill(~legal_BK.bool(), LOGIT_OF_ILLEGAL)
    best_B = chooser_BK.argmax(1, keepdim=True)
    return reward_B + gamma * (1 - over_B) * value_BK.gather(1, best_B)[:, 0]


def pessimism(
    q_BK: Tensor,
    q_B: Tensor,
    legal_BK: Tensor | None = None,
    log_p_BK: Tensor | None = None,
) -> Tensor:
    """[B] log sum exp of the values of legal actions, each weighed by a prior where there is one, less
    the value of what was done.
    """
    if log_p_BK is not None:
        q_BK = q_BK + log_p_BK
    if legal_BK is not None:
        q_BK = q_BK.masked_fill(~legal_BK.bool(), LOGIT_OF_ILLEGAL)
    return torch.logsumexp(q_BK, 1) - q_B


@torch.no_grad()
def follow_network(following: nn.Module, leading: nn.Module, share: float) -> None:
    """Moves one network's weights towards another's by a share of the way."""
    for mine, other in zip(following.parameters(), leading.parameters(), strict=True):
        mine.lerp_(other, share)


class TransitionStore:
    """The last transitions of all agents."""

    def __init__(self, keep: int):
        self.keep, self.size, self.at = keep, 0, 0
        self.columns: dict[str, np.ndarray] = {}

    def add(self, paths: Paths, reward: np.ndarray) -> None:
        """The steps of games, with the rewards that are to be learned from [n, A, T]."""
        alive = np.broadcast_to(paths["alive"][:, None], reward.shape)
        over = np.broadcast_to(paths["over"][:, None], reward.shape)
        names = ("obs", "next_obs", "act", "legal", "next_legal", "discount")
        given = {k: paths[k] for k in names if k in paths} | {"reward": reward, "over": over}
        rows = {k: v[alive][-self.keep :] for k, v in given.items()}
        n = len(rows["reward"])
        if not self.columns:
            empty = lambda x: np.zeros((self.keep, *x.shape[1:]), kept_as(x.dtype))
            self.columns = {k: empty(v) for k, v in rows.items()}
        places = (self.at + np.arange(n)) % self.keep
        for name, values in rows.items():
            self.columns[name][places] = values
        self.at, self.size = (self.at + n) % self.keep, min(self.size + n, self.keep)

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        """`n` of them, each as likely as another, by name."""
        rows = rng.integers(self.size, size=n)
        return {k: v[rows] for k, v in self.columns.items()}


def kept_as(dtype: np.dtype) -> np.dtype:
    """Numbers are kept in 4 bytes."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype
