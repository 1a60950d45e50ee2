"""Who sits where, by episode: the policy, a frozen model, an earlier self, a script, an endpoint.

    Sample(cast=Alternate(Frozen("past")))                one seat is the policy's, by turns
    Sample(cast=Sometimes(Alternate(Frozen("past")), 0.5))   else self-play
    references={"past": Snapshots(every=20, keep=4)}      its earlier selves

A cast is decided by the episode's key and the snapshots that there are, so it is the same wherever
and whenever the episode is played. Only what the policy says is trained; the pay of a seat that
another has is nobody's credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from palaestra.errors import UserError
from palaestra.rollout.player import EnginePlayer
from palaestra.schedule import check_bounds
from palaestra.types import Key, Player, Sampling, need_at_least, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context, Models


class Cast(Protocol):
    """Says who plays an episode."""

    def __call__(
        self, ctx: Context, key: Key, sampling: Sampling, seats: Mapping[str, Player]
    ) -> Mapping[str, Player]:
        """The players by seat, in the seats' order.

        Args:
            key: of the episode: all that may be drawn from.
            sampling: as the policy samples in it.
            seats: who would sit there.
        """
        ...


class Rival(Protocol):
    """Who may sit in the seat of another; nobody trains on what a rival says."""

    def __call__(self, ctx: Context, key: Key, sampling: Sampling) -> Player: ...


@stage
class Alternate:
    """The policy keeps one of its seats, each as often; the others are a rival's. A seat with a
    player of its own keeps that. Raises UserError where the policy has fewer than two seats.
    """

    rival: Rival

    def __call__(
        self, ctx: Context, key: Key, sampling: Sampling, seats: Mapping[str, Player]
    ) -> Mapping[str, Player]:
        own = [seat for seat, p in seats.items() if p.policy]
        if len(own) < 2:
            raise UserError(
                f"{len(own)} of {len(seats)} seats are the policy's; it needs two to swap"
            )
        kept = own[int(rng_of((*key, "seat")).integers(len(own)))]
        other = self.rival(ctx, (*key, "rival"), sampling)
        return {seat: other if seat in own and seat != kept else p for seat, p in seats.items()}


@stage
class Sometimes:
    """A cast with probability `p`, else who would sit there: in a game that is the policy in every
    seat.
    """

    cast: Cast
    p: float = 0.5

    def __call__(
        self, ctx: Context, key: Key, sampling: Sampling, seats: Mapping[str, Player]
    ) -> Mapping[str, Player]:
        if rng_of((*key, "sometimes")).random() >= self.p:
            return seats
        return self.cast(ctx, key, sampling, seats)


@stage
class Frozen:
    """A model of the run that is not trained, by the name of its reference. Of one that keeps
    snapshots, one of these, each as often.
    """

    name: str

    def __call__(self, ctx: Models, key: Key, sampling: Sampling) -> Player:
        kept = ctx.snapshots(self.name)
        names = list(kept) or [self.name]
        chosen = names[int(rng_of((*key, "snapshot")).integers(len(names)))]
        author = f"{self.name}@{kept[chosen]}" if kept else self.name
        return EnginePlayer(engine=ctx.engine(chosen), sampling=sampling, name=author, policy="")


@stage
class Acted:
    """A player that needs no run: a `Script`."""

    player: Player

    def __call__(self, ctx: Context, key: Key, sampling: Sampling) -> Player:
        return self.player


@stage
class Either:
    """One of several rivals, each as often."""

    rivals: tuple[Rival, ...]

    def __call__(self, ctx: Context, key: Key, sampling: Sampling) -> Player:
        chosen = self.rivals[int(rng_of((*key, "either")).integers(len(self.rivals)))]
        return chosen(ctx, key, sampling)


@stage
class Snapshots:
    """A reference that moves: a copy of a learner's model as it is before step 0, `every`, 2
    `every`, ... The last `keep` of them stay, in checkpoints too.

    With `keep` 1 the reference is the newest one; with more, rivals draw among them (`Frozen`).
    """

    every: int = 20
    keep: int = 4
    model: str = "policy"
    clock: ClassVar[str] = "every"

    def __post_init__(self) -> None:
        need_at_least(self, every=1, keep=1)


@stage
class MovingAverage:
    """A reference that follows a learner: the exponential moving average of its weights.

        average <- (1 - rate) average + rate learner,    before every step but the first

    It begins as the learner does; rate 1 is the learner itself, 0 stays at the start. The average is
    kept in float32, in checkpoints too; of adapters each factor is averaged by itself.
    """

    rate: float = 0.05
    model: str = "policy"

    def __post_init__(self) -> None:
        check_bounds("MovingAverage.rate", self.rate, least=0, most=1)


Moving: TypeAlias = Snapshots | MovingAverage  # references that follow a learner
