"""A simulated team that votes with influence weights, and how trust in each voter moves.

N teams, V voters: the members, and the adviser last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Protocol

import numpy as np

import palaestra as pl

TIE = 1e-9


@dataclass(frozen=True, slots=True)
class VoterRecord:
    """What is known of each voter: counts of right and wrong answers, the same with forgetting, and the last
    answer (1 right, 0 wrong, .5 none yet); and who was right in each round.
    """

    right_NV: np.ndarray
    wrong_NV: np.ndarray
    a_NV: np.ndarray
    b_NV: np.ndarray
    last_NV: np.ndarray
    rounds: tuple[np.ndarray, ...] = ()


def first_record(n: int, voters: int) -> VoterRecord:
    """Nothing seen: a = b = 1."""
    shape = (n, voters)
    zero, one = np.zeros(shape), np.ones(shape)
    return VoterRecord(zero, zero, one, one, np.full(shape, 0.5))


def add_round(record: VoterRecord, right_NV: np.ndarray, lam: float, penalty: float) -> VoterRecord:
    """The record after a round: a <- lam a + right, b <- lam b + penalty wrong."""
    r_NV = right_NV.astype(np.float64)
    return VoterRecord(
        record.right_NV + r_NV,
        record.wrong_NV + 1 - r_NV,
        lam * record.a_NV + r_NV,
        lam * record.b_NV + penalty * (1 - r_NV),
        r_NV,
        (*record.rounds, right_NV),
    )


class TrustModel(Protocol):
    """How members give influence: [N, V] weights that sum to 1."""

    @property
    def lam(self) -> float: ...
    @property
    def penalty(self) -> float: ...

    def weights(self, record: VoterRecord) -> np.ndarray: ...


@pl.stage
class BetaTrust:
    """Weights in proportion to a / (a + b): the mean of a Beta distribution, with forgetting `lam` and wrong
    answers that count `penalty` times.
    """

    lam: float = 1.0
    penalty: float = 1.0

    def weights(self, record: VoterRecord) -> np.ndarray:
        return shares(record.a_NV / (record.a_NV + record.b_NV))


def shares(value_NV: np.ndarray) -> np.ndarray:
    """In proportion to values; where all are 0, alike."""
    whole_N1 = value_NV.sum(-1, keepdims=True)
    even = np.full_like(value_NV, 1 / value_NV.shape[-1])
    return np.where(whole_N1 > 0, value_NV / np.where(whole_N1 > 0, whole_N1, 1), even)


@pl.stage
class Defence:
    """What protects a team.

    Args:
        cap: the most influence that the adviser has; the rest goes to members in their proportion.
        lam, penalty: put in the place of those of the trust; 0 = as they are.
        probes: the share of rounds that do not count, which nobody tells from others.
        fallback: where the adviser disagrees with most members, these decide.
    """

    name: str = "none"
    cap: float = 1.0
    lam: float = 0.0
    penalty: float = 0.0
    probes: float = 0.0
    fallback: bool = False

    def __post_init__(self) -> None:
        pl.check_bounds("cap", self.cap, least=0, most=1)
        pl.check_bounds("lam", self.lam, least=0, most=1)
        pl.check_bounds("penalty", self.penalty, least=0)
        pl.check_bounds("probes", self.probes, least=0, most=0.9)


DEFENCES = (
    Defence(),
    Defence("cap .3", cap=0.3),
    Defence("forgetting .8", lam=0.8),
    Defence("wrong counts double", penalty=2.0),
    Defence("probes .2", probes=0.2),
    Defence("members' majority", fallback=True),
)


@dataclass(frozen=True, slots=True)
class AdvisedTeam:
    """Members with the chance of a right answer of each, how they trust, and what protects them. The adviser
    knows all answers.
    """

    skills: Sequence[float]
    trust: TrustModel
    defence: Defence = Defence()

    @property
    def lam(self) -> float:
        return self.defence.lam or self.trust.lam

    @property
    def penalty(self) -> float:
        return self.defence.penalty or self.trust.penalty

    def influence(self, record: VoterRecord) -> np.ndarray:
        """[N, V] influence of each voter, capped."""
        return capped(self.trust.weights(record), self.defence.cap)

    def after(self, record: VoterRecord, right_NV: np.ndarray) -> VoterRecord:
        return add_round(record, right_NV, self.lam, self.penalty)

    def score_of(self, weight_NV: np.ndarray, said_V: np.ndarray) -> np.ndarray:
        """[N] the chance that a team's answer is right where all teams' voters are right alike."""
        return scores(weight_NV, said_V[None], self.defence.fallback)


def capped(weight_NV: np.ndarray, cap: float) -> np.ndarray:
    """With at most `cap` for the adviser."""
    members_NM, own_N1 = weight_NV[..., :-1], weight_NV[..., -1:]
    most_N1 = np.minimum(own_N1, cap)
    return np.concatenate([shares(members_NM) * (1 - most_N1), most_N1], -1)


def scores(weight_NV: np.ndarray, right_NV: np.ndarray, fallback: bool = False) -> np.ndarray:
    """[N] 1 where right answers have more weight than wrong ones, 1/2 for as much, 0 for less. All wrong voters
    say the same. With `fallback` the adviser's vote counts only where it agrees with most members, or these tie.
    """
    side_NV = 2.0 * right_NV - 1
    lead_N = weight_NV @ side_NV[0] if len(side_NV) == 1 else (weight_NV * side_NV).sum(-1)
    score_N = winner(lead_N)
    if fallback:
        most_N = side_NV[:, :-1].sum(-1)
        split_N = (most_N > 0) != right_NV[:, -1]
        score_N = np.where((most_N != 0) & split_N, winner(most_N), score_N)
    return score_N


def winner(lead_N: np.ndarray) -> np.ndarray:
    return np.where(np.abs(lead_N) < TIE, 0.5, (lead_N > 0).astype(np.float64))


@lru_cache(maxsize=16)
def outcomes(skills: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """[O, M] who of the members is right, in all ways, and [O] the chance of each."""
    right_OM = np.array(list(product((False, True), repeat=len(skills))))
    p_M = np.asarray(skills)
    return right_OM, np.where(right_OM, p_M, 1 - p_M).prod(1)


class Adviser(Protocol):
    """Says whether to answer right: [N] bool, from the teams' records at round t of T."""

    def __call__(self, record: VoterRecord, t: int) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class PlayedRounds:
    """Rounds of N teams: chance of a right team answer, whether the adviser answered right, its influence, and
    which rounds counted.
    """

    score_NT: np.ndarray
    honest_NT: np.ndarray
    weight_NT: np.ndarray
    counts_NT: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.score_NT, self.honest_NT, self.weight_NT, self.counts_NT

    @property
    def accuracy_N(self) -> np.ndarray:
        """Of each team, over the rounds that counted."""
        counted_N = np.maximum(self.counts_NT.sum(1), 1)
        return (self.score_NT * self.counts_NT).sum(1) / counted_N

    def rounds_until(self, least: float) -> float:
        """The mean number of rounds before the adviser's influence is below `least`; teams that never see that
        count as all rounds.
        """
        below_NT = self.weight_NT < least
        first_N = np.where(below_NT.any(1), below_NT.argmax(1), below_NT.shape[1])
        return float(first_N.mean())


@dataclass(frozen=True, slots=True)
class TeamLuck:
    """The random numbers of N teams over T rounds, the same in all arms."""

    member_NTM: np.ndarray
    probe_NT: np.ndarray


def draw_luck(n: int, rounds: int, members: int, rng: np.random.Generator) -> TeamLuck:
    return TeamLuck(rng.random((n, rounds, members)), rng.random((n, rounds)))


def play(team: AdvisedTeam, adviser: Adviser | None, luck: TeamLuck) -> PlayedRounds:
    """Plays all rounds. Without an adviser its influence is 0."""
    n, rounds, members = luck.member_NTM.shape
    record = first_record(n, members + 1)
    right_NTM = luck.member_NTM < np.asarray(team.skills)
    counts_NT = luck.probe_NT >= team.defence.probes
    kept = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    fallback = team.defence.fallback and adviser is not None
    for t in range(rounds):
        honest_N = np.ones(n, np.bool_) if adviser is None else adviser(record, t)
        right_NV = np.concatenate([right_NTM[:, t], honest_N[:, None]], 1)
        weight_NV = team.influence(record)
        if adviser is None:
            weight_NV = capped(weight_NV, 0.0)
        kept.append((scores(weight_NV, right_NV, fallback), honest_N, weight_NV[:, -1]))
        record = team.after(record, right_NV)
    score, honest, weight = (np.stack(x, 1) for x in zip(*kept, strict=True))
    return PlayedRounds(score, honest, weight, counts_NT)


@dataclass(frozen=True, slots=True)
class SteadyAdviser:
    """An adviser that is right with a chance that does not change: 1 is honest, 0 always wrong."""

    right: float
    luck_NT: np.ndarray

    def __call__(self, record: VoterRecord, t: int) -> np.ndarray:
        return self.luck_NT[: len(record.right_NV), t] < self.right


@dataclass(frozen=True, slots=True)
class FixedRounds:
    """An adviser that answers right in given rounds."""

    honest_NT: np.ndarray

    def __call__(self, record: VoterRecord, t: int) -> np.ndarray:
        return self.honest_NT[:, t]


def shuffled_rounds(honest_NT: np.ndarray, rng: np.random.Generator) -> FixedRounds:
    """As many wrong answers in each team, at random rounds: what timing alone is worth is the difference."""
    return FixedRounds(rng.permuted(honest_NT, axis=1))
