"""Games that somebody else played: what offline learning learns from."""

from pathlib import Path

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.cache_posterior.grid import PhraseGrid

BEST = 0.3  # share of best actions in the games of the built-in problem, the others are random
COLUMNS = ("obs", "act", "reward", "next_obs", "over")


def record_games(
    sim: pl.control.Simulator, steps: int, games: int, key: pl.Key, best: float = 0.0
) -> tuple[pl.control.Paths, ...]:
    """Rounds of games of random legal actions; `best` is the share of the best ones, in the built-in
    problem.
    """

    def act(
        obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        shape = (*obs.shape[:-1], int(np.asarray(sim.actions)))
        score = rng.random(shape)
        if legal is not None:
            score = np.where(legal, score, -1.0)
        if best and isinstance(sim, PhraseGrid):
            good = rng.random(shape[:-1]) < best
            score = score + good[..., None] * sim.best_actions(obs)
        return {"act": score.argmax(-1)}

    rounds, taken = list[pl.control.Paths](), 0
    while taken < steps:
        rounds.append(pl.control.play_games(sim, act, games, (*key, "record", len(rounds))))
        taken += int(rounds[-1]["alive"].sum())
    return tuple(rounds)


def read_transitions(
    file: str, sim: pl.control.Simulator, batch: int
) -> tuple[pl.control.Paths, ...]:
    """Rounds of `batch` transitions each, of a file of numpy, FILE.npz: obs and next_obs [N, O], act
    and reward [N], over [N] (0 where a time limit cut the game).

    Raises UserError for a file that has something else.
    """
    try:
        with np.load(Path(file), allow_pickle=False) as given:
            columns = {k: np.asarray(given[k], float) for k in COLUMNS}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise pl.UserError(
            f"offline={file}: {error}; it is a file of numpy.savez with {', '.join(COLUMNS)}"
        ) from None
    N, O, K = len(columns["obs"]), sim.observation, int(np.asarray(sim.actions))
    shapes = {"obs": (N, O), "next_obs": (N, O), "act": (N,), "reward": (N,), "over": (N,)}
    wrong = [f"{k} {columns[k].shape}" for k, shape in shapes.items() if columns[k].shape != shape]
    if wrong or not N:
        raise pl.UserError(f"offline={file}: {', '.join(wrong) or 'no rows'}; obs is [N, {O}]")
    for name in ("obs", "next_obs", "act", "reward", "over"):
        finite_N = np.isfinite(columns[name].reshape(N, -1)).all(1)
        if not finite_N.all():
            raise pl.UserError(
                f"offline={file}: {name} of row {finite_N.argmin()} is no finite number"
            )
    act = columns["act"].astype(int)
    if (act != columns["act"]).any() or act.min() < 0 or act.max() >= K:
        raise pl.UserError(f"offline={file}: act is a whole number, 0 to {K - 1}")
    columns |= {"act": act, "over": columns["over"].astype(bool)}
    rounds = list[pl.control.Paths]()
    for at in range(0, N, batch):
        part = {k: v[at : at + batch] for k, v in columns.items()}
        paths = {k: part[k][:, None, None] for k in ("obs", "next_obs", "act", "reward")}
        over = part["over"][:, None]
        rounds.append({**paths, "over": over, "alive": np.ones_like(over)})
    return tuple(rounds)
