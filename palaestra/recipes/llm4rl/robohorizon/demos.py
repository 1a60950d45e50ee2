"""Demonstrations, their keyframes, and the key-horizons between these.

n demonstrations, T steps, O numbers of an observation, N stages.
"""

import json
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import palaestra as pl

STILL = 0.1  # of the largest speed of a demonstration, below which it counts as at rest
# observations [T + 1, O], actions, rewards [T], and whether the game ended with the last action
ShownGame: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, bool]


def keyframes(speed_T: np.ndarray, grip_T: np.ndarray | None = None) -> list[int]:
    """Steps at which a demonstration comes to rest, its grip as in the step before, with the first and
    the last one; of a rest of several steps the first.

    Args:
        speed_T: of the body, any unit.
        grip_T: the state of the gripper; None = there is none.
    """
    T = len(speed_T)
    rest = speed_T <= STILL * max(float(speed_T.max(initial=0.0)), 1e-9)
    if grip_T is not None:
        rest[1:] &= grip_T[1:] == grip_T[:-1]
    begins = [t for t in range(1, T) if rest[t] and not rest[t - 1]]
    return sorted({0, *begins, T - 1}) if T else []


def key_horizons(frames: list[int]) -> np.ndarray:
    """[T] the length of the segment between keyframes that each step is in; the last step is in the
    last segment.
    """
    if len(frames) < 2:
        return np.ones(len(frames), int)
    gaps = np.diff(frames)
    return np.concatenate([np.repeat(gaps, gaps), gaps[-1:]])


def segments_of(
    paths: pl.control.Paths, speed: np.ndarray | None = None, grip: np.ndarray | None = None
) -> list[tuple[int, int, int]]:
    """(game, first step, last step) of each key-horizon, from one keyframe to the next.

    Args:
        speed, grip: [n, T], see `keyframes`; without a speed that of the observation.
    """
    fast = observed_speed(paths) if speed is None else speed
    segments = list[tuple[int, int, int]]()
    for i, alive in enumerate(paths["alive"].sum(1)):
        frames = keyframes(fast[i, :alive], None if grip is None else grip[i, :alive])
        ends = frames[1:] or frames  # a game of one step is a segment
        segments += [(i, a, b) for a, b in zip(frames, ends, strict=False)]
    return segments


def observed_speed(paths: pl.control.Paths) -> np.ndarray:
    """[n, T] how far the observation moves in a step."""
    return np.linalg.norm(paths["next_obs"] - paths["obs"], axis=-1)[:, 0]


def horizons_by_stage(
    paths: pl.control.Paths,
    stage: np.ndarray,
    stages: int,
    most: int,
    speed: np.ndarray | None = None,
    grip: np.ndarray | None = None,
) -> np.ndarray:
    """[N + 1] the mean key-horizon of demonstrations in each stage and after the last, rounded, from 1 to
    `most`; `most` for a stage that no demonstration is in.

    Args:
        stage: [n, T] of each step, before it.
        speed, grip: [n, T], see `keyframes`; without a speed that of the observation.
    """
    total, count = np.zeros(stages + 1), np.zeros(stages + 1)
    fast: np.ndarray = observed_speed(paths) if speed is None else speed
    for i, alive in enumerate(paths["alive"].sum(1)):
        own = None if grip is None else grip[i, :alive]
        lengths = key_horizons(keyframes(fast[i, :alive], own))
        np.add.at(total, stage[i, :alive], lengths)
        np.add.at(count, stage[i, :alive], 1)
    mean = np.where(count > 0, total / np.maximum(count, 1), most)
    return np.clip(np.round(mean), 1, most).astype(int)


def read_demonstrations(file: str, sim: pl.control.Simulator) -> pl.control.Paths:
    """Demonstrations of a file, one a line: {"obs": [[...], ...], "act": [...], "reward": [...], "over":
    true}, the observations one more than the actions; rewards may be left out, and "over", whether the
    game ended with the last action. What is longer than the horizon is cut.

    Raises UserError for a file or a line that cannot be read, and for a simulator of several agents.
    """
    if sim.agents != 1:
        raise pl.UserError("demonstrations are of one agent, and this simulator has several")
    games = list[ShownGame]()
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"demos={file}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            games.append(read_game(f"{file}:{number}", line, sim))
    if not games:
        raise pl.UserError(f"demos={file} has no demonstration")
    return join_games(games)


def read_game(where: str, line: str, sim: pl.control.Simulator) -> ShownGame:
    """Observations [T + 1, O], actions [T] or [T, D], rewards [T] of a line, and whether it is over."""
    try:
        record: Any = json.loads(line)
        obs, act = np.array(record["obs"], float), np.array(record["act"], float)
        reward = np.array(record.get("reward") or np.zeros(len(act)), float)
        if not isinstance(over := record.get("over", False), bool):
            raise ValueError(f'"over" is true or false, not {over!r}')
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise pl.UserError(f'{where}: a line is {{"obs": [...], "act": [...]}}; {error}') from None
    size = sim.actions.size if isinstance(sim.actions, pl.control.Box) else None
    shape = (len(act),) if size is None else (len(act), size)
    if act.shape != shape or not len(act):
        raise pl.UserError(f"{where}: actions have the shape {act.shape}, not {shape}")
    if obs.shape != (len(act) + 1, sim.observation) or reward.shape != (len(act),):
        raise pl.UserError(
            f"{where}: observations have the shape {obs.shape}, not {(len(act) + 1, sim.observation)}, "
            f"or rewards {reward.shape}, not {(len(act),)}"
        )
    if not all(np.isfinite(x).all() for x in (obs, act, reward)):
        raise pl.UserError(f"{where}: a number is not finite")
    if isinstance(sim.actions, int):
        wrong = act[(act != np.round(act)) | (act < 0) | (act >= sim.actions)]
        if len(wrong):
            raise pl.UserError(
                f"{where}: {wrong[0]:g} is no action; they are whole numbers from 0 to {sim.actions - 1}"
            )
    T = sim.horizon
    return obs[: T + 1], act[:T], reward[:T], over and len(act) <= T


def join_games(games: list[ShownGame]) -> pl.control.Paths:
    """Paths of games of different lengths."""
    T = max(len(act) for _, act, _, _ in games)

    def pad(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.repeat(x[-1:], T - len(x), 0)])[None]

    alive = np.stack([np.arange(T) < len(act) for _, act, _, _ in games])
    over = np.stack([(np.arange(T) == len(act) - 1) & ended for _, act, _, ended in games])
    return {
        "obs": np.stack([pad(obs[:-1]) for obs, _, _, _ in games]),
        "next_obs": np.stack([pad(obs[1:]) for obs, _, _, _ in games]),
        "act": np.stack([pad(act) for _, act, _, _ in games]),
        "reward": np.stack([pad(reward) for _, _, reward, _ in games]) * alive[:, None],
        "alive": alive,
        "over": over,
    }
