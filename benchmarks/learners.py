"""`palaestra bench learners`: what the learners of `pl.control` reach on standard tasks of Gymnasium,
beside those of stable-baselines3 after as many environment steps.

Declared before a cell was run: three tasks a learner, five seeds; rates, discounts, widths, passes,
batches and updates a step are the same on both sides and were tuned on neither: they are those of
stable-baselines3's documentation and of its collection of settings (RL Baselines3 Zoo), narrower where
that saves an hour. A learner is *worse* where the 95% interval of its return less its peer's, over
seeds, is below 0, *better* where it is above, and else *alike*. `return` is that of 100 test games,
played greedily, the same ones for both. Learning is timed by what the process used. A cell is a task,
a seed and a side; those of a seed are done before the next seed's.

Changed after cells were seen: PPO had parts of one game at first, then advantages less their mean over eight
games at a time step and half the peer's weight of the value's error. Its own cells of before count for nothing;
docs/control.md has their numbers.

What differs: PPO here plays whole games, the peer rolls out so many steps; PPO here centres and scales
advantages over all steps of an iteration, the peer over each part; the
peer of double Q has one network choose and say what a choice is worth; SAC here learns between games, the peer
after every step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from palaestra.control.actor_critic import PPO
from palaestra.control.gym import GymSimulator
from palaestra.control.q import DoubleQ
from palaestra.control.simulators import Acting, play_games, returns_of
from palaestra.control.soft import SAC
from palaestra.objective.policy import Clipped
from palaestra.objective.terms import Entropy, ValueLoss
from palaestra.run.parts import Parts
from palaestra.stats import mean_interval

TESTS = 100  # games a measurement
VALUE, ENTROPY = 1.0, 0.01  # weights beside PPO's surrogate


@dataclass(frozen=True)
class Task:
    """An environment, its steps, a learner, and the peer's class with its settings."""

    env: str
    steps: int
    learner: PPO | DoubleQ | SAC
    peer: str
    settings: dict[str, Any]
    copies: int = 1

    @property
    def units(self) -> int:
        return self.learner.width


def ppo_on(env: str, steps: int, lr: float = 3e-4, gamma: float = 0.99) -> Task:
    """8 copies, 10 passes in parts of 64 steps: of a rollout of 256 steps a copy, or of 8 games.

    The peer weighs the squares of the value's errors by 0.5, `ValueLoss` is half of them: its weight is 1. As both sides
    clip the gradient of the two networks together, the weight counts though they share nothing.
    """
    objective = Clipped(reduce="tokens") + VALUE * ValueLoss(clip=0.0) + ENTROPY * Entropy()
    learner = PPO(objective, lr=lr, gamma=gamma, games=8, epochs=10, part_steps=64, bootstrap=True)
    settings = {"learning_rate": lr, "gamma": gamma, "gae_lambda": 0.95, "ent_coef": ENTROPY}
    settings |= {"vf_coef": VALUE / 2, "max_grad_norm": learner.max_norm, "clip_range": 0.2}
    settings |= {"n_steps": 256, "batch_size": 64, "n_epochs": 10}
    return Task(env, steps, learner, "PPO", settings, copies=8)


def double_q_on(env: str, steps: int, lr: float, gamma: float, explore: float, end: float) -> Task:
    """Half a batch for each step: the peer learns 8 after 16 steps. Its second network follows at every
    step, this one at every batch.
    """
    learner = DoubleQ(lr=lr, gamma=gamma, games=1, per_step=0.5, batch=64, follow=0.01, width=128)
    learner = replace(learner, explore_steps=explore, explore_end=end)
    settings = {"learning_rate": lr, "gamma": gamma, "batch_size": 64, "buffer_size": learner.keep}
    settings |= {"exploration_fraction": explore, "exploration_final_eps": end}
    settings |= {"learning_starts": 0, "train_freq": 16, "gradient_steps": 8}
    settings |= {"tau": 0.005, "target_update_interval": 1}
    return Task(env, steps, learner, "DQN", settings)


def sac_on(env: str, steps: int, lr: float) -> Task:
    settings = {"learning_rate": lr, "learning_starts": 1_000}
    return Task(env, steps, SAC(lr=lr, width=64), "SAC", settings)


TASKS = {
    "PPO, CartPole": ppo_on("CartPole-v1", 50_000),
    "PPO, Acrobot": ppo_on("Acrobot-v1", 80_000),
    "PPO, Pendulum": ppo_on("Pendulum-v1", 80_000, lr=1e-3, gamma=0.9),
    "double Q, CartPole": double_q_on("CartPole-v1", 40_000, 1e-3, 0.99, 0.16, 0.04),
    "double Q, Acrobot": double_q_on("Acrobot-v1", 40_000, 6.3e-4, 0.99, 0.12, 0.1),
    "double Q, MountainCar": double_q_on("MountainCar-v0", 80_000, 4e-3, 0.98, 0.2, 0.07),
    "SAC, Pendulum": sac_on("Pendulum-v1", 6_000, 1e-3),
    # two tasks of the wheel `mujoco`, as classic control has no third one with continuous actions
    # that SAC learns without noise of its own kind
    "SAC, InvertedPendulum": sac_on("InvertedPendulum-v5", 8_000, 3e-4),
    "SAC, Reacher": sac_on("Reacher-v5", 8_000, 1e-3),
}
SIDES = ("ours", "peer")


def measure(repeats: int, parts: Parts) -> dict[str, Any]:
    """The return and the speed of both, seed by seed."""
    parts.expect(repeats * len(TASKS) * len(SIDES))
    cells = {
        (name, seed, who): parts.keep(
            cell_name(name, seed, who), lambda t=task, w=who, s=seed: timed(t, LEARN[w], s)
        )
        for seed in range(repeats)
        for name, task in TASKS.items()
        for who in SIDES
    }
    found = {
        name: [{who: cells[name, seed, who] for who in SIDES} for seed in range(repeats)]
        for name in TASKS
    }
    return {"test_games": TESTS, "tasks": {n: summary(TASKS[n], rows) for n, rows in found.items()}}


def cell_name(task: str, seed: int, who: str) -> str:
    return f"{task}, seed {seed}, {who}"


def summary(task: Task, rows: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The means over seeds with their 95% intervals, and that of the differences."""
    of = lambda who, what: [r[who][what] for r in rows]
    gaps = np.subtract(of("ours", "return"), of("peer", "return")).tolist()
    return {
        "environment": task.env,
        "steps": task.steps,
        "settings": task.settings | {"copies": task.copies, "units": task.units},
        "returns": {who: of(who, "return") for who in SIDES},
        "return": {who: mean_interval(of(who, "return")).json() for who in SIDES},
        "difference": mean_interval(gaps).json(),
        "steps_a_processor_second": {
            who: float(np.median(of(who, "steps_a_second"))) for who in SIDES
        },
    }


def format_interval(x: Mapping[str, Any]) -> str:
    """ "-85.2 (-90.1 to -80.3)" """
    return f"{x['mean']:.4g}" + (
        f" ({x['low']:.4g} to {x['high']:.4g})" if x["high"] is not None else ""
    )


def show(result: dict[str, Any]) -> str:
    lines = [f"{'mean return of test games':<22}{'palaestra':>26}{'stable-baselines3':>28}"]
    for name, x in result["tasks"].items():
        ours, peer = (format_interval(x["return"][who]) for who in SIDES)
        lines.append(
            f"{name:<22}{ours:>26}{peer:>28}  difference {format_interval(x['difference'])}"
        )
    lines.append("environment steps a processor second")
    for name, x in result["tasks"].items():
        ours, peer = (x["steps_a_processor_second"][who] for who in SIDES)
        lines.append(f"{name:<22}{ours:>26,.0f}{peer:>28,.0f}")
    return "\n".join(lines)


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


LEARN: dict[str, Callable[[Task, int], tuple[Acting, int]]] = {
    "ours": learn_ours,
    "peer": learn_peer,
}
