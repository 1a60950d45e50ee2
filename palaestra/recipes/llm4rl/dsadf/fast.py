"""System 1: one policy for all goals, by double Q learning with demonstrations of System 2.

n games, B transitions, K actions, W words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.errands import ErrandBook
from palaestra.recipes.llm4rl.dsadf.familiar import SeenViews, Strange

MARGIN = 0.1  # by which what System 2 did is to be the best, in units of a reached goal
DEMOS = 20_000  # steps that are kept
Demos = Mapping[str, np.ndarray]


def clone_loss(q_BK: torch.Tensor, act_B: torch.Tensor, margin: float = MARGIN) -> torch.Tensor:
    """[B] max_a [Q(s, a) + margin (a is not the demonstrated one)] - Q(s, a_E), the supervised term of
    deep Q learning from demonstrations (arXiv:1704.03732): of values 1, 0.5 with the second demonstrated
    and margin 0.1 it is 0.6, with the first one 0.
    """
    added = torch.full_like(q_BK, margin).scatter(1, act_B[:, None], 0.0)
    return (q_BK + added).amax(1) - q_BK.gather(1, act_B[:, None])[:, 0]


class FastSystem:
    """Values of actions for an observation with the code of a goal behind it. A goal that is reached pays
    1 and ends; of every step each trained goal learns, whoever took it and on the way to whatever.
    """

    def __init__(
        self,
        sim: pl.control.Simulator,
        book: ErrandBook,
        settings: pl.control.DoubleQ,
        timeout: int,
        key: pl.Key,
    ):
        self.sim, self.book, self.settings, self.timeout = sim, book, settings, timeout
        spaces = pl.control.OptionSpaces(
            observation=sim.observation + book.code_KW.shape[1], actions=_countable(sim)
        )
        self.learner = settings.learner(spaces, (*key, "fast"))
        self.demos: dict[str, np.ndarray] = {}
        self.seen: SeenViews | None = (
            None  # what it was trained on; None = nothing counts as strange
        )
        self.updates = 0  # batches

    def options(self, epsilon: float, strange: Strange | None = None) -> list[pl.control.Option]:
        """An option for each goal, which also ends where an observation is `strange`."""
        act = self.settings.acting(self.learner.values, epsilon)

        def ends(k: int, obs: np.ndarray) -> np.ndarray:
            held = self.book.holds(obs[:, 0])[:, k]
            return held if strange is None else held | strange(obs[:, 0])

        return [
            pl.control.Option(
                name=name,
                act=act,
                timeout=self.timeout,
                reached=lambda obs, k=k: ends(k, obs),
                goal=tuple(self.book.code_KW[k]),
            )
            for k, name in enumerate(self.book.names)
        ]

    def whole(self, text: str) -> pl.control.Option:
        """An option that is told a whole errand as its goal, and lasts as long as a game."""
        act = self.settings.acting(self.learner.values)
        goal = tuple(self.book.encode(text))
        return pl.control.Option(name=text, act=act, timeout=self.sim.horizon, goal=goal)

    def learn(self, games: pl.control.OptionGames, clone: float, key: pl.Key) -> dict[str, float]:
        """Stores what was played, for every trained goal, and learns from it and from demonstrations.

        Args:
            clone: weight of the demonstrations' term.
        """
        paths = goal_paths(games, self.book)
        store, settings, learner = self.learner.stored, self.settings, self.learner
        if paths["alive"].any():
            store.add(paths, paths["reward"])
        if not store.size:
            return {"loss": 0.0, "cloned": 0.0}
        rng, losses, cloned = pl.rng_of(key), list[float](), list[float]()
        for _ in range(settings.batches(games.paths())):
            drawn = store.draw(rng, settings.batch)
            loss = settings.loss(learner.values, learner.following, drawn)
            losses.append(float(loss.detach()))
            if clone and self.demos:
                term = self._clone(rng)
                cloned.append(float(term.detach()))
                loss = loss + clone * term
            learner.optimiser.zero_grad()
            loss.backward()
            learner.optimiser.step()
            pl.control.follow_network(learner.following, learner.values, settings.follow)
            self.updates += 1
        mean = lambda x: float(np.mean(x)) if x else 0.0
        return {"loss": mean(losses), "cloned": mean(cloned)}

    def _clone(self, rng: np.random.Generator) -> torch.Tensor:
        rows = rng.integers(len(self.demos["act"]), size=self.settings.batch)
        obs = torch.from_numpy(self.demos["obs"][rows]).float()
        q_BK = self.learner.values(obs)
        if "legal" in self.demos:
            q_BK = q_BK.masked_fill(~torch.from_numpy(self.demos["legal"][rows]), -1e9)
        return clone_loss(q_BK, torch.from_numpy(self.demos["act"][rows])).mean()

    def keep(self, paths: pl.control.Paths, ways: Sequence[tuple[int, int, int, int]]) -> int:
        """Stores ways of System 2 that reached their goal: game, first step, the step after the last, and
        goal. How many steps that were.
        """
        steps: list[dict[str, Any]] = []
        for game, first, end, goal in ways:
            obs = paths["obs"][game, 0, first:end]
            if self.seen is not None:
                self.seen.add(obs)
            code = np.repeat(self.book.code_KW[goal][None], len(obs), 0)
            own = {"obs": np.concatenate([obs, code], -1), "act": paths["act"][game, 0, first:end]}
            if "legal" in paths:
                own["legal"] = paths["legal"][game, 0, first:end]
            steps.append(own)
        if not steps:
            return 0
        for name in steps[0]:
            more = [s[name] for s in steps]
            before = [self.demos[name]] if self.demos and name in self.demos else []
            self.demos[name] = np.concatenate([*before, *more])[-DEMOS:]
        return sum(len(s["act"]) for s in steps)


def _countable(sim: pl.control.Simulator) -> int:
    """Raises UserError for continuous actions."""
    if isinstance(sim.actions, pl.control.Box):
        raise pl.UserError("dsadf chooses among actions with names: the simulator's are continuous")
    return sim.actions


def goal_paths(games: pl.control.OptionGames, book: ErrandBook) -> dict[str, np.ndarray]:
    """The steps of games once for each trained goal, rows of one goal after those of another: its code
    behind observations, reward 1 and over where it is reached; steps that begin at a goal are none of it. Where
    the game is over elsewhere nothing follows and nothing is paid.
    """
    paths = games.paths()
    before, after = (book.holds(paths[k][:, 0]) for k in ("obs", "next_obs"))
    n, _, T, _ = paths["obs"].shape
    kept: dict[str, list[np.ndarray]] = {}
    for k in book.trained:
        code = np.broadcast_to(book.code_KW[k], (n, 1, T, book.code_KW.shape[1]))
        alive = paths["alive"] & ~before[..., k]
        reached = after[..., k] & alive
        own = {
            **{o: np.concatenate([paths[o], code], -1) for o in ("obs", "next_obs")},
            "act": paths["act"],
            "alive": alive,
            "over": (reached | paths["over"]) & alive,
            "reward": reached[:, None].astype(float),
        }
        own |= {o: paths[o] for o in ("legal", "next_legal") if o in paths}
        for name, column in own.items():
            kept.setdefault(name, []).append(column)
    return {name: np.concatenate(columns) for name, columns in kept.items()}
