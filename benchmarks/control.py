"""`palaestra bench control`: environment steps that PPO plays and learns from in a second of the
processor, beside stable-baselines3 on the same environment.

Pendulum, whose games all last as long, gives both the same work: as many copies of the library's
environment, stepped one by one, and as many updates of networks of one size. Rooms and SimpleSpread in arrays, with
the default learner and with networks half as wide, have no peer there: an environment that is stepped
alone is another program, and stable-baselines3 has one agent an environment. What the process and its
threads used counts, not the clock, so that another load on the machine falls out of the ratio. A first
round does not count: it imports, which the first update of torch's Adam does for seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from palaestra.control.actor_critic import PPO
from palaestra.control.gym import GymSimulator
from palaestra.control.rooms import Rooms
from palaestra.control.simulators import Simulator, play_games
from palaestra.control.spread import SimpleSpread
from palaestra.run.machine import format_spread, spread
from palaestra.run.parts import Parts

STEPS = 32_000  # environment steps of a measurement
ENV, COPIES, ROLLOUT = "Pendulum-v1", 16, 200  # of both; the last is the length of a game
EPOCHS, PARTS, WIDTH = 4, 4, 64


def measure(repeats: int, parts: Parts) -> dict[str, Any]:
    """Steps a second of each sort, those of each round one after the other."""
    parts.expect(repeats)
    rounds = parts.rounds("round", repeats)
    for _ in rounds:
        seed = len(rounds.found)  # that of the warming round is the first one's too
        rounds.put({name: steps_a_second(do, seed) for name, do in SORTS.items()})
    rate = {name: np.array([r[name] for r in rounds.found]) for name in SORTS}
    return {
        "environment_steps": STEPS,
        "per_processor_second": {name: spread(r) for name, r in rate.items()},
        "over_peer": spread(rate["Pendulum"] / rate["Pendulum, stable-baselines3"]),
    }


def show(result: dict[str, Any]) -> str:
    lines = [f"{'environment steps a processor second':<40}median (lowest to highest)"]
    lines += [f"{n:<40}{format_spread(x)}" for n, x in result["per_processor_second"].items()]
    return "\n".join(
        [*lines, f"{'Pendulum over its peer':<40}{format_spread(result['over_peer'])}"]
    )


def steps_a_second(do: Callable[[int], int], seed: int) -> float:
    begin = time.process_time()
    steps = do(seed)
    return steps / (time.process_time() - begin)


def learn_steps(sim: Simulator, seed: int, games: int, width: int = WIDTH) -> int:
    """PPO; returns the steps that were played."""
    steps_done: list[int] = []
    learner = PPO(games=games, epochs=EPOCHS, minibatches=PARTS, width=width, bootstrap=True)
    log = lambda m: steps_done.append(m["env_steps"])
    asyncio.run(learner.learn(sim, STEPS, ("bench", seed), log=log))
    return steps_done[-1]


def learn_pendulum(seed: int) -> int:
    sim = GymSimulator(ENV)
    steps = learn_steps(sim, seed, COPIES)
    sim.close()
    return steps


def learn_array(sim: Simulator, width: int = WIDTH) -> Callable[[int], int]:
    return lambda seed: learn_steps(sim, seed, PPO().games, width)


def play_spread(seed: int) -> int:
    """Games without a learner, by even actions."""
    sim = SimpleSpread()
    n = STEPS // sim.horizon
    act = lambda obs, legal, rng: {"act": rng.integers(sim.actions, size=obs.shape[:-1])}
    return int(play_games(sim, act, n, ("bench", seed))["alive"].sum())


def learn_peer(seed: int) -> int:
    """stable-baselines3 with as many copies, passes, parts and units."""
    from stable_baselines3 import PPO as PeerPPO  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.env_util import (  # pyright: ignore[reportMissingImports]
        make_vec_env,
    )

    env = make_vec_env(ENV, n_envs=COPIES, seed=seed)
    peer = PeerPPO(
        "MlpPolicy",
        env,
        n_steps=ROLLOUT,
        batch_size=COPIES * ROLLOUT // PARTS,
        n_epochs=EPOCHS,
        policy_kwargs={"net_arch": [WIDTH, WIDTH]},
        seed=seed,
        device="cpu",
    )
    peer.learn(STEPS)
    env.close()
    return int(peer.num_timesteps)


SORTS: dict[str, Callable[[int], int]] = {
    "Pendulum": learn_pendulum,
    "Pendulum, stable-baselines3": learn_peer,
    "Rooms": learn_array(Rooms()),
    "Rooms, width 32": learn_array(Rooms(), 32),
    "spread": learn_array(SimpleSpread()),
    "spread, width 32": learn_array(SimpleSpread(), 32),
    "spread, no learner": play_spread,
}
