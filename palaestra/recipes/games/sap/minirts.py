"""A matrix game over the strategy space: who wins is drawn from a hidden payoff, and what can be seen of
the opponent is its strategy with errors.

    P(s beats t) = sigmoid(scale f(s)' A f(t)),    f(s) = tanh(W (s - mean)),    A = -A'

W and A are drawn, so that strategies counter each other in cycles and P(t beats s) = 1 - P(s beats t).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import palaestra as pl
from palaestra.recipes.games.sap.space import (
    DISTANCES,
    FORM,
    TARGETS,
    TRIGGERS,
    UNITS,
    PlannedStrategy,
    RtsStrategy,
    read_strategy,
    rts_space,
)

RANK = 6


@pl.value_class
class PlayedMatch:
    """A game: 1 won, 0 drawn, -1 lost; the damage that was done less what was suffered; and what was
    seen of the opponent, as text.
    """

    won: int
    damage: float
    seen: str


class MiniRts:
    """The matrix game of a seed. `noise` is the chance that a feature of the opponent is seen wrong."""

    form = f"Reply with the opponent's strategy as one JSON object: {FORM}"

    def __init__(self, seed: int, noise: float, scale: float) -> None:
        rng = np.random.default_rng(seed)
        self.rts = rts_space()
        self.space = tuple(s.planned() for s in self.rts)
        self.at = {s.vector: i for i, s in enumerate(self.space)}
        vectors_ND = np.array([s.vector for s in self.space])
        free_KD = rng.standard_normal((RANK, vectors_ND.shape[1]))
        features_NK = np.tanh((vectors_ND - vectors_ND.mean(0)) @ free_KD.T)
        free_KK = rng.standard_normal((RANK, RANK))
        logits_NN = scale * features_NK @ (free_KK - free_KK.T) @ features_NK.T
        self.logits_NN = logits_NN
        self.chance_NN = 1 / (1 + np.exp(-logits_NN))
        self.noise = noise

    async def play(
        self, own: PlannedStrategy, other: PlannedStrategy, key: pl.Key
    ) -> PlayedMatch | None:
        rng, (i, j) = pl.rng_of(key), (self.at[own.vector], self.at[other.vector])
        drawn = rng.random()
        won = 0 if i == j else 1 if drawn < self.chance_NN[i, j] else -1
        return PlayedMatch(
            won=won, damage=float(self.logits_NN[i, j]), seen=self._seen(self.rts[j], rng)
        )

    def chance(self, own: PlannedStrategy, other: PlannedStrategy) -> float | None:
        """The exact chance to win."""
        return float(self.chance_NN[self.at[own.vector], self.at[other.vector]])

    def best(self, other: PlannedStrategy) -> float | None:
        """The exact chance of the best response."""
        return float(self.chance_NN[:, self.at[other.vector]].max())

    def _seen(self, s: RtsStrategy, rng: np.random.Generator) -> str:
        """The features of a game, each wrong with the chance `noise`."""
        wrong = lambda: rng.random() < self.noise
        pick = lambda options: options[int(rng.integers(len(options)))]
        units = [u for u in UNITS if (u in s.units) != wrong()]
        aggressive = s.aggressive != wrong()
        plan = (
            ("target", s.target or pick(TARGETS))
            if aggressive
            else ("distance", s.distance or pick(DISTANCES))
        )
        if wrong():
            plan = (plan[0], pick(TARGETS if aggressive else DISTANCES))
        return "; ".join(
            (
                f"harvesters {pick((1, 2)) if wrong() else s.harvesters}",
                f"barracks {pick(TRIGGERS) if s.barracks and wrong() else s.barracks}",
                f"units {' '.join(units) or 'none'}",
                f"{plan[0]} {plan[1]}",
            )
        )

    def read(self, text: str) -> PlannedStrategy | None:
        """The strategy that a recogniser names."""
        made = read_strategy(text)
        return None if made is None else made.planned()

    def recognise(self, seen: Sequence[str]) -> PlannedStrategy | None:
        """The strategy by the feature that was seen most often in the games; None = the space has none
        such.
        """
        games = [dict(part.split(" ", 1) for part in game.split("; ")) for game in seen]
        most = lambda values: Counter(values).most_common(1)[0][0] if values else ""
        aggressive = sum("target" in g for g in games) * 2 > len(games)
        half = len(games) / 2
        units = tuple(u for u in UNITS if sum(u in g["units"].split() for g in games) > half)
        barracks = int(most([g["barracks"] for g in games if g["barracks"] != "0"]) or 0)
        made = RtsStrategy(
            harvesters=int(most([g["harvesters"] for g in games])),
            barracks=0 if units == ("worker",) else barracks,
            units=units,
            aggressive=aggressive,
        )
        plan = most(
            [
                g[k]
                for g in games
                for k in ("target", "distance")
                if k in g and (k == "target") == aggressive
            ]
        )
        made = replace(made, target=plan) if aggressive else replace(made, distance=int(plan))
        return made.planned() if made in self.rts else None
