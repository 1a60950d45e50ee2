"""Guidance: what a language model makes of an instruction, how far a drive matches it, and a simulator
whose agent sees it.

n games, A agents, T steps, O numbers of an observation, G numbers of guidance.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, Field

import palaestra as pl
from palaestra.recipes.llm4rl.fast_slow_driving.lanes import CAREFUL_TTC, LEAST_TTC

STYLES = ("cautious", "normal", "aggressive")
# columns of guidance; lanes from 0, speeds in metres a second, times in steps
HAS_LANE, LANE, HAS_SPEED, SPEED, STYLE, NO_CHANGE, NO_FASTER, VALID, MENDED = range(9)
WIDTH = 9
SEEN = 7  # numbers of it that an agent sees
FOREVER = 1e6  # steps
SPAN = 10.0  # metres a second off the wanted speed from which on nothing matches
AVOIDS = 0.15
NEUTRAL = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
CHANGES, FASTER = (0, 2), 3  # of the five actions


@runtime_checkable
class DrivesLanes(Protocol):
    """What a simulator needs beside `pl.control.Simulator`: five actions (left, idle, right, faster,
    slower), lanes, a range of speeds, and words for the scene of each game.
    """

    @property
    def lanes(self) -> int: ...
    @property
    def speeds(self) -> tuple[float, float]: ...
    def lane_and_speed(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
    def scene(self, state: Any) -> list[str]: ...


def seconds_of_step(sim: Any) -> float:
    """How long a step lasts, a simulator's `step_seconds`; 1 where it has none."""
    seconds = float(getattr(sim, "step_seconds", 1.0))
    if not 0 < seconds < float("inf"):
        raise pl.UserError(f"fast-slow-driving: step_seconds is {seconds}; it is above 0")
    return seconds


@runtime_checkable
class MasksUnsafe(Protocol):
    """A simulator with a mask of what is not safe, and the same one without it."""

    @property
    def unmasked(self) -> pl.control.Simulator: ...
    def safe(self, state: Any, least_n: np.ndarray) -> np.ndarray:
        """[n, 5] legal actions, with `least_n` seconds to a collision for "faster"."""
        ...


class DrivingGuidance(BaseModel):
    """What a model says of an instruction; lanes from 1, null = the passenger does not care."""

    goal_lane: int | None = None
    target_speed: float | None = None
    style: Literal["cautious", "normal", "aggressive"] = "normal"
    avoid: list[Literal["lane_change", "faster"]] = Field(default_factory=list)
    valid_for_s: float = Field(default=60.0, gt=0)


def checked_guidance(
    guidance: DrivingGuidance, lanes: int, speeds: tuple[float, float], step_seconds: float = 1.0
) -> list[float]:
    """[G] the numbers of guidance. A lane that is not there is dropped, a speed is cut to the range of
    the simulator, and both are counted in MENDED; seconds become steps of `step_seconds`.
    """
    row = [0.0] * WIDTH
    if guidance.goal_lane is not None:
        if 1 <= guidance.goal_lane <= lanes:
            row[HAS_LANE], row[LANE] = 1.0, guidance.goal_lane - 1.0
        else:
            row[MENDED] += 1
    if guidance.target_speed is not None and np.isfinite(guidance.target_speed):
        row[HAS_SPEED], row[SPEED] = 1.0, float(np.clip(guidance.target_speed, *speeds))
        row[MENDED] += float(row[SPEED] != guidance.target_speed)
    row[STYLE] = float(STYLES.index(guidance.style) - 1)
    row[NO_CHANGE], row[NO_FASTER] = (float(x in guidance.avoid) for x in ("lane_change", "faster"))
    row[VALID] = float(min(guidance.valid_for_s / step_seconds, FOREVER))
    return row


def match(guidance: np.ndarray, lane: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """[...] how far a step is as wanted: the mean of clip(1 - |v - target| / 10, 0, 1) and of
    [lane is the goal's], of what is wanted; 0 where nothing is.

    Args:
        guidance: [..., G].
    """
    by_speed = np.clip(1 - np.abs(speed - guidance[..., SPEED]) / SPAN, 0, 1)
    by_lane = (lane == guidance[..., LANE]).astype(float)
    has_speed, has_lane = guidance[..., HAS_SPEED], guidance[..., HAS_LANE]
    wanted = has_speed + has_lane
    return (has_speed * by_speed + has_lane * by_lane) / np.maximum(wanted, 1)


def view_of(guidance: np.ndarray, lanes: int, speeds: tuple[float, float]) -> np.ndarray:
    """[..., SEEN] what an agent sees of guidance, each number about 0 to 1; 0 of none."""
    seen = guidance[..., :SEEN].astype(float)
    low, high = speeds
    seen[..., LANE] = guidance[..., LANE] / max(1, lanes - 1)
    seen[..., SPEED] = guidance[..., HAS_SPEED] * (guidance[..., SPEED] - low) / (high - low)
    return seen


def random_guidance(
    rng: np.random.Generator, n: int, lanes: int, speeds: tuple[float, float], horizon: int
) -> np.ndarray:
    """[n, G] for training: each wish with probability 0.7, any lane, speed and style; lane changes and
    going faster are to be avoided with probability 0.15 each.
    """
    rows = np.zeros((n, WIDTH))
    rows[:, HAS_LANE], rows[:, HAS_SPEED] = (rng.random((2, n)) < 0.7).astype(float)
    rows[:, LANE] = rng.integers(lanes, size=n) * rows[:, HAS_LANE]
    rows[:, SPEED] = rng.uniform(*speeds, n) * rows[:, HAS_SPEED]
    rows[:, STYLE] = rng.integers(-1, 2, n)
    rows[:, [NO_CHANGE, NO_FASTER]] = rng.random((n, 2)) < AVOIDS
    rows[:, VALID] = horizon
    return rows


@pl.value_class
class GuidedState:
    inner: Any
    guidance_nG: np.ndarray
    arrives_n: np.ndarray  # the step from which on guidance is there
    step: int


class GuidedDriving:
    """A simulator whose agent sees the guidance of its game behind its own observation. Before guidance
    arrives, and when it is no longer valid, that is neutral. Guidance only takes actions away; where
    none is left, the slowest stands.

    Args:
        given: [n, G] the guidance of each game; None = random guidance, for training.
        arrives: [n] the step at which it is there; None = drawn from 0 to `latency`.
        neutral: there is no guidance in any game.
    """

    def __init__(
        self,
        sim: pl.control.Simulator,
        given: np.ndarray | None = None,
        arrives: np.ndarray | None = None,
        latency: int = 0,
        neutral: bool = False,
    ):
        if not isinstance(sim, DrivesLanes) or sim.actions != 5:
            raise pl.UserError(
                "fast-slow-driving needs a simulator with the actions left, idle, right, faster, slower, and "
                "with lanes, speeds, lane_and_speed(obs) and scene(state); see DrivesLanes"
            )
        self.sim, self.road, self.given, self.arrives = sim, sim, given, arrives
        self.latency, self.neutral = latency, neutral
        self.agents, self.horizon, self.actions = sim.agents, sim.horizon, 5
        self.inner_observation = sim.observation
        self.observation = sim.observation + SEEN

    def reset(self, rng: np.random.Generator, n: int) -> GuidedState:
        inner = self.sim.reset(rng, n)
        drawn_n = rng.integers(self.latency + 1, size=n)
        arrives_n = drawn_n if self.arrives is None else self.arrives
        if self.neutral:
            rows = np.zeros((n, WIDTH))
        elif self.given is None:
            rows = random_guidance(rng, n, self.road.lanes, self.road.speeds, self.horizon)
        else:
            rows = self.given
        return GuidedState(inner=inner, guidance_nG=rows, arrives_n=arrives_n, step=0)

    def present(self, state: GuidedState) -> np.ndarray:
        """[n, G] the guidance that holds."""
        since_n = state.step - state.arrives_n
        holds_n = (since_n >= 0) & (since_n < state.guidance_nG[:, VALID])
        return np.where(holds_n[:, None], state.guidance_nG, 0.0)

    def observe(self, state: GuidedState) -> np.ndarray:
        obs = self.sim.observe(state.inner)
        seen = view_of(self.present(state), self.road.lanes, self.road.speeds)
        seen = np.broadcast_to(seen[:, None], (*obs.shape[:-1], SEEN))
        return np.concatenate([obs, seen], -1)

    def legal(self, state: GuidedState) -> np.ndarray:
        """[n, A, 5] what the simulator allows, less what guidance avoids."""
        obs, guidance = self.sim.observe(state.inner), self.present(state)
        given = self.sim.legal(state.inner)
        legal = np.ones((*obs.shape[:-1], 5), bool) if given is None else given.copy()
        if isinstance(self.sim, MasksUnsafe):
            careful_n = np.where(guidance[:, STYLE] < 0, CAREFUL_TTC, LEAST_TTC)
            legal &= self.sim.safe(state.inner, careful_n)[:, None]
        legal[..., CHANGES] &= (guidance[:, NO_CHANGE] == 0)[:, None, None]
        legal[..., FASTER] &= (guidance[:, NO_FASTER] == 0)[:, None]
        legal[..., 4] |= ~legal.any(-1)
        return legal

    def step(
        self, state: GuidedState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[GuidedState, np.ndarray, np.ndarray]:
        inner, reward, over = self.sim.step(state.inner, act_nA, rng)
        after = GuidedState(
            inner=inner,
            guidance_nG=state.guidance_nG,
            arrives_n=state.arrives_n,
            step=state.step + 1,
        )
        return after, reward, over

    def facts(self, state: GuidedState) -> Mapping[str, np.ndarray]:
        """[n, A] whether guidance holds, how far the step is as it says, and what the simulator tells."""
        inner = self.sim.facts(state.inner) if isinstance(self.sim, pl.control.TellsFacts) else {}
        obs = self.sim.observe(state.inner)
        guidance = self.present(state)
        lane, speed = self.road.lane_and_speed(obs)
        matches = match(guidance[:, None], lane, speed)
        holds = np.broadcast_to((guidance[:, VALID] > 0)[:, None], matches.shape).astype(float)
        return {**inner, "guidance_match": matches, "guidance_holds": holds}


def matched_reward(weight: float) -> pl.control.Shaping:
    """r + weight * match."""
    return lambda paths: (
        paths["reward"] + weight * paths["guidance_match"] * paths["alive"][:, None]
    )
