"""Generalised advantage estimation: advantages of tokens from a value head, and a KL in
the reward.
"""

from __future__ import annotations

import numpy as np
import torch

from palaestra.credit import advantages as pure
from palaestra.credit.table import Table, Values, table_signal
from palaestra.objective.kl import KLKind, kl_quantity, kl_terms
from palaestra.types import Need, stage


@stage
class Gae:
    """Token advantages from a value head: rewards sit at their events' tokens, the rest of the
    total at the last token.

    Values by turn that come in are the rewards instead, each at the last token of its turn. `kl`
    subtracts kl * `kind`, an estimate of KL(pi_old | pi_ref) (see `objective.kl` for what its
    gradient is in a reward), from every token's reward. The learner must need ("policy", the value
    head) and, with kl, what `kl_needs` says. The target of the value loss, advantage + value, becomes the
    column "return".
    """

    gamma: float = 1.0
    lam: float = 0.95
    kl: float = 0.0
    kind: KLKind | None = None  # None = k1, the one whose gradient is that of the KL
    head: str = ""  # the value head; "" = "value"

    def __call__(self, x: Values, table: Table) -> Values:
        at, out = table.tokens, np.zeros(len(table.tokens.episode_N))
        reward_N = token_rewards(table) if x.level == "episode" else place_at_turn_ends(x, table)
        value_N = table_signal(table, f"policy_{self.head or 'value'}")
        if self.kl:
            reward_N = reward_N - self.kl * sampled_kl(table, "ref", self.kind or "k1")
        for e in range(len(table.episodes)):
            mine = np.flatnonzero(at.episode_N == e)
            out[mine] = pure.gae(reward_N[mine], value_N[mine], self.gamma, self.lam)
        table.add_column("return", Values(level="token", x_N=out + value_N))
        return Values(level="token", x_N=out)


def place_at_turn_ends(x: Values, table: Table) -> np.ndarray:
    """[tokens] values by turn at the last token of each turn, 0 elsewhere."""
    at, turn = table.tokens, table.turns
    end = dict(
        zip(zip(turn.episode_N, turn.row_N, turn.position_N, strict=True), x.x_N, strict=True)
    )
    return np.array(
        [end.get(k, 0.0) for k in zip(at.episode_N, at.row_N, at.position_N, strict=True)]
    )


def token_rewards(table: Table) -> np.ndarray:
    """[tokens] rewards where they were earned: events at their token, what they do not explain at
    the last one.
    """
    at, out = table.tokens, np.zeros(len(table.tokens.episode_N))
    for e, episode in enumerate(table.episodes):
        mine = np.flatnonzero(at.episode_N == e)
        if not len(mine):
            continue
        rest = episode.total
        for event in episode.reward.events if episode.reward else ():
            row = mine[at.row_N[mine] == event.row]
            if not len(row):
                continue  # paid to a row without a trained token: part of the total
            before = row if event.token < 0 else row[at.position_N[row] <= event.token]
            out[before[-1] if len(before) else row[0]] += event.value
            rest -= event.value
        out[mine[-1]] += rest
    return out


def sampled_kl(table: Table, model: str, kind: KLKind) -> np.ndarray:
    """[tokens] an estimate of the KL to a frozen model, the policy being as it was when sampling;
    for full, before the update.
    """
    at = table.tokens
    if kind == "full":
        logp = table_signal(table, "policy_vocab_logp")
    else:
        logp = np.array(
            [
                table.views[e][r].logp_T[p]
                for e, r, p in zip(at.episode_N, at.row_N, at.position_N, strict=True)
            ]
        )
    other = table_signal(table, f"{model}_{kl_quantity(kind)}")
    return kl_terms(torch.from_numpy(logp), torch.from_numpy(other), kind).numpy()


def kl_needs(kind: KLKind, model: str = "ref") -> tuple[Need, ...]:
    """What a learner must need for a KL in its reward.

    Args:
        kind: the estimator; "full" takes whole distributions, the learner's own among them.
        model: the frozen model, by its name in the recipe's references.
    """
    return (
        (model, kl_quantity(kind)),
        *((("policy", kl_quantity(kind)),) if kind == "full" else ()),
    )
