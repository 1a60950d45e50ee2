"""The worst case for a team: when an adviser that knows all answers would be wrong. It bounds what a faulty
adviser can cost; it says nothing but right and wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palaestra.recipes.analysis.adversarial_influence.team import (
    AdvisedTeam,
    BetaTrust,
    PlayedRounds,
    VoterRecord,
    draw_luck,
    first_record,
    outcomes,
    play,
)

MOST_STATES = 600_000  # of one round, in the exact plan


def is_countable(team: AdvisedTeam, rounds: int) -> bool:
    """Whether trust follows from counts alone, and these are few enough for the exact plan."""
    voters = len(team.skills) + 1
    return (
        isinstance(team.trust, BetaTrust)
        and team.lam == 1
        and (rounds + 1) ** voters <= MOST_STATES
    )


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """Backward induction over the counts of right answers of all voters, with trust that forgets nothing:

        V_t(r) = min over right or wrong of  sum_o p(o) (score(w(r), o) + V_{t+1}(r + o)),   V_T = 0

    `honest_T` holds for each round whether to be right, [t + 1] * V; `value` is V_0, the expected number of
    right answers of the team.
    """

    honest_T: Sequence[np.ndarray]
    value: float

    def __call__(self, record: VoterRecord, t: int) -> np.ndarray:
        counts = tuple(record.right_NV.astype(np.int64).T)
        return self.honest_T[t][counts]


def plan_exact(team: AdvisedTeam, rounds: int) -> ExactPlan:
    """The exact plan of a team whose trust follows from counts."""
    voters = len(team.skills) + 1
    right_OM, p_O = outcomes(tuple(team.skills))
    later = np.zeros((rounds + 1,) * voters)
    honest_T = list[np.ndarray]()
    for t in reversed(range(rounds)):
        grid = np.stack(np.meshgrid(*[np.arange(t + 1.0)] * voters, indexing="ij"), -1)
        right_NV = grid.reshape(-1, voters)
        wrong_NV = t - right_NV
        record = VoterRecord(
            right_NV,
            wrong_NV,
            1 + right_NV,
            1 + team.penalty * wrong_NV,
            np.full_like(right_NV, 0.5),
        )
        weight_NV = team.influence(record)
        value = list[np.ndarray]()
        for own in (False, True):
            total = np.zeros((t + 1,) * voters)
            for right_M, p in zip(right_OM, p_O, strict=True):
                said_V = np.array([*right_M, own])
                paid_N = team.score_of(weight_NV, said_V)
                after = later[tuple(slice(int(x), int(x) + t + 1) for x in said_V)]
                total += p * (paid_N.reshape(total.shape) + after)
            value.append(total)
        honest_T.append(value[True] < value[False])
        later = np.minimum(*value)
    return ExactPlan(honest_T[::-1], float(later.reshape(-1)[0]))


@dataclass(frozen=True, slots=True)
class FittedPlan:
    """Planning with a model of trust, whatever that is: the value of round t + 1 is a regression on states that
    simulated rounds led to, and the adviser looks one round ahead through the model.

    `weight_TK` are the regressions' coefficients, of the features of `features`.
    """

    team: AdvisedTeam
    weight_TK: np.ndarray

    def __call__(self, record: VoterRecord, t: int) -> np.ndarray:
        wrong_N, right_N = action_values(self.team, record, self.weight_TK[t + 1])
        return right_N < wrong_N


def features(team: AdvisedTeam, record: VoterRecord) -> np.ndarray:
    """[N, K] polynomials of degree 3 in the voters' trust a / (a + b) and the adviser's influence."""
    trust_NV = record.a_NV / (record.a_NV + record.b_NV)
    own_N1 = team.influence(record)[:, -1:]
    x_ND = np.concatenate([np.sort(trust_NV[:, :-1], 1), trust_NV[:, -1:], own_N1], 1)
    d = x_ND.shape[1]
    columns = [np.ones(len(x_ND)), *x_ND.T]
    columns += [x_ND[:, i] * x_ND[:, j] for i in range(d) for j in range(i, d)]
    columns += [
        x_ND[:, i] * x_ND[:, j] * x_ND[:, k]
        for i in range(d)
        for j in range(i, d)
        for k in range(j, d)
    ]
    return np.stack(columns, 1)


def action_values(
    team: AdvisedTeam, record: VoterRecord, later_K: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[N] the expected number of right team answers from here on, if the adviser is wrong, and if it is right."""
    right_OM, p_O = outcomes(tuple(team.skills))
    weight_NV = team.influence(record)
    totals = list[np.ndarray]()
    for own in (False, True):
        total_N = np.zeros(len(weight_NV))
        for right_M, p in zip(right_OM, p_O, strict=True):
            said_V = np.array([*right_M, own])
            right_NV = np.broadcast_to(said_V, weight_NV.shape)
            total_N += p * team.score_of(weight_NV, said_V)
            if later_K.any():
                total_N += p * (features(team, team.after(record, right_NV)) @ later_K)
        totals.append(total_N)
    return totals[0], totals[1]


def plan_fitted(
    team: AdvisedTeam, rounds: int, rng: np.random.Generator, n: int = 600, ridge: float = 1e-3
) -> FittedPlan:
    """The plan by regression on `n` simulated teams, whose advisers are wrong with a chance of their own."""
    luck = draw_luck(n, rounds, len(team.skills), rng)
    wrong_N, coin_NT = rng.random(n), rng.random((n, rounds))
    records = list[VoterRecord]()

    def wander(record: VoterRecord, t: int) -> np.ndarray:
        records.append(record)
        return coin_NT[:, t] >= wrong_N

    play(team, wander, luck)
    k = features(team, first_record(1, len(team.skills) + 1)).shape[1]
    weight_TK = np.zeros((rounds + 1, k))
    for t in reversed(range(1, rounds)):
        value_N = np.minimum(*action_values(team, records[t], weight_TK[t + 1]))
        phi_NK = features(team, records[t])
        weight_TK[t] = np.linalg.solve(phi_NK.T @ phi_NK + ridge * np.eye(k), phi_NK.T @ value_N)
    return FittedPlan(team, weight_TK)


def wrong_answers(played: PlayedRounds) -> float:
    """The mean number of rounds in which the adviser was wrong."""
    return float((~played.honest_NT).sum(1).mean())
