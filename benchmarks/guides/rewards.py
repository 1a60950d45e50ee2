"""The first study: rewards that a language model wrote, in eight simulators and five arms.

Each simulator has five drafts, unselected, and ten seeds; seed s has draft s modulo 5, in every arm.

    none       what the simulator pays
    guide      team_weight * (what is paid) + own_weight * (the written reward), as `lero` has it
    shuffled   the same, the written reward of each step that of another step
    potential  the same words as a potential phi: own_weight * (gamma phi(s') - phi(s)) in place of
               own_weight * phi(s'), with phi(s_0) = 0 as it is the same for all that may follow
    oracle     the steps that are left on a shortest way as a potential, where they are known (rooms,
               maze, phrases); of coverage the simulator with nothing hidden
    wrong 20   the guide with the sign of each of its expressions turned with probability 0.2
    wrong 50   the same with 0.5

Declared before a cell was run: of the returns of test games, as the simulator pays them, paired by seed, the words
help where the 95% interval of guide - none is above 0, harm where it is below, and else nothing is seen; they are
the reason where that of guide - shuffled is above 0 too. Every cell counts. Wrong guidance is declared of four
simulators.

n games, A agents, T steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.guides.simulators import LEFT, MAKE
from palaestra.control.language import Operation
from palaestra.recipes.llm4rl.lero.candidate import Candidate, CandidateWords, hybrid_reward
from palaestra.recipes.llm4rl.lero.program import CandidateSearch, EvolveGuidance
from palaestra.services.chat.structured import add_schema
from palaestra.services.chat.transcript import ReplyTranscript

FOLDER = Path(__file__).parent
WRITTEN = FOLDER / "written.jsonl"
DRAFTS, SEEDS, GAMES = 5, 10, 256
# the same in every arm; chosen on seed 9000 of the arm "none" alone, small enough that nothing is learned to its end
LEARNER = pl.control.PPO(games=32, epochs=6, minibatches=2, lr=3e-3, bootstrap=True)
FEWER = {"rooms": 16}  # games of an iteration, where these are short
STEPS = {
    "rooms": 4_000,
    "maze": 20_000,
    "phrases": 20_000,
    "lid": 20_000,
    "coverage": 10_000,
    "car": 16_000,
    "pendulum": 10_000,
    "drones": 6_000,
}
ARMS = ("none", "guide", "shuffled", "potential", "oracle")
WRONG = {"wrong 20": 0.2, "wrong 50": 0.5}
WITH_WRONG = ("rooms", "lid", "coverage", "pendulum")
FARTHEST = {"rooms": 12.0, "maze": 16.0, "phrases": 10.0}  # steps left, at most


def key_of(simulator: str, seed: int) -> pl.Key:
    return ("guides", simulator, seed)


@cache
def sample_of(simulator: str) -> pl.control.Paths:
    """Games of a fresh policy, on which drafts are checked."""
    sim, key = MAKE[simulator](), ("guides", simulator, "sample")
    return pl.control.play_games(sim, LEARNER.start(sim, key).act, 64, key)


@cache
def search_of(simulator: str) -> CandidateSearch:
    """The row's own search, for what drafts may read, their form, and the question."""
    sim, games = MAKE[simulator](), sample_of(simulator)
    step = pl.control.SimulatorWords.of(sim, games)
    words = CandidateWords(step=step, view=pl.control.ViewWords.of(sim, games))
    program = EvolveGuidance(sim=sim, parts="reward", writer="random")
    unused: Any = None  # nothing is searched, so nobody needs a run
    return CandidateSearch(program, unused, words, games, ("guides", simulator))


def draft_request(simulator: str, number: int) -> pl.ChatRequest:
    """The request that `lero` sends with parts=reward for its candidate of this number."""
    search = search_of(simulator)
    request = pl.ChatRequest(
        messages=pl.services.question_messages(search.question([])),
        temperature=1.0,
        seed=number,
        max_tokens=2048,
    )
    return add_schema(request, search.form)


@cache
def draft_of(simulator: str, number: int) -> Candidate:
    """A recorded draft. Raises Fault where there is none."""
    request = draft_request(simulator, number)
    reply = asyncio.run(ReplyTranscript(str(WRITTEN)).open().chat(request))
    return search_of(simulator).form.model_validate_json(reply.text)


def turned(candidate: Candidate, share: float, key: pl.Key) -> Candidate:
    """The candidate with the sign of each expression turned with a probability."""
    flips = pl.rng_of((*key, "turned", share)).random(len(candidate.reward)) < share
    reward = [
        Operation(op="neg", args=(e,)) if flip else e
        for e, flip in zip(candidate.reward, flips, strict=True)
    ]
    return candidate.model_copy(update={"reward": reward})


def as_potential(
    candidate: Candidate, words: pl.control.SimulatorWords, gamma: float
) -> pl.control.Shaping:
    """The written reward as a potential of the state after a step; 0 at the start and after the end."""

    def shaping(paths: pl.control.Paths) -> np.ndarray:
        columns = words.compute(paths)
        phi = pl.control.columns_of(candidate.reward, columns, words.declared).sum(-1)
        after = phi * ~paths["over"][:, None]
        before = np.concatenate([np.zeros_like(phi[..., :1]), phi[..., :-1]], -1)
        added = (gamma * after - before) * paths["alive"][:, None]
        team = paths["reward"].mean(1, keepdims=True)
        return candidate.team_weight * team + candidate.own_weight * added

    return shaping


def arms_of(simulator: str) -> list[str]:
    arms = [a for a in ARMS if a != "oracle" or simulator in LEFT or simulator == "coverage"]
    return arms + (list(WRONG) if simulator in WITH_WRONG else [])


def shaping_of(simulator: str, arm: str, seed: int, observation: int) -> pl.control.Shaping:
    key, gamma = key_of(simulator, seed), LEARNER.gamma
    if arm == "oracle" and simulator in LEFT:
        left, farthest = LEFT[simulator], FARTHEST[simulator]
        return pl.control.Potential(lambda obs: -left(obs) / farthest, gamma)
    if arm in ("none", "oracle"):
        return pl.control.as_paid
    candidate, step = draft_of(simulator, seed % DRAFTS), search_of(simulator).words.step
    if arm == "potential":
        return as_potential(candidate, step, gamma)
    if arm in WRONG:
        candidate = turned(candidate, WRONG[arm], key)
    mixed = (*key, "reward") if arm == "shuffled" else None
    return hybrid_reward(candidate, step, observation, mixed)


def run_cell(simulator: str, arm: str, seed: int) -> Mapping[str, Any]:
    """Trains one policy, and measures it on test games by what the simulator pays."""
    sim, key, lines = MAKE[simulator](), key_of(simulator, seed), list[Mapping[str, Any]]()
    if arm == "oracle" and isinstance(sim, pl.control.SeenWhole):
        sim = sim.whole
    shaping = shaping_of(simulator, arm, seed, sim.observation)
    learner = replace(LEARNER, games=FEWER.get(simulator, LEARNER.games))
    policy = asyncio.run(learner.learn(sim, STEPS[simulator], key, shaping, log=lines.append))
    numbers, _ = pl.control.measure_arm(sim, policy.act, shaping, GAMES, key)
    return {
        **numbers,
        "draft": seed % DRAFTS,
        "while_learning": float(np.mean([line["reward"] for line in lines])),
        "env_steps": int(lines[-1]["env_steps"]),
    }


def cells() -> list[tuple[int, tuple[str, str, int]]]:
    """All cells with their places in the queue: seed by seed, so that what is not finished is balanced.
    Potentials come later and wrong guidance after all others, and so does lid, of which the first seeds paid
    nothing in any arm.
    """
    later = {"potential": 3} | dict.fromkeys(WRONG, SEEDS)
    return [
        (seed + (SEEDS if simulator == "lid" else later.get(arm, 0)), (simulator, arm, seed))
        for seed in range(SEEDS)
        for simulator in MAKE
        for arm in arms_of(simulator)
    ]
