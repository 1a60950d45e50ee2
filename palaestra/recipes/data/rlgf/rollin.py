"""Attempts that one of two models begins and the other one ends."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import palaestra as pl

MARK, ENDS = "rolled-in", "guide-ends"


@pl.declare(
    facts=(
        ("rolled-in", float, "the share of the answer that was of another policy"),
        ("guide-ends", float, "1 where the guide ends what the policy begins"),
    )
)
@pl.stage
class RollIn:
    """`n` attempts that one of the policy and `guide` begins and the other one ends, see the
    method. They have the facts "rolled-in", the share of the answer's tokens that the first said,
    and "guide-ends".

    Args:
        beta: the probability of a roll-in.
        student: the probability of a step in which the policy ends what the guide begins; in the
            other steps it is the other way round.
    """

    n: int = 8
    beta: float = 0.8
    student: float = 1.0
    guide: str = "guide"
    sample: pl.Sample = pl.Sample(n=1)

    def __post_init__(self) -> None:
        pl.check_bounds("RollIn.beta", self.beta, least=0, most=1)
        pl.check_bounds("RollIn.student", self.student, least=0, most=1)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        student = bool(pl.rng_of((key[0], "roles", ctx.step)).random() < self.student)
        own = self.sample.players(ctx)
        frozen = pl.rollout.Frozen(self.guide)(ctx, key, self.sample.sampling(ctx))
        other = {s: frozen if isinstance(p, pl.rollout.EnginePlayer) else p for s, p in own.items()}
        first, second = (other, own) if student else (own, other)
        parts = [
            self._attempt(ctx, (*key, i), group.task, first, second, student) for i in range(self.n)
        ]
        made = [e for e in await asyncio.gather(*parts) if e is not None]
        return replace(group, episodes=(*group.episodes, *made))

    async def _attempt(
        self,
        ctx: pl.Context,
        key: pl.Key,
        task: pl.Task,
        first: Mapping[str, pl.Player],
        second: Mapping[str, pl.Player],
        student: bool,
    ) -> pl.Episode | None:
        """None = an attempt in which the policy would say nothing."""
        rolls, u = pl.rng_of((*key, "roll-in")).random(2)
        turn, sample = None, replace(self.sample, n=1)
        if rolls < self.beta:
            begun = await sample.play(ctx, (*key, "in"), pl.Group(task=task), first)
            if not begun.episodes[0].ok:
                return begun.episodes[0]
            turn = first_turn(begun.episodes[0])
        if turn is None or len(turn.ids) < 2:
            if not student:
                return None
            made = await sample.play(ctx, (*key, "out"), pl.Group(task=task), second)
            return _with(made.episodes[0], 0.0, student)
        kept = cut_turn(turn, kept_tokens(u, len(turn.ids)), ctx.decode)

        def handed(p: pl.Player) -> pl.Player:
            return (
                pl.rollout.Handover(player=p, said=kept)
                if isinstance(p, pl.rollout.EnginePlayer)
                else p
            )

        cast = {seat: handed(p) for seat, p in second.items()}
        made = await sample.play(ctx, (*key, "out"), pl.Group(task=task), cast)
        e = made.episodes[0]
        return _with(e, len(kept.ids) / max(e.n_sampled, 1), student)


def kept_tokens(u: float, length: int) -> int:
    """h, uniform in 1..length - 1 for a uniform u in [0, 1)."""
    return 1 + int(u * (length - 1))


def first_turn(e: pl.Episode) -> pl.Segment | None:
    """What was sampled in the first turn; None = nothing."""
    return next((s for row in e.rows for s in row.segments if s.logp is not None), None)


def cut_turn(turn: pl.Segment, h: int, decode: Any) -> pl.Segment:
    """The first `h` tokens of a turn, which is open then."""
    ids = turn.ids[:h]
    return replace(
        turn,
        ids=ids,
        logp=None if turn.logp is None else turn.logp[:h],
        moved=tuple((i, v) for i, v in turn.moved if i < h),
        text=decode(ids),
        finish="",
    )


def _with(e: pl.Episode, share: float, student: bool) -> pl.Episode:
    return replace(e, facts={**e.facts, MARK: share, ENDS: float(not student)})
