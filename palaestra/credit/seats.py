"""Credit in a run of several learners: what a seat was paid belongs to the one who sat there, and a critic reads others."""

from __future__ import annotations

from dataclasses import replace

from palaestra.types import Credit, Episode, Example, Group, Groups, Reward, Row, Signals, State, UserError, stage


@stage
class Seat:
    """`credit` of one seat: what the world paid to it is the reward, and only its rows are trained.

    Learner(credit=Seat("verifier", chain(Center("group"), Scale("group"))), ...)
    """

    seat: str
    credit: Credit

    @property
    def keeps_equal(self) -> bool:
        return bool(getattr(self.credit, "keeps_equal", False))

    def __call__(self, groups: Groups, signals: Signals, state: State) -> tuple[list[Example], State]:
        return self.credit([self._group(g) for g in groups], signals, state)

    def _group(self, group: Group) -> Group:
        return replace(group, episodes=tuple(self._episode(e) for e in group.episodes))

    def _episode(self, episode: Episode) -> Episode:
        """Rows of others stay where they are, untrained: events and signals count rows by number."""
        rows = tuple(r if r.seat == self.seat else untrained(r) for r in episode.rows)
        return replace(episode, rows=rows, reward=self._reward(episode.reward))

    def _reward(self, reward: Reward | None) -> Reward | None:
        part = f"seat:{self.seat}"
        if reward is None:
            return None
        if part not in reward.parts:
            has = ", ".join(k.removeprefix("seat:") for k in reward.parts if k.startswith("seat:")) or "one seat only"
            raise UserError(f"nothing is paid to the seat {self.seat!r}; the world pays {has}")
        return Reward(total=reward.parts[part], events=tuple(e for e in reward.events if e.part == part))


@stage
class Reader:
    """`credit` for a model that reads what `policy` sampled, such as a critic: it is trained on that one's tokens."""

    credit: Credit
    policy: str = "policy"

    @property
    def keeps_equal(self) -> bool:
        return bool(getattr(self.credit, "keeps_equal", False))

    def __call__(self, groups: Groups, signals: Signals, state: State) -> tuple[list[Example], State]:
        examples, state = self.credit(groups, signals, state)
        return [
            replace(e, columns={**e.columns, "trained": e.row.view(self.policy).trained_T}) for e in examples
        ], state


def untrained(row: Row) -> Row:
    """The row as context: nothing in it is trained."""
    return replace(row, segments=tuple(replace(s, trained=False) for s in row.segments))
