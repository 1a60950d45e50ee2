"""Double Q learning that acts by the posterior of a cached prior, online or from games of somebody else.

n games, A agents, T steps, N states, K actions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.cache_posterior.cache import (
    PriorCache,
    divergence,
    divergence_bound,
    posterior,
    temperature,
)

ILLEGAL = -1e9
CURVE = ("asked", "hit_rate", "delta", "refresh", "capacity")  # that a round's line has


class PriorAdvisor:
    """A guide's priors in one arm, looked up by the key of a state: log-probabilities [..., K] of
    observations [..., O], 0 where nothing is known.

    Args:
        key_of: the key of a state [O].
        calls: states that the guide is asked about at most.
    """

    def __init__(
        self,
        guide: pl.control.Guide,
        cache: PriorCache,
        key_of: Callable[[np.ndarray], np.ndarray],
        actions: int,
        key: pl.Key,
        ctx: pl.Context | None = None,
        calls: int = 0,
    ):
        self.guide, self.cache, self.key_of = guide, cache, key_of
        self.actions, self.key, self.ctx, self.calls = actions, key, ctx, calls
        self.asked = self.fallbacks = self.left_out = self.lookups = 0
        self.hit_rate = self.stale = self.again = 0.0  # of the last round, see `PriorCache.adapt`
        self._key: dict[bytes, np.ndarray] = {}
        self._place: dict[bytes, tuple[int, bool]] = {}  # of states since the cache last changed

    def keys_of(self, state_NO: np.ndarray) -> np.ndarray:
        """[N, D]"""
        for row in state_NO:
            if (name := row.tobytes()) not in self._key:
                self._key[name] = self.key_of(row)
        return np.stack([self._key[row.tobytes()] for row in state_NO])

    def places(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The entry of each observation [...], -1 = none, and whether it is its own [...]."""
        rows = obs.reshape(-1, obs.shape[-1]).astype(np.float32)
        names = [row.tobytes() for row in rows]
        fresh = {
            name: row for name, row in zip(names, rows, strict=True) if name not in self._place
        }
        if fresh:
            at_N, own_N = self.cache.look_up(self.keys_of(np.stack(list(fresh.values()))))
            for name, at, own in zip(fresh, at_N.tolist(), own_N.tolist(), strict=True):
                self._place[name] = (at, own)
        places = [self._place[name] for name in names]
        at = np.array([a for a, _ in places]).reshape(obs.shape[:-1])
        return at, np.array([own for _, own in places], bool).reshape(obs.shape[:-1])

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        at, _ = self.places(obs)
        prior = np.zeros((*at.shape, self.actions))
        if len(self.cache):
            prior[at >= 0] = self.cache.value_MK[at[at >= 0]]
        return prior

    async def ask(self, obs_NO: np.ndarray, i: int, values: Any, alpha: float) -> None:
        """Asks about states of a round, all of its steps given."""
        self.stale = self.again = 0.0
        hits = self.places(obs_NO)[0] >= 0
        self.lookups, self.hit_rate = self.lookups + len(hits), float(hits.mean())
        rows = np.unique(obs_NO.astype(np.float32), axis=0)
        rng = pl.rng_of((*self.key, i, "ask"))
        rows = rows[rng.permutation(len(rows))]
        key_ND = self.keys_of(rows)
        wanted = self.cache.wanting(key_ND, rng)
        left = max(0, self.calls - self.asked) if self.calls else len(wanted)
        self.left_out += max(0, len(wanted) - left)
        wanted = wanted[:left]
        if len(wanted) < 2:  # a shuffled guide exchanges two at least
            return
        before, rows = self.cache.returned, rows[wanted]
        guidance = await self.guide(self.ctx, rows.astype(float), (*self.key, i))
        self.asked, self.fallbacks = self.asked + len(wanted), self.fallbacks + guidance.fallbacks
        known = self.places(rows)[0] >= 0
        if known.any():
            own, cached = guidance.value_NG[known], self(rows[known])
            self.stale = float(self.divergence(rows[known], own, cached, values, alpha).mean())
        self.cache.put(key_ND[wanted], guidance.value_NG)
        self._place.clear()
        self.again = (self.cache.returned - before) / len(wanted)

    def divergence(
        self, rows: np.ndarray, own: np.ndarray, cached: np.ndarray, values: Any, alpha: float
    ) -> np.ndarray:
        """[N] KL of the posterior by own priors [N, K] from that by cached ones."""
        q_NK = values_of(values, rows)
        return divergence(posterior(own, q_NK, alpha), posterior(cached, q_NK, alpha))

    def adapt(self, obs: np.ndarray, error: np.ndarray) -> None:
        """Moves the cache's settings by |TD errors| [N] of states [N, O]."""
        at, own = self.places(obs)
        other = (at >= 0) & ~own
        both = other.any() and own.any()
        far, near = (float(error[x].mean()) if both else 0.0 for x in (other, own))
        self.cache.adapt(far, near, self.stale, self.hit_rate, self.again)
        self._place.clear()

    async def check(
        self, obs_NO: np.ndarray, values: Any, alpha: float, most: int
    ) -> dict[str, Any]:
        """KL of the posterior by a state's own prior from that by the cached one, of at most `most`
        states that have another one's, and the bound of it; both means. The guide is asked for them.
        """
        rows = np.unique(obs_NO.astype(np.float32), axis=0)
        at, own = self.places(rows)
        rows = rows[(at >= 0) & ~own]
        rows = rows[pl.rng_of((*self.key, "check")).permutation(len(rows))][:most]
        if len(rows) < 2:
            return {}
        guidance = await self.guide(self.ctx, rows.astype(float), (*self.key, "check"))
        own_NK, cached_NK = guidance.value_NG, self(rows)
        kl = self.divergence(rows, own_NK, cached_NK, values, alpha)
        return {
            "kl": float(kl.mean()),
            "kl_bound": float(divergence_bound(own_NK, cached_NK).mean()),
            "kl_states": len(rows),
        }

    def numbers(self) -> dict[str, Any]:
        cache = self.cache
        return {
            "asked": self.asked,
            "fallbacks": self.fallbacks,
            "left_out": self.left_out,
            "lookups": self.lookups,
            "hit_rate": self.hit_rate,
            "evicted": cache.evicted,
            "refreshed": cache.refreshed,
            "delta": cache.delta,
            "refresh": cache.refresh,
            "capacity": cache.capacity,
        }


def values_of(values: Any, obs: np.ndarray) -> np.ndarray:
    """[..., K] action values."""
    with torch.no_grad():
        return values(torch.from_numpy(obs).float()).numpy().astype(float)


def moved(values: Any, obs: np.ndarray, alpha: float, advisor: PriorAdvisor) -> float:
    """The mean total variation between the posterior and exp(Q / alpha) alone, over states [N, O]."""
    q, prior = values_of(values, obs), advisor(obs)
    alone, together = posterior(0 * prior, q, alpha), posterior(prior, q, alpha)
    return float(np.abs(alone - together).sum(-1).mean() / 2)


def acting(
    values: Any,
    alpha: float,
    advisor: PriorAdvisor | None,
    draws: int = 0,
    greedy: bool = False,
) -> pl.control.Acting:
    """Actions by the posterior, or `greedy` the likeliest of it. With `draws`, as many actions are
    drawn by the prior, and one of them by exp(Q / alpha).
    """

    def act(
        obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
    ) -> Mapping[str, np.ndarray]:
        q = values_of(values, obs)
        prior = np.zeros(q.shape) if advisor is None else advisor(obs)
        if legal is not None:
            prior = np.where(legal, prior, ILLEGAL)
        if greedy:
            return {"act": (q / alpha + prior).argmax(-1)}
        if not draws:
            return {"act": (q / alpha + prior + rng.gumbel(size=q.shape)).argmax(-1)}
        noise = rng.gumbel(size=(draws, *q.shape))
        drawn = (prior + noise).argmax(-1)  # [draws, ...]
        worth = np.take_along_axis(q[None], drawn[..., None], -1)[..., 0] / alpha
        best = (worth + rng.gumbel(size=worth.shape)).argmax(0)
        return {"act": np.take_along_axis(drawn, best[None], 0)[0]}

    return act


def td_errors(
    settings: pl.control.DoubleQ, learner: pl.control.QLearner, paths: pl.control.Paths, prior: Any
) -> np.ndarray:
    """[n, A, T] |r + gamma Q'(s', a') - Q(s, a)|, a' the best action by values and prior."""
    chooser = values_of(learner.values, paths["next_obs"])
    if prior is not None:
        chooser = chooser + settings.prior * prior(paths["next_obs"])
    if "next_legal" in paths:
        chooser = np.where(paths["next_legal"], chooser, ILLEGAL)
    best = chooser.argmax(-1)[..., None]
    after = np.take_along_axis(values_of(learner.following, paths["next_obs"]), best, -1)[..., 0]
    q = values_of(learner.values, paths["obs"])
    q = np.take_along_axis(q, paths["act"][..., None], -1)[..., 0]
    return np.abs(paths["reward"] + settings.gamma * ~paths["over"][:, None] * after - q)


@pl.value_class
class PosteriorLearning:
    """How an arm learns. `hot` and `cold` are temperatures in rewards, of the hit rates 0 and 1; where
    nobody is asked the temperature falls in a line from one to the other.

    Where there are `recorded` rounds of games, their learning takes the place of playing.
    """

    learner: pl.control.DoubleQ
    hot: float
    cold: float
    draws: int = 0
    recorded: tuple[pl.control.Paths, ...] = ()

    async def learn(
        self,
        sim: pl.control.Simulator,
        steps: int,
        key: pl.Key,
        advisor: PriorAdvisor | None,
        log: Callable[[dict[str, Any]], None],
    ) -> tuple[Any, float]:
        """The action values after `steps` environment steps, or after all that is recorded, and the
        temperature at the end. A round's line has "moved", see `moved`, of its states.
        """
        learner, taken, i, alpha = self.learner.learner(sim, key), 0, 0, self.hot
        total = sum(int(p["alive"].sum()) for p in self.recorded) or steps
        while taken < total:
            settings = replace(self.learner, prior=alpha if advisor else 0.0)
            learner.settings = settings
            act = acting(learner.values, alpha, advisor, self.draws)
            paths = (
                self.recorded[i]
                if self.recorded
                else pl.control.play_games(sim, act, settings.games, (*key, i))
            )
            taken, i = taken + int(paths["alive"].sum()), i + 1
            alive = np.broadcast_to(paths["alive"][:, None], paths["reward"].shape)
            seen = paths["obs"][alive]
            if advisor:
                await advisor.ask(seen, i, learner.values, alpha)
            loss = learner.update(paths, paths["reward"], (*key, i, "replay"), advisor)
            line = {"env_steps": taken, "reward": float(pl.control.returns_of(paths).mean())}
            if advisor:
                errors = td_errors(settings, learner, paths, advisor)[alive]
                line["moved"] = moved(learner.values, seen, alpha, advisor)
                advisor.adapt(seen, errors)
                line |= {k: v for k, v in advisor.numbers().items() if k in CURVE}
            hit_rate = advisor.hit_rate if advisor else min(1.0, taken / total)
            alpha = temperature(self.hot, self.cold, hit_rate)
            log({**line, "loss": loss, "alpha": alpha})
        return learner.values, alpha
