"""Verifiers made of verifiers, and rewards of steps that cannot be farmed. Parts keep their names:
`math`, `tags.order`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.base import Judgement, fields_of, judge_response

NamedVerifier = tuple[str, Any]  # a name and a verifier


class Composed:
    """What compositions share: they read the fields of all their parts."""

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        raise NotImplementedError

    @property
    def fields(self) -> Mapping[str, bool]:
        must_of: dict[str, bool] = {}
        for _, verifier in self.inner:
            for name, must in fields_of(verifier).items():
                must_of[name] = must_of.get(name, False) or must
        return must_of

    def judgements(
        self, response: str, answer: Any, given: Mapping[str, Any]
    ) -> dict[str, Judgement]:
        return {name: judge_response(v, response, answer, given) for name, v in self.inner}


def merge_judgements(score: float, judgements: Mapping[str, Judgement]) -> Judgement:
    """A judgement with the parts of others; its status is the first that is not ok."""
    parts = {name: j.score for name, j in judgements.items()}
    parts |= {f"{name}.{part}": x for name, j in judgements.items() for part, x in j.parts.items()}
    bad = next((j.status for j in judgements.values() if j.status != "ok"), "ok")
    return Judgement(score=min(1.0, max(0.0, score)), parts=parts, status=bad)


@stage
class WeightedMean(Composed):
    """The weighted mean of parts, (name, verifier, weight): in [0, 1], as they are."""

    parts: tuple[tuple[str, Any, float], ...]

    def __post_init__(self) -> None:
        names = [name for name, _, _ in self.parts]
        weights = [w for _, _, w in self.parts]
        if len(set(names)) != len(names):
            raise UserError(
                f"WeightedMean: a part stands twice in {', '.join(names)}; give each a name of its "
                "own"
            )
        if not weights or not all(math.isfinite(w) and w >= 0 for w in weights) or not sum(weights):
            raise UserError(
                f"WeightedMean: the weights are {weights}; give numbers of 0 or more, not all 0"
            )

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        return tuple((name, v) for name, v, _ in self.parts)

    def __call__(self, response: str, answer: Any, **given: Any) -> Judgement:
        judgements = self.judgements(response, answer, given)
        total = sum(w * judgements[name].score for name, _, w in self.parts)
        return merge_judgements(total / sum(w for _, _, w in self.parts), judgements)


@stage
class Product(Composed):
    """The product of the parts: all of them are needed."""

    parts: tuple[NamedVerifier, ...]

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        return self.parts

    def __call__(self, response: str, answer: Any, **given: Any) -> Judgement:
        judgements = self.judgements(response, answer, given)
        return merge_judgements(math.prod(j.score for j in judgements.values()), judgements)


@stage
class Min(Composed):
    """The least of the parts: no part makes up for another."""

    parts: tuple[NamedVerifier, ...]

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        return self.parts

    def __call__(self, response: str, answer: Any, **given: Any) -> Judgement:
        judgements = self.judgements(response, answer, given)
        return merge_judgements(min(j.score for j in judgements.values()), judgements)


@stage
class Gate(Composed):
    """The verifier's score where the gate's is at least `least`, else `otherwise`. A closed gate
    asks nothing further.
    """

    gate: Any
    verifier: Any
    least: float = 1.0
    otherwise: float = 0.0

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        return (("gate", self.gate), ("score", self.verifier))

    def __call__(self, response: str, answer: Any, **given: Any) -> Judgement:
        gate = judge_response(self.gate, response, answer, given)
        if gate.score < self.least:
            return merge_judgements(self.otherwise, {"gate": gate})
        judgement = judge_response(self.verifier, response, answer, given)
        return merge_judgements(judgement.score, {"gate": gate, "score": judgement})


@stage
class Clip(Composed):
    """The verifier's score within [low, high]: beyond `high` there is nothing more to be had."""

    verifier: Any
    low: float = 0.0
    high: float = 1.0

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        return (("score", self.verifier),)

    def __call__(self, response: str, answer: Any, **given: Any) -> Judgement:
        judgement = judge_response(self.verifier, response, answer, given)
        return merge_judgements(
            min(self.high, max(self.low, judgement.score)), {"score": judgement}
        )


@stage
class Delta(Composed):
    """What a response is worth beyond handing the input back: max(0, (s - b) / (1 - b)), b the
    score of the field `copied`.

    For similarities, which pay the copy of an old text well. b = 1 (nothing was to be changed)
    leaves s as it is.
    """

    verifier: Any
    copied: str = "prompt"
    put: str = "{}"  # how the copy is written as a response

    @property
    def inner(self) -> tuple[NamedVerifier, ...]:
        return (("score", self.verifier),)

    @property
    def fields(self) -> Mapping[str, bool]:
        return {**fields_of(self.verifier), self.copied: True}

    def __call__(self, response: str, answer: Any, **given: Any) -> Judgement:
        judgement = judge_response(self.verifier, response, answer, given)
        base = judge_response(
            self.verifier, self.put.format(given[self.copied]), answer, given
        ).score
        gain = judgement.score if base >= 1 else (judgement.score - base) / (1 - base)
        return merge_judgements(gain, {"score": judgement, "copy": Judgement(score=base)})


# Rewards of steps from scores q_1..q_K of a process reward model (arXiv:2410.15115, "Clip" and
# "Delta").


def clip_steps(q: Sequence[float], eta: float) -> list[float]:
    """r_k = min(q_k - eta, 0): a bad step costs, and no number of good ones pays."""
    return [min(x - eta, 0.0) for x in q]


def delta_steps(q: Sequence[float]) -> list[float]:
    """r_k = q_k - q_{k+1} for k < K-1, r_{K-1} = q_{K-1}, r_K = 0: the return from step k is q_k,
    whatever follows.

    One step gives 0: the last step is left to the reward of the outcome.
    """
    kept = list(q[:-1])
    return [x - (kept[k + 1] if k + 1 < len(kept) else 0.0) for k, x in enumerate(kept)] + [
        0.0
    ] * bool(q)


def clip_delta_steps(q: Sequence[float], eta: float) -> list[float]:
    """Delta of Clip: the return from any step is at most 0, so another step never pays."""
    return delta_steps(clip_steps(q, eta))


def eta_of(q: Sequence[float], share: float = 0.3) -> float:
    """The threshold below which lie `share` of the scores, so that most steps are worth 0."""
    if not q:
        raise UserError("eta_of: no scores of steps; sample some first")
    return sorted(q)[min(len(q) - 1, int(share * len(q)))]
