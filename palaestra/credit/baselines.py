"""Baselines that minimise the variance of the gradient, each under a guess of how large gradients are;
and the scale of a mean over groups of which some teach nothing.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from palaestra.credit.table import Table, Values, table_signal
from palaestra.types import stage


@stage
class CenterByLength:
    """x - b, b = sum_i L_i x_i / sum_i L_i over a group's answers of L_i tokens: the baseline of least
    variance where squared gradients grow with the length (OPO, arXiv:2505.23585, eq. 9). A group of one
    gives 0.
    """

    equal: ClassVar[bool] = False
    needs_several: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        x, key_E = table.lift(x, "episode"), table.group_E
        length_E = np.bincount(table.tokens.episode_N, minlength=len(key_E)).astype(float)
        total = np.maximum(np.bincount(key_E, length_E), 1.0)
        baseline_E = (np.bincount(key_E, length_E * x.x_N) / total)[key_E]
        # an answer of no tokens is not compared, as it trains nothing
        return Values(level="episode", x_N=np.where(length_E > 0, x.x_N - baseline_E, 0.0))


@stage
class CenterByToken:
    """x - b_t at the t-th token of an answer, b_t = sum_i W_it x_i / sum_i W_it over the answers of the
    group that have one: the Optimal Token Baseline (arXiv:2602.07078).

        W_it = sum_{j <= t} 1 - 2 pi_j + sum_v pi(v)^2

    is the squared norm of the gradients on the logits so far, pi_j the probability of the j-th token.
    The learner must need ("policy", "logp") and ("policy", "collision"). A group of one gives 0.

    Args:
        alone: what the baseline is where one answer is longer than all others, from there on: "own",
            its own reward, so that these tokens train nothing, or "zero".
    """

    alone: Literal["own", "zero"] = "own"
    equal: ClassVar[bool] = False
    needs_several: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        x_E, at = table.lift(x, "episode").x_N, table.tokens
        energy_N = 1 - 2 * np.exp(table_signal(table, "policy_logp"))
        energy_N = energy_N + table_signal(table, "policy_collision")
        first_N = np.searchsorted(at.episode_N, at.episode_N)  # tokens of an episode stand together
        number_N = np.arange(len(at.episode_N)) - first_N
        # rounding takes an eighth digit from a token that is certain
        summed_N = np.cumsum(np.maximum(energy_N, 0.0))
        W_N = summed_N - np.where(first_N > 0, summed_N[first_N - 1], 0.0)
        longest = int(number_N.max(initial=0)) + 1
        key_N = table.group_E[at.episode_N] * longest + number_N
        x_N, total = x_E[at.episode_N], np.bincount(key_N, W_N)
        weighted = np.bincount(key_N, W_N * x_E[at.episode_N])
        baseline_N = np.where(total > 0, weighted / np.where(total > 0, total, 1.0), 0.0)[key_N]
        answers_E = np.bincount(table.group_E)[table.group_E]
        lonely_N = (np.bincount(key_N)[key_N] == 1) & (answers_E[at.episode_N] > 1)
        if self.alone == "zero":
            baseline_N = np.where(lonely_N, 0.0, baseline_N)
        table.track("lonely_tokens", Values(level="token", x_N=lonely_N.astype(float)))
        return Values(level="token", x_N=x_N - baseline_N)


@stage
class PerInformative:
    """x N / M: makes up for answers that teach nothing and count in a mean (GPG, arXiv:2504.02546,
    accurate gradient estimation). N are all answers, M those

        groups    of groups whose values are not all 0, as in the paper
        rewards   whose reward is not 0, as in verl's `gpg`

    and x where there are none. Logs N / M as `informative_scale`.
    """

    by: Literal["groups", "rewards"] = "groups"
    equal: ClassVar[bool | None] = None

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, "episode")
        moves_E = x.x_N != 0
        mixed_E = np.bincount(table.group_E, moves_E)[table.group_E] > 0
        counted_E = mixed_E if self.by == "groups" else table.reward_E != 0
        scale = len(x.x_N) / max(int(counted_E.sum()), 1) if counted_E.any() else 1.0
        table.track("informative_scale", Values(level="episode", x_N=np.full(len(x.x_N), scale)))
        return Values(level="episode", x_N=scale * x.x_N)
