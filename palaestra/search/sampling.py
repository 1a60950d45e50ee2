"""Strategies that sample whole answers until the budget is spent, and choose one of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.search.problem import (
    SearchProblem,
    SearchResult,
    vote_of_episode,
    whole_or_all,
)
from palaestra.types import Episode, need_at_least, stage


@stage
class BestAnswer:
    """Best of n: the answer of the highest score, the first of equals (arXiv:2112.09332).

    n is what the budget pays for. With the verifier that has the gold answer this is an oracle, the
    share of problems that some answer solves (pass@n).

    Args:
        temperature: of the answers.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, temperature=0)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        answers = whole_or_all(await problem.sample(temperature=self.temperature))
        scores_N = await problem.score(answers)
        if not answers:
            return problem.result(None, answers)
        at = int(np.argmax(scores_N))
        return problem.result(answers[at], answers, float(scores_N[at]))


@stage
class MajorityVote:
    """The commonest final answer (self-consistency, arXiv:2203.11171); of a tie the one that was
    said first. It asks nobody what an answer is worth.

    Args:
        temperature: of the answers.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, temperature=0)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        answers = whole_or_all(await problem.sample(temperature=self.temperature))
        return elect(problem, answers, np.ones(len(answers)))


@stage
class WeightedVote:
    """The final answer with the highest sum of scores over the answers that state it (weighted
    self-consistency, arXiv:2206.02336), and of these the one that scores most.

        argmax_a sum_{i: a_i = a} w_i,   w_i = the score, or its sigmoid where it can be negative

    Of a tie the answer that was said first.

    Args:
        temperature: of the answers.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, temperature=0)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        answers = whole_or_all(await problem.sample(temperature=self.temperature))
        return elect(problem, answers, problem.weigh(await problem.score(answers)))


def elect(
    problem: SearchProblem, answers: Sequence[Episode], weights_N: np.ndarray
) -> SearchResult:
    """The answer whose vote has the highest sum of weights, the first of equals; among those that
    vote so the one of the highest weight, the first of equals. A reply that says nothing does not
    vote unless all say nothing.
    """
    votes = [vote_of_episode(e, problem.task) for e in answers]
    sums: dict[str, float] = {}
    for vote, weight in zip(votes, weights_N, strict=True):
        sums[vote] = sums.get(vote, 0.0) + float(weight)
    if not sums:
        return problem.result(None, answers)
    totals = {vote: total for vote, total in sums.items() if vote} or sums
    # the first of equals: dicts keep their order
    winner = max(totals, key=lambda vote: totals[vote])
    at = max((i for i, v in enumerate(votes) if v == winner), key=lambda i: (weights_N[i], -i))
    return problem.result(answers[at], answers, totals[winner])
