"""Group-relative learning of trades without a critic, with clip-higher and dynamic sampling.

n accounts, T days, G actions of a group, K stocks.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.market import (
    StockMarket,
    StockState,
    counterfactual_reward,
)

LEAST_STD = 1e-6  # of a group's rewards, in which something can be learned


def group_advantage(reward_NG: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A = (r - mean) / (std + 1e-8) in each group, with the population's std, and which groups are
    kept: those with std > 1e-6 (dynamic sampling, arXiv:2503.14476). A is 0 in the others.
    """
    N, G = reward_NG.shape
    std_N = pl.credit.group_std(reward_NG.ravel(), np.repeat(np.arange(N), G)).reshape(N, G)[:, 0]
    kept_N = std_N > LEAST_STD
    centred_NG = reward_NG - reward_NG.mean(1, keepdims=True)
    return centred_NG / (std_N[:, None] + 1e-8) * kept_N[:, None], kept_N


@pl.stage
class TradingGroups:
    """DAPO on states of a market: in each, `group` actions are sampled, the first one is executed, and
    A is relative to the group. Loss -mean min(rho A, clip(rho, 0.8, 1.28) A): no critic, no KL term, no
    discount. At most `passes` over a batch, which end where the KL divergence, estimated from its
    samples, is above 1.5 times `kl` (arXiv:2505.06408: lr 3e-5, 100 passes, kl 0.15, networks 512 wide).

    Every action is paid as the market pays it, on a fork of the account, which no other account sees.
    In a market that is `released` only the executed one is, and the others have sum_j a_j (p'_j / p_j - 1).
    """

    group: int = 10
    games: int = 16
    lr: float = 1e-3
    passes: int = 10
    kl: float = 0.15
    width: int = 64
    smallest: ClassVar[Mapping[str, float]] = {"group": 3, "games": 2, "passes": 2}

    def __post_init__(self) -> None:
        if self.group < 2 or min(self.games, self.passes, self.width) < 1:
            raise pl.UserError(
                "finrl-dapo: a group has 2 actions or more; games, passes and width 1"
            )

    @property
    def learner(self) -> pl.control.PPO:
        """One pass over a batch, without a critic and an entropy bonus."""
        return pl.control.PPO(
            objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens"),
            lr=self.lr,
            epochs=1,
            minibatches=1,
            width=self.width,
        )

    def learn(
        self, sim: StockMarket, steps: int, key: pl.Key, log: Callable[[dict[str, Any]], None]
    ) -> Any:
        """A policy after at least `steps` days that were traded, all games together."""
        learner = self.learner
        policy = learner.start(sim, key)
        optimiser = torch.optim.Adam(policy.actor.parameters(), self.lr, eps=1e-5)
        if policy.log_std is not None:
            optimiser.add_param_group({"params": [policy.log_std]})
        taken, i = 0, 0
        while taken < steps:
            batch, numbers = self.rollout(sim, policy, (*key, i))
            taken, i = taken + self.games * sim.horizon, i + 1
            passes, metrics = 0, dict[str, float]()
            while batch.n_tokens and passes < self.passes:
                metrics, passes = (
                    dict(learner.update(policy, optimiser, batch, (*key, i))),
                    passes + 1,
                )
                if metrics["kl_behaviour"] > 1.5 * self.kl:
                    break
            log({"step": i, "env_steps": taken, "passes": passes, **numbers, **metrics})
        return policy

    def rollout(
        self, sim: StockMarket, policy: Any, key: pl.Key
    ) -> tuple[pl.Batch, dict[str, float]]:
        """Games of the executed actions, with every sampled action as a row of its own."""
        rng, n, G = pl.rng_of((*key, "trade")), self.games, self.group
        state, paid = sim.reset(rng, n), np.zeros(n)
        kept: list[dict[str, np.ndarray]] = []
        for _ in range(sim.horizon):
            obs = np.repeat(sim.observe(state), G, 0)  # [n G, 1, O]
            done = policy.act(obs, None, rng)
            act = sim.actions.clip(done["act"])
            reward_nG = self.rewards(sim, state, act.reshape(n, G, 1, -1), rng)
            A_nG, kept_n = group_advantage(reward_nG)
            state, paid_nA, _ = sim.step(state, act.reshape(n, G, 1, -1)[:, 0], rng)
            paid = paid + paid_nA[:, 0]
            kept.append(
                {
                    "obs": obs[:, 0],
                    "act": done["act"][:, 0],
                    "behaviour_logp": done["logp"][:, 0],
                    "advantage": A_nG.ravel(),
                    "trained": np.repeat(kept_n, G).astype(float),
                }
            )
        columns = {
            name: torch.from_numpy(np.stack([x[name] for x in kept], 1)).float() for name in kept[0]
        }
        trained = columns["trained"]
        batch = pl.Batch(
            columns=columns,
            unit_B=torch.arange(n * G),
            n_tokens=int(trained.sum()),
            n_rows=n * G,
            n_units=n * G,
        )
        return batch, {"reward": float(paid.mean()), "dropped": 1.0 - float(trained.mean())}

    def rewards(
        self, sim: StockMarket, state: StockState, act_nG1K: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """[n, G] what the actions of a group are learned from."""
        n, G = act_nG1K.shape[:2]
        fork = StockState(
            path_n=np.repeat(state.path_n, G),
            day_n=np.repeat(state.day_n, G),
            cash_n=np.repeat(state.cash_n, G),
            shares_nK=np.repeat(state.shares_nK, G, 0),
            learned_n=np.repeat(state.learned_n, G),
            shaped_n=np.repeat(state.shaped_n, G),
        )
        act = act_nG1K.reshape(n * G, 1, -1)
        learned_nG = sim.step(fork, act, rng)[0].learned_n.reshape(n, G)
        if not sim.released:
            return learned_nG
        other = counterfactual_reward(act[:, 0], sim.prices(fork), sim.prices(fork, 1))
        other_nG = sim.shape(fork, act[:, 0], other).reshape(n, G)
        return np.concatenate([learned_nG[:, :1], other_nG[:, 1:]], 1)
