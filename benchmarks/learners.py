"""`palaestra bench learners`: what the learners of `pl.control` reach on standard tasks of Gymnasium,
beside those of stable-baselines3 after as many environment steps.

Both have the same rates, discounts, widths, passes and batches, chosen for neither: those that the
documentation of stable-baselines3 names as its defaults, but for the copies of the environment. A round
is a seed. `return` is that of test games, played greedily. Learning is timed by what the process used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.control.actor_critic import PPO
from palaestra.control.gym import GymSimulator
from palaestra.control.q import DoubleQ
from palaestra.control.simulators import Acting, play_games, returns_of
from palaestra.control.soft import SAC
from palaestra.run.parts import Parts
from palaestra.stats import mean_interval

TESTS = 100  # games a measurement
PPO_RATES = {"learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95}


@dataclass(frozen=True)
class Task:
    """An environment, its steps, a learner, and the peer's class with its settings."""

    env: str
    steps: int
    learner: PPO | DoubleQ | SAC
    peer: str
    settings: dict[str, Any]
    copies: int = 1
    units: int = 64


def ppo_on(env: str, steps: int, games: int, rollout: int) -> Task:
    """As many copies, passes and parts; a rollout of the peer is as long as games may be."""
    learner = PPO(lr=3e-4, games=games, epochs=10, minibatches=32, width=64, bootstrap=True)
    batch = games * rollout // 32
    settings = {"n_steps": rollout, "batch_size": batch, "n_epochs": 10, "ent_coef": 0.01}
    return Task(env, steps, learner, "PPO", PPO_RATES | settings, games)


TASKS = {
    "PPO, CartPole": ppo_on("CartPole-v1", 60_000, 8, 256),
    "PPO, Acrobot": ppo_on("Acrobot-v1", 100_000, 8, 256),
    "double Q, CartPole": Task(
        "CartPole-v1",
        50_000,
        # the peer's second network follows at every step, this one at every batch
        DoubleQ(
            lr=1e-3,
            gamma=0.99,
            games=1,
            per_step=0.5,
            batch=64,
            follow=0.01,
            explore_steps=0.16,
            explore_end=0.04,
        ),
        "DQN",
        {"learning_rate": 1e-3, "gamma": 0.99, "batch_size": 64, "buffer_size": 50_000}
        | {"exploration_fraction": 0.16, "exploration_final_eps": 0.04, "learning_starts": 0}
        | {"train_freq": 256, "gradient_steps": 128, "tau": 0.005, "target_update_interval": 1},
        units=128,
    ),
    "SAC, Pendulum": Task(
        "Pendulum-v1",
        6_000,
        SAC(lr=1e-3),
        "SAC",
        {"learning_rate": 1e-3, "learning_starts": 1_000},
        units=256,
    ),
}


def measure(repeats: int, parts: Parts) -> dict[str, Any]:
    """The return and the speed of both, seed by seed."""
    parts.expect(repeats * len(TASKS))
    found = {
        name: [
            parts.keep(f"{name}, seed {seed}", lambda t=task, s=seed: one_seed(t, s))
            for seed in range(repeats)
        ]
        for name, task in TASKS.items()
    }
    return {"test_games": TESTS, "tasks": {n: summary(TASKS[n], rows) for n, rows in found.items()}}


def summary(task: Task, rows: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The means over seeds with their 95% intervals, and that of the differences."""
    of = lambda who, what: [r[who][what] for r in rows]
    gaps = np.subtract(of("ours", "return"), of("peer", "return")).tolist()
    return {
        "environment": task.env,
        "steps": task.steps,
        "returns": {who: of(who, "return") for who in ("ours", "peer")},
        "return": {who: mean_interval(of(who, "return")) for who in ("ours", "peer")},
        "difference": mean_interval(gaps),
        "steps_a_processor_second": {
            who: float(np.median(of(who, "steps_a_second"))) for who in ("ours", "peer")
        },
    }


def show(result: dict[str, Any]) -> str:
    lines = [f"{'mean return of test games':<22}{'palaestra':>26}{'stable-baselines3':>28}"]
    spell = lambda i: f"{i[1]:.0f} ({i[0]:.0f} to {i[2]:.0f})"
    for name, x in result["tasks"].items():
        ours, peer = (spell(x["return"][who]) for who in ("ours", "peer"))
        lines.append(f"{name:<22}{ours:>26}{peer:>28}  difference {spell(x['difference'])}")
    lines.append("environment steps a processor second")
    for name, x in result["tasks"].items():
        ours, peer = (x["steps_a_processor_second"][who] for who in ("ours", "peer"))
        lines.append(f"{name:<22}{ours:>26,.0f}{peer:>28,.0f}")
    return "\n".join(lines)


def one_seed(task: Task, seed: int) -> dict[str, dict[str, float]]:
    return {"ours": timed(task, learn_ours, seed), "peer": timed(task, learn_peer, seed)}


def timed(
    task: Task, learn: Callable[[Task, int], tuple[Acting, int]], seed: int
) -> dict[str, float]:
    """What a learner reaches in test games, the same ones for both."""
    begin = time.process_time()
    act, steps = learn(task, seed)
    seconds = time.process_time() - begin
    sim = GymSimulator(task.env)
    paid = returns_of(play_games(sim, act, TESTS, ("bench", "test", seed)))
    sim.close()
    return {"return": float(paid.mean()), "steps_a_second": steps / seconds, "steps": float(steps)}


def learn_ours(task: Task, seed: int) -> tuple[Acting, int]:
    sim, done = GymSimulator(task.env), list[int]()
    log = lambda m: done.append(m["env_steps"])
    policy: Any = asyncio.run(task.learner.learn(sim, task.steps, ("bench", seed), log=log))
    sim.close()
    if isinstance(task.learner, DoubleQ):
        return task.learner.acting(policy), done[-1]
    return lambda obs, legal, rng: policy.act(obs, legal, rng, greedy=True), done[-1]


def learn_peer(task: Task, seed: int) -> tuple[Acting, int]:
    import stable_baselines3 as peers  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.env_util import (  # pyright: ignore[reportMissingImports]
        make_vec_env,
    )

    env = make_vec_env(task.env, n_envs=task.copies, seed=seed)
    width = {"net_arch": [task.units, task.units]}
    kind: Any = getattr(peers, task.peer)
    peer = kind("MlpPolicy", env, policy_kwargs=width, seed=seed, device="cpu", **task.settings)
    peer.learn(task.steps)
    env.close()

    def act(obs: np.ndarray, legal: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
        chosen, _ = peer.predict(obs[:, 0].astype(np.float32), deterministic=True)
        return {"act": chosen[:, None]}

    return act, int(peer.num_timesteps)
