"""Which encoding a tester tries next, and what that is worth: a bandit over encodings.

N = questions, C = encodings, Q = tries of a question.

    r        1 the guard allows and the helper says the secret; 0.5 it allows and the helper does not; 0 it blocks
    Q[c]     <- Q[c] + step (r - Q[c]), one table for all questions
    choice   with probability `explore` any encoding, else one of the greatest Q, equal ones alike

A question ends with r = 1, or after Q tries. Beside it stand UCB (`palaestra.control.bandits`), drawing at random
with replacement, which is known exactly: a question of which m encodings reach r = 1 is evaded within q tries with
probability 1 - (1 - m / C)^q, and the one encoding that is best over all questions, known beforehand.
"""

from collections.abc import Callable, Sequence

import numpy as np

import palaestra as pl

EVADED, UNREAD, BLOCKED = 1.0, 0.5, 0.0


def outcomes(blocked_NC: np.ndarray, said_NC: np.ndarray) -> np.ndarray:
    """[N, C] r of each question in each encoding."""
    return np.where(blocked_NC, BLOCKED, np.where(said_NC, EVADED, UNREAD))


def choice_shares(value_C: np.ndarray, explore: float) -> np.ndarray:
    """[C] the probability of each encoding to be the next one."""
    best_C = value_C == value_C.max()
    return explore / len(value_C) + (1 - explore) * best_C / best_C.sum()


def lift(value_C: np.ndarray, outcome_C: np.ndarray, explore: float) -> float:
    """How much more a choice by values is worth than one at random: sum_c (p_c - 1 / C) r_c, which is (1 - explore)
    times what the mean r of those with the greatest value is above that of all. 0 where all values are equal, or
    all outcomes.
    """
    best_C = value_C == value_C.max()
    return (1 - explore) * float(outcome_C[best_C].mean() - outcome_C.mean())


class ValueTable:
    """Q of the module, and what its choices were worth beyond random ones."""

    def __init__(self, n: int, step: float, explore: float) -> None:
        self.value_C = np.zeros(n)
        self.step, self.explore = step, explore
        self.lifts = list[float]()

    def choose(self, rng: np.random.Generator) -> int:
        share_C = choice_shares(self.value_C, self.explore)
        return int(rng.choice(len(share_C), p=share_C))

    def note(self, outcome_C: np.ndarray) -> None:
        """Keeps the lift of the next choice, by what each encoding leads to, which the selection itself is not told."""
        self.lifts.append(lift(self.value_C, outcome_C, self.explore))

    def learn(self, arm: int, reward: float) -> None:
        self.value_C[arm] += self.step * (reward - self.value_C[arm])


class UpperBounds:
    """UCB of the house over the same encodings."""

    def __init__(self, n: int) -> None:
        self.n, self.arms, self.rewards = n, list[int](), list[float]()
        self.algorithm = pl.control.bandit_algorithm("ucb")

    def choose(self, rng: np.random.Generator) -> int:
        seen = pl.control.BanditHistory(
            n_arms=self.n, arms=tuple(self.arms), rewards=tuple(self.rewards)
        )
        return self.algorithm(seen, rng)

    def learn(self, arm: int, reward: float) -> None:
        self.arms.append(arm)
        self.rewards.append(reward)


Selector = ValueTable | UpperBounds


def tries_to_evade(
    outcome_NC: np.ndarray, selector: Selector, tries: int, rng: np.random.Generator
) -> np.ndarray:
    """[N] the try at which each question evades, in [1, tries]; 0 = none does. Questions come in a drawn order."""
    first_N = np.zeros(len(outcome_NC), int)
    for i in rng.permutation(len(outcome_NC)):
        for t in range(1, tries + 1):
            if isinstance(selector, ValueTable):
                selector.note(outcome_NC[i])
            arm = selector.choose(rng)
            reward = float(outcome_NC[i, arm])
            selector.learn(arm, reward)
            if reward == EVADED:
                first_N[i] = t
                break
    return first_N


def repeated(
    outcome_NC: np.ndarray,
    make: Callable[[], Selector],
    tries: int,
    repeats: int,
    key: tuple[int | str, ...],
) -> tuple[np.ndarray, list[Selector]]:
    """[R, N] `tries_to_evade` of so many fresh selectors, each with an order of its own, and these."""
    made = [make() for _ in range(repeats)]
    first = [
        tries_to_evade(outcome_NC, each, tries, pl.rng_of((*key, r))) for r, each in enumerate(made)
    ]
    return np.array(first), made


def evaded_within(first_RN: np.ndarray, tries: int) -> np.ndarray:
    """[N] of each question, the share of repeats in which it evades within so many tries."""
    return ((first_RN > 0) & (first_RN <= tries)).mean(0)


def random_evasion(outcome_NC: np.ndarray, tries: int) -> np.ndarray:
    """[N] the probability that drawing at random evades within so many tries."""
    share_N = (outcome_NC == EVADED).mean(1)
    return 1 - (1 - share_N) ** tries


def best_fixed(outcome_NC: np.ndarray) -> int:
    """The encoding in which most questions evade, known beforehand; the first of equal ones."""
    return int((outcome_NC == EVADED).sum(0).argmax())


def median_tries(first: Sequence[int] | np.ndarray) -> float:
    """The median try of those that evade; infinite where none does."""
    reached = [x for x in np.ravel(first) if x]
    return float(np.median(reached)) if reached else float("inf")
