"""Priors over actions by state: the key of a state, and a cache that adapts.

N states, M entries, K actions. A key has D numbers, of which the last one has to be equal; the others are a
unit vector of a text, or what is told of a state in numbers.
"""

import math
import re
import zlib
from collections.abc import Callable, Sequence

import numpy as np

import palaestra as pl

LEVELS = 12  # of a number's range, where a state is told in numbers
BUCKETS = 256  # of hashed n-grams
LONGEST = 6  # words of an n-gram, which stays in its sentence
SAME = 1 - 1e-9  # a cosine from which on two states are one
RATE, PRICE = 0.1, 0.5  # of a step of the settings, and of a query as a share of an error
LEAST_DELTA, LEAST_REFRESH, MOST_REFRESH = 0.3, 0.02, 0.5
MOST_ENTRIES = 1000  # K of 100 to 1000 (arXiv:2505.07274)


def grams(text: str) -> list[int]:
    """The buckets of a text's n-grams of words, within sentences and lines."""
    buckets = list[int]()
    for sentence in re.split(r"\n|\. ", text):
        words = re.findall(r"[^\s,;:!?]+", sentence.lower().rstrip("."))
        for n in range(1, LONGEST + 1):
            for i in range(len(words) - n + 1):
                buckets.append(zlib.crc32(" ".join(words[i : i + n]).encode()) % BUCKETS)
    return buckets


@pl.value_class
class TextKeys:
    """Texts as keys: a unit vector of hashed n-grams, each weighed by log((1 + texts) / (1 + texts that
    have it)), so that what all states share does not make them alike; and the numbers in the text, for
    a cosine hardly tells row 3, column 4 from row 4, column 3.
    """

    weight_D: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> "TextKeys":
        """Weights by a sample."""
        seen = np.zeros(BUCKETS)
        for text in texts:
            seen[np.unique(grams(text))] += 1
        return cls(weight_D=np.log((1 + len(texts)) / (1 + seen)))

    def __call__(self, text: str) -> np.ndarray:
        """[D]; a text of which nothing counts has the first unit vector."""
        x = np.bincount(grams(text), minlength=BUCKETS) * self.weight_D
        size = np.linalg.norm(x)
        numbers = " ".join(re.findall(r"-?\d+(?:\.\d+)?", text))
        return np.append(x / size if size > 0 else np.eye(BUCKETS)[0], zlib.crc32(numbers.encode()))


def number_key(share_Q: np.ndarray) -> np.ndarray:
    """[D] the key of Q numbers, each as a share 0 to 1 of its range, rounded as it is told."""
    return np.append(np.round(np.clip(share_Q, 0, 1) * LEVELS) / LEVELS, 0.0)


def closeness(key_ND: np.ndarray, other_MD: np.ndarray) -> np.ndarray:
    """[N, M] of keys of numbers: the product over them of max(0, cos(pi (share - other share))), so that
    one number that differs clearly makes two states different, whatever the others are.
    """
    product_NM = np.ones((len(key_ND), len(other_MD)))
    for own_N, other_M in zip(key_ND[:, :-1].T, other_MD[:, :-1].T, strict=True):
        product_NM *= np.maximum(np.cos(np.pi * (own_N[:, None] - other_M)), 0.0)
    return product_NM


def cosines(key_ND: np.ndarray, other_MD: np.ndarray) -> np.ndarray:
    """[N, M] -1 where the last numbers differ."""
    cosine_NM = key_ND[:, :-1] @ other_MD[:, :-1].T
    return np.where(key_ND[:, -1:] == other_MD[:, -1], cosine_NM, -1.0)


class PriorCache:
    """Log-probabilities by the key of a state. The nearest entry counts if it is as like as `delta` or more.

    Args:
        delta: the least likeness; 1 = the same state alone.
        refresh: the probability with which a state that has another one's prior is asked about anyway.
        capacity: entries; the one that was used longest ago goes first.
        adapts: whether these three follow the surrogate gradient of `adapt`.
        likeness: [N, M] of keys [N, D] and [M, D], 1 = the same: `cosines` of texts, `closeness` of numbers.
    """

    def __init__(
        self,
        delta: float,
        refresh: float,
        capacity: int,
        adapts: bool = False,
        likeness: Callable[[np.ndarray, np.ndarray], np.ndarray] = cosines,
    ):
        self.delta, self.refresh, self.capacity, self.adapts = delta, refresh, capacity, adapts
        self.likeness = likeness
        self.key_MD, self.value_MK = np.zeros((0, 0)), np.zeros((0, 0))
        self.used_M, self.clock = np.zeros(0, int), 0
        self.gone_GD = np.zeros((0, 0))  # keys that were evicted
        self.evicted = self.refreshed = self.returned = 0

    def __len__(self) -> int:
        return len(self.used_M)

    def nearest(self, key_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[N] the entry nearest to each, and how like it is; -1 where there is none so near as `delta`."""
        if not len(self):
            return np.full(len(key_ND), -1), np.full(len(key_ND), -1.0)
        like_NM = self.likeness(key_ND, self.key_MD)
        at_N = like_NM.argmax(1)
        like_N = like_NM[np.arange(len(at_N)), at_N]
        return np.where(like_N >= min(self.delta, SAME), at_N, -1), like_N

    def look_up(self, key_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The entry of each [N], -1 = a miss, and whether it is that of the same text [N]."""
        at_N, like_N = self.nearest(key_ND)
        self.clock += 1
        self.used_M[at_N[at_N >= 0]] = self.clock
        return at_N, (at_N >= 0) & (like_N >= SAME)

    def wanting(self, key_ND: np.ndarray, rng: np.random.Generator) -> list[int]:
        """The states to ask about, in order: misses that are not alike, and hits that are refreshed.

        A state that has its own prior is not asked about again: the same question has the same reply.
        """
        at_N, like_N = self.nearest(key_ND)
        drawn_N = (rng.random(len(at_N)) < self.refresh) & (at_N >= 0) & (like_N < SAME)
        chosen = list[int]()
        for i in np.flatnonzero((at_N < 0) | drawn_N):
            near = self.likeness(key_ND[[i]], key_ND[chosen])[0] if chosen else np.zeros(0)
            if drawn_N[i] or not (near >= min(self.delta, SAME)).any():
                chosen.append(int(i))
        return chosen

    def put(self, key_ND: np.ndarray, value_NK: np.ndarray) -> None:
        """Keeps priors. What is within `delta` of an entry takes its place."""
        if not len(self):
            self.key_MD = np.zeros((0, key_ND.shape[1]))
            self.value_MK = np.zeros((0, value_NK.shape[1]))
            self.gone_GD = self.key_MD
        self.clock += 1
        for key, value in zip(key_ND, value_NK, strict=True):
            gone_G = self.likeness(key[None], self.gone_GD)[0] >= SAME
            self.returned, self.gone_GD = self.returned + int(gone_G.any()), self.gone_GD[~gone_G]
            at = int(self.nearest(key[None])[0][0])
            if at >= 0:
                self.key_MD[at], self.value_MK[at], self.used_M[at] = key, value, self.clock
                self.refreshed += 1
                continue
            self.key_MD = np.vstack([self.key_MD, key])
            self.value_MK = np.vstack([self.value_MK, value])
            self.used_M = np.append(self.used_M, self.clock)
            if len(self) > self.capacity:
                self._evict()

    def fill(self, key_MD: np.ndarray, value_MK: np.ndarray) -> None:
        """Takes entries as another cache had them."""
        self.key_MD, self.value_MK = key_MD, value_MK
        self.used_M = np.zeros(len(key_MD), int)

    def _evict(self) -> None:
        last = int(self.used_M.argmin())
        keep = np.arange(len(self)) != last
        self.gone_GD = np.vstack([self.gone_GD, self.key_MD[last]])[-self.capacity :]
        self.key_MD, self.value_MK = self.key_MD[keep], self.value_MK[keep]
        self.used_M = self.used_M[keep]
        self.evicted += 1

    def adapt(
        self, error_other: float, error_own: float, stale: float, hit_rate: float, again: float
    ) -> None:
        """A step of the settings along the surrogate gradient

            g      = (e_other - e_own) / (e_other + e_own) + min(1, stale) - PRICE (1 - h)
            delta += RATE g,    refresh += RATE g,    capacity *= 1 + again

        Args:
            error_other: mean |TD error| of states that have another one's prior.
            error_own: that of states with their own.
            stale: mean KL in nats, where a state with another one's prior was asked about anyway, of
                the posterior by its own prior from that by the other one's.
            hit_rate: h.
            again: the share of this round's questions that had been evicted.
        """
        if not self.adapts:
            return
        total = error_other + error_own
        g = ((error_other - error_own) / total if total > 0 else 0.0) + min(1.0, stale)
        g -= PRICE * (1 - hit_rate)
        self.delta = float(np.clip(self.delta + RATE * g, LEAST_DELTA, 1.0))
        self.refresh = float(np.clip(self.refresh + RATE * g, LEAST_REFRESH, MOST_REFRESH))
        most = max(MOST_ENTRIES, self.capacity)
        self.capacity = min(most, math.ceil(self.capacity * (1 + again)))


def temperature(hot: float, cold: float, hit_rate: float) -> float:
    """alpha = cold + (hot - cold) (1 - h)."""
    return cold + (hot - cold) * (1 - hit_rate)


def posterior(log_prior: np.ndarray, values: np.ndarray, alpha: float) -> np.ndarray:
    """[..., K] p(a | s) exp(Q(s, a) / alpha), normalised."""
    x = log_prior + values / alpha
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """[...] KL(p || q) in nats, 0 log 0 = 0."""
    ratio = np.log(np.maximum(p, 1e-300)) - np.log(np.maximum(q, 1e-300))
    return np.where(p > 0, p * ratio, 0.0).sum(-1)


def divergence_bound(log_prior: np.ndarray, log_cached: np.ndarray) -> np.ndarray:
    """[...] 2 max_a |log p(a) / p_c(a)|, which KL(pi || pi_cached) does not exceed, both normalised."""
    return 2 * np.abs(log_prior - log_cached).max(-1)
