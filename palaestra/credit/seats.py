"""Credit where several seats act: what a seat was paid belongs to the one who sat there, and a
critic reads others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from palaestra.abilities import keeps_equal
from palaestra.context import Credit
from palaestra.errors import UserError
from palaestra.types import (
    Episode,
    Example,
    Group,
    Groups,
    Reward,
    Row,
    Signals,
    State,
    payment,
    stage,
)


def split_by_seat(groups: Groups, signals: Signals) -> tuple[Groups, Signals]:
    """A group for each trained seat that was paid, in which nobody else is trained and its pay is
    the reward; signals to match.

    So in self-play an observation is (episode, seat), compared with what the same seat was paid in
    other episodes. Trained rows of seats without pay share one more group, with the total. Where
    only the first seat is trained nothing changes: the total is its own.
    """
    split = [(part, g) for g, group in enumerate(groups) for part in _split(group)]
    return [part for part, _ in split], [signals[g] for _, g in split] if signals else signals


def _split(group: Group) -> list[Group]:
    trained = dict.fromkeys(
        r.seat for e in group.valid for r in e.rows if any(s.trained for s in r.segments)
    )
    payees = list(dict.fromkeys(s for e in group.valid if e.reward for s in e.reward.payees))
    if not payees or set(trained) <= {payees[0]}:
        return [group]
    unpaid = [s for s in trained if s not in payees]
    return [
        *(_of(group, {s}, s) for s in trained if s in payees),
        *([_of(group, unpaid)] if unpaid else []),
    ]


def _of(group: Group, seats: Collection[str], payee: str | None = None) -> Group:
    """Rows of others stay where they are, untrained: events and signals count rows by number."""

    def each(e: Episode) -> Episode:
        rows = tuple(r if r.seat in seats else freeze_row(r) for r in e.rows)
        return replace(e, rows=rows, reward=e.reward if payee is None else pay(e.reward, payee))

    return replace(group, episodes=tuple(map(each, group.episodes)))


def split_by_payee(group: Group) -> list[tuple[str, Group]]:
    """A group for each seat that was paid, with the seat's name: only its rows, its pay as the
    reward, whether trained or not.

    Where no seat has a pay of its own the group stays as it is, under the name "". The first seat
    keeps the total.
    """
    payees = list(dict.fromkeys(s for e in group.valid if e.reward for s in e.reward.payees))

    def of(seat: str, e: Episode) -> Episode:
        reward = e.reward
        if reward is not None and seat != payees[0]:
            reward = replace(reward, total=reward.parts.get(payment(seat), reward.total))
        return replace(e, rows=tuple(r for r in e.rows if r.seat == seat), reward=reward)

    seats = [
        (seat, replace(group, episodes=tuple(of(seat, e) for e in group.episodes)))
        for seat in payees
    ]
    return seats or [("", group)]


def pay(reward: Reward | None, seat: str) -> Reward | None:
    """What the world paid to a seat; a reward that knows nothing of the seat as it is."""
    part = payment(seat)
    if reward is None or part not in reward.parts:
        return reward
    paid = reward.parts[part]
    return Reward(
        total=paid, parts={part: paid}, events=tuple(e for e in reward.events if e.part == part)
    )


@stage
class Seat:
    """`credit` of one seat: what the world paid to it is the reward, and only its rows are trained.

    Learner(credit=Seat("verifier", chain(Center("group"), Scale("group"))), ...)
    """

    seat: str
    credit: Credit

    @property
    def keeps_equal(self) -> bool:
        return keeps_equal(self.credit)

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        for reward in (e.reward for g in groups for e in g.episodes):
            if reward is not None and self.seat not in reward.payees:
                has = ", ".join(reward.payees) or "one seat only"
                raise UserError(f"nothing is paid to the seat {self.seat!r}; the world pays {has}")
        return self.credit([_of(g, {self.seat}, self.seat) for g in groups], signals, state)


@stage
class Reader:
    """`credit` for a model that reads what `policy` sampled, such as a critic: it is trained on
    that one's tokens.
    """

    credit: Credit
    policy: str = "policy"

    @property
    def keeps_equal(self) -> bool:
        return keeps_equal(self.credit)

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        examples, state = self.credit(groups, signals, state)
        return [
            replace(e, columns={**e.columns, "trained": e.row.view(self.policy).trained_T})
            for e in examples
        ], state


def freeze_row(row: Row) -> Row:
    """The row as context: nothing in it is trained."""
    return replace(row, segments=tuple(replace(s, trained=False) for s in row.segments))


@stage
class Own:
    """`credit` of the answers that one agent gave, with what its own model says of them under the
    names that are the policy's elsewhere.
    """

    model: str
    credit: Credit

    @property
    def keeps_equal(self) -> bool:
        return keeps_equal(self.credit)

    def __call__(
        self, groups: Groups, signals: Signals, state: State
    ) -> tuple[list[Example], State]:
        def own(e: Episode) -> bool:
            return any(s.trained and s.policy == self.model for r in e.rows for s in r.segments)

        kept = [[i for i, e in enumerate(g.episodes) if own(e)] for g in groups]
        mine = [
            replace(g, episodes=tuple(g.episodes[i] for i in at))
            for g, at in zip(groups, kept, strict=True)
        ]
        own_signals = [
            [measured[i] if self.model == "policy" else self._renamed(measured[i]) for i in at]
            for measured, at in zip(signals, kept, strict=False)
        ]
        return self.credit(mine, own_signals, state)

    def _renamed(self, measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
        mark = f"{self.model}_"

        def own(row: dict[str, Any]) -> dict[str, Any]:
            return {k.removeprefix(mark): v for k, v in row.items() if k.startswith(mark)}

        return [row | {f"policy_{k}": v for k, v in own(row).items()} for row in measured]
