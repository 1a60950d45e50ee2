"""A candidate of the search: a hybrid reward and features of an agent's observation, as expressions.

n games, A agents, T steps, O numbers of an observation, F features.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, Field, create_model

import palaestra as pl

Parts = Literal["both", "reward", "features", "none"]
MOST_TERMS, MOST_FEATURES = 6, 16
FILE = "candidate.json"  # beside the policy


class Candidate(BaseModel):
    """What a language model writes: R_i = team_weight * R_team + own_weight * sum of `reward`, and
    the `features` that an agent sees beside its observation.
    """

    team_weight: float = Field(default=0.5, ge=0.0, le=1.0)
    own_weight: float = Field(default=0.5, ge=0.0, le=1.0)
    reward: list[pl.control.Expression] = []
    features: list[pl.control.Expression] = []


@pl.value_class
class CandidateWords:
    """What may be read: a step's quantities by rewards, an observation's by features."""

    step: pl.control.SimulatorWords
    view: pl.control.ViewWords

    def form(self, games: pl.control.Paths, parts: Parts) -> type[Candidate]:
        """The model of candidates without fault, checked on games; a part that is not wanted is
        empty.
        """
        nothing = (list[pl.control.Expression], Field([], max_length=0))
        columns, seen = self.step.compute(games), self.view.compute(games["obs"])
        rewards = pl.control.checked_list(self.step.declared, columns, most=MOST_TERMS)
        features = pl.control.checked_list(self.view.visible, seen, most=MOST_FEATURES)
        return create_model(
            "Candidate",
            __base__=Candidate,
            reward=rewards if parts in ("both", "reward") else nothing,
            features=features if parts in ("both", "features") else nothing,
        )


class EnhancedSimulator:
    """A simulator whose agents see features of their own observation behind it. They are computed
    from the observation alone, so they know nothing that the agent does not see.

    `shuffled`: an agent sees the features of another game, its control.
    """

    def __init__(
        self,
        sim: pl.control.Simulator,
        candidate: Candidate,
        view: pl.control.ViewWords,
        shuffled: bool = False,
    ):
        self.sim, self.candidate, self.view_words, self.shuffled = sim, candidate, view, shuffled
        self.agents, self.horizon, self.actions = sim.agents, sim.horizon, sim.actions
        self.observation = sim.observation + len(candidate.features)

    def features(self, obs: np.ndarray) -> np.ndarray:
        """[..., F] of observations [..., O]."""
        if not self.candidate.features:
            return np.zeros((*obs.shape[:-1], 0))
        columns = self.view_words.compute(obs)
        return pl.control.columns_of(self.candidate.features, columns, self.view_words.visible)

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        return self.sim.reset(rng, n)

    def observe(self, state: Any) -> np.ndarray:
        obs = self.sim.observe(state)
        features = self.features(obs)
        return np.concatenate([obs, np.roll(features, 1, 0) if self.shuffled else features], -1)

    def legal(self, state: Any) -> np.ndarray | None:
        return self.sim.legal(state)

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        return self.sim.step(state, act_nA, rng)

    def facts(self, state: Any) -> Mapping[str, np.ndarray]:
        return self.sim.facts(state) if isinstance(self.sim, pl.control.TellsFacts) else {}


def hybrid_reward(
    candidate: Candidate, words: pl.control.SimulatorWords, observation: int, key: pl.Key | None
) -> pl.control.Shaping:
    """R_i = team_weight * R_team + own_weight * sum_k r_k, R_team the mean of what the agents were
    paid in the step; what was paid where the candidate has no reward.

    Args:
        observation: numbers of an observation, behind which features may stand.
        key: gives every step the sum of another step of the same games, of those in which they were
            not over; None = its own.
    """
    if not candidate.reward:
        return pl.control.as_paid
    rng = None if key is None else pl.rng_of((*key, "shuffled"))

    def shaping(paths: pl.control.Paths) -> np.ndarray:
        seen = {k: paths[k][..., :observation] for k in ("obs", "next_obs")}
        columns = words.compute({**paths, **seen})
        own = pl.control.columns_of(candidate.reward, columns, words.declared).sum(-1)
        if rng is not None:
            alive = np.broadcast_to(paths["alive"][:, None], own.shape)
            if alive.sum() > 1:
                own[alive] = pl.control.shuffle_rows(own[alive][:, None], rng)[:, 0]
        team = paths["reward"].mean(1, keepdims=True)
        return candidate.team_weight * team + candidate.own_weight * own

    return shaping


def save_candidate(candidate: Candidate, words: CandidateWords, folder: Path) -> None:
    """Writes candidate.json: the candidate with the bounds that its quantities are clipped to."""
    bounds = lambda qs: {n: [q.low, q.high, q.about] for n, q in qs.items()}
    record = {
        **candidate.model_dump(),
        "declared": bounds(words.step.declared),
        "visible": bounds(words.view.visible),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps(record, indent=1) + "\n")


def load_enhanced(sim: pl.control.Simulator, folder: Path | str) -> EnhancedSimulator:
    """The simulator as a saved policy saw it. Raises UserError for a folder without a candidate."""
    try:
        record = json.loads((Path(folder) / FILE).read_text())
        candidate = Candidate.model_validate({k: record[k] for k in Candidate.model_fields})
        visible = {
            name: pl.control.Quantity(low=low, high=high, about=about)
            for name, (low, high, about) in record["visible"].items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pl.UserError(f"{folder} holds no candidate of lero: {error}") from None
    compute = pl.control.ViewWords.of(sim, {"obs": np.zeros((1, 1, sim.observation))}).compute
    return EnhancedSimulator(sim, candidate, pl.control.ViewWords(visible=visible, compute=compute))


# ---- candidates without a model


def random_candidate(
    words: CandidateWords, form: type[Candidate], parts: Parts, rng: np.random.Generator
) -> Candidate:
    """A candidate of the same language that nobody thought about: what fills the place of one that
    a model cannot write, and what a search by a model is compared with.

    Raises UserError where 100 in a row have a fault, as in a simulator that never changes.
    """
    for _ in range(100):
        reward = [random_term(list(words.step.declared), rng) for _ in range(rng.integers(1, 4))]
        seen = list(words.view.visible)
        features = [random_pair(seen, rng) for _ in range(rng.integers(1, 9))]
        try:
            return form.model_validate(
                {
                    "reward": reward if parts in ("both", "reward") else [],
                    "features": features if parts in ("both", "features") else [],
                }
            )
        except ValueError:
            continue
    raise pl.UserError("no random expression over this simulator's quantities varies in its games")


def random_term(names: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Plus or minus a quantity, its size, or how near it is to 0."""
    name = str(rng.choice(names))
    shapes: list[Callable[[str], Any]] = [
        lambda x: x,
        lambda x: {"op": "abs", "args": [x]},
        lambda x: {"op": "exp", "args": [{"op": "neg", "args": [{"op": "abs", "args": [x]}]}]},
    ]
    value = shapes[rng.integers(len(shapes))](name)
    sign = 1.0 if rng.random() < 0.5 else -1.0
    return {"op": "multiply", "args": [sign, value]}


def random_pair(names: list[str], rng: np.random.Generator) -> dict[str, Any]:
    """Two quantities, compared or joined."""
    one, other = map(str, rng.choice(names, 2))
    op = str(rng.choice(["less", "multiply", "minimum", "maximum", "subtract"]))
    return {"op": op, "args": [one, other]}
