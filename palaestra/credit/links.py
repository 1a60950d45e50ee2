"""Advantages chain: `Chain((Center("group"), Scale("group")))` is the advantage of GRPO.

A link maps (values, table) to values and may read signals or keep state in the table; the last step lifts the values to
tokens and makes one example per row. What a link does to a group whose rewards are all equal it
says by `equal` and `spreads` (`context.LeavesEqual`, `context.Spreads`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from palaestra.context import LeavesEqual, Spreads
from palaestra.credit import advantages as pure
from palaestra.credit.scopes import Scope, scope_keys
from palaestra.credit.table import Level, Table, Values
from palaestra.objective.kl import KLKind, kl_quantity, kl_terms
from palaestra.schedule import check_bounds
from palaestra.types import Example, Groups, Need, Signals, State, stage


class Link(Protocol):
    """A step of credit: values of a batch in, values of the same batch out, at any level."""

    def __call__(self, x: Values, table: Table) -> Values: ...


@stage
class Center:
    """x - mean over the scope; `others=True` leaves the observation itself out (RLOO). A scope of one gives 0."""

    scope: Scope = "group"
    others: bool = False
    level: Level | None = None  # lift first

    @property
    def equal(self) -> bool | None:
        return False if self.scope == "group" else None

    def __call__(self, x: Values, table: Table) -> Values:
        x = table.lift(x, self.level or x.level)
        key_N = scope_keys(table, self.scope, x.level)
        centred = pure.leave_one_out(x.x_N, key_N) if self.others else x.x_N - pure.group_mean(x.x_N, key_N)
        return Values(level=x.level, x_N=centred)


@stage
class Scale:
    """x / (std over the scope + eps). Zero variance gives 0, never an explosion."""

    scope: Scope = "group"
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_bounds("Scale.ddof", self.ddof, least=0)
        check_bounds("Scale.eps", self.eps, least=0)

    def __call__(self, x: Values, table: Table) -> Values:
        std_N = pure.group_std(x.x_N, scope_keys(table, self.scope, x.level), self.ddof)
        return Values(level=x.level, x_N=np.where(std_N > 0, x.x_N / (std_N + self.eps), 0.0))


@stage
class Shift:
    """x + by: a free baseline."""

    by: float = 0.0

    @property
    def equal(self) -> bool | None:
        return True if self.by else None

    def __call__(self, x: Values, table: Table) -> Values:
        return Values(level=x.level, x_N=x.x_N + self.by)


@stage
class Outcome:
    """`right` where the reward exceeds `above`, else `wrong`: the sign of the outcome as the advantage, without a baseline.

    Episodes of a side of weight 0 are muted: they are left out of the denominators too, not only of the gradient.
    """

    right: float = 1.0
    wrong: float = -1.0
    above: float = 0.5
    equal: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        out_E = np.where(table.reward_E > self.above, self.right, self.wrong)
        for e in np.flatnonzero(out_E == 0):
            table.episodes[e] = replace(table.episodes[e], muted=True)
        return Values(level="episode", x_N=out_E)


@stage
class Gae:
    """Token advantages from a value head: rewards sit at their events' tokens, the rest of the total at the last token.

    Values by turn that come in are the rewards instead, each at the last token of its turn. `kl` subtracts kl * `kind`, an
    estimate of KL(pi_old | pi_ref) (see `objective.kl` for what its gradient is in a reward), from every token's reward. The
    learner must need ("policy", "value") and, with kl, what `kl_needs` says. The target of the value loss, advantage + value,
    becomes the column "return".
    """

    gamma: float = 1.0
    lam: float = 0.95
    kl: float = 0.0
    kind: KLKind | None = None  # None = k1, the one whose gradient is that of the KL

    def __call__(self, x: Values, table: Table) -> Values:
        at, out = table.tokens, np.zeros(len(table.tokens.episode_N))
        reward_N = token_rewards(table) if x.level == "episode" else place_at_turn_ends(x, table)
        value_N = table_signal(table, "policy_value")
        if self.kl:
            reward_N = reward_N - self.kl * sampled_kl(table, "ref", self.kind or "k1")
        for e in range(len(table.episodes)):
            mine = np.flatnonzero(at.episode_N == e)
            out[mine] = pure.gae(reward_N[mine], value_N[mine], self.gamma, self.lam)
        table.columns["return"] = Values(level="token", x_N=out + value_N)
        return Values(level="token", x_N=out)


def place_at_turn_ends(x: Values, table: Table) -> np.ndarray:
    """[tokens] values by turn at the last token of each turn, 0 elsewhere."""
    at, turn = table.tokens, table.turns
    end = dict(zip(zip(turn.episode_N, turn.row_N, turn.position_N, strict=True), x.x_N, strict=True))
    return np.array([end.get(k, 0.0) for k in zip(at.episode_N, at.row_N, at.position_N, strict=True)])


def token_rewards(table: Table) -> np.ndarray:
    """[tokens] rewards where they were earned: events at their token, what they do not explain at the last one."""
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


def table_signal(table: Table, name: str) -> np.ndarray:
    """[tokens] a measured signal at every trained token; [tokens, V] where it is a distribution."""
    at = table.tokens
    try:
        return np.array(
            [table.signals[e][r][name][p] for e, r, p in zip(at.episode_N, at.row_N, at.position_N, strict=True)]
        )
    except KeyError:
        model, _, quantity = name.rpartition("_")
        raise KeyError(f"signal {name!r} was not measured; the learner needs ({model!r}, {quantity!r})") from None


def sampled_kl(table: Table, model: str, kind: KLKind) -> np.ndarray:
    """[tokens] an estimate of the KL to a frozen model, the policy being as it was when sampling; for full, before the update."""
    at = table.tokens
    if kind == "full":
        logp = table_signal(table, "policy_vocab_logp")
    else:
        logp = np.array(
            [table.views[e][r].logp_T[p] for e, r, p in zip(at.episode_N, at.row_N, at.position_N, strict=True)]
        )
    other = table_signal(table, f"{model}_{kl_quantity(kind)}")
    return kl_terms(torch.from_numpy(logp), torch.from_numpy(other), kind).numpy()


def kl_needs(kind: KLKind, model: str = "ref") -> tuple[Need, ...]:
    """What a learner must need for a KL in its reward."""
    return ((model, kl_quantity(kind)), *((("policy", kl_quantity(kind)),) if kind == "full" else ()))


@stage
class Chain:
    """Credit from links: starts at each episode's total reward, ends with one example per row of every unmuted episode.

    Columns: advantage [T], reward, group, episode, the row's signals, and what links left in `table.columns`.
    `unit="group"` keeps a group's rows in one micro-batch.
    """

    links: tuple[Link, ...] = ()
    unit: str = "row"

    @property
    def keeps_equal(self) -> bool:
        """Groups with equal rewards get credit, so no gate may drop them. The last link that declares it decides."""
        if any(isinstance(link, Spreads) and link.spreads for link in self.links):
            return True
        said = [link.equal for link in self.links if isinstance(link, LeavesEqual)]
        known = [equal for equal in said if equal is not None]
        return bool(known and known[-1])

    def __call__(self, groups: Groups, signals: Signals, state: State) -> tuple[list[Example], State]:
        table = Table(groups, signals, state)
        return examples(table, self.values(table), self.unit), table.state

    def values(self, table: Table) -> Values:
        """What the links make of the rewards, at the level where they leave it."""
        x = Values(level="episode", x_N=table.reward_E)
        for link in self.links:
            x = link(x, table)
        return x


def examples(table: Table, x: Values, unit: str = "row") -> list[Example]:
    """Rows of the unmuted episodes with their credit."""
    at = table.tokens
    start: dict[tuple[int, int], list[int]] = {}
    values = {name: table.lift(v, "token").x_N for name, v in {**table.columns, "advantage": x}.items()}
    for n, (e, r) in enumerate(zip(at.episode_N.tolist(), at.row_N.tolist(), strict=True)):
        start.setdefault((e, r), []).append(n)
    out: list[Example] = []
    for (e, r), mine in start.items():
        if table.episodes[e].muted:
            continue
        g, T = int(table.group_E[e]), len(table.views[e][r].ids_T)
        signals = {k: v for k, v in table.signals[e][r].items() if len(v) == T}  # features of rows stay here
        columns: dict[str, Any] = {"reward": table.reward_E[e], "group": g, "episode": e, **signals}
        for name, x_N in values.items():
            columns[name] = np.zeros(T)
            columns[name][at.position_N[mine]] = x_N[mine]
        out.append(
            Example(row=table.episodes[e].rows[r], columns=columns, unit=f"group {g}" if unit == "group" else "")
        )
    return out


def chain(*links: Link) -> Chain:
    """`chain(Center("group"), Scale("group"))`."""
    return Chain(links)
