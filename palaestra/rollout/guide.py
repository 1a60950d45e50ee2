"""Guided attempts: a link is played on a task that says more, or with replies that have been begun,
and what it makes joins the group of the bare task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from palaestra.abilities import ReplaysRecords
from palaestra.context import Collect, Rewrite
from palaestra.declared import DeclaredName
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample
from palaestra.rollout.player import EnginePlayer, Handover
from palaestra.types import (
    Episode,
    Group,
    Key,
    Player,
    Row,
    Segment,
    need_at_least,
    rng_of,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Context

# a text to be shown; "" = none
GuidanceSource: TypeAlias = "Callable[[Context, Group, np.random.Generator], str]"


@stage
class Mark:
    """Runs `link`; the episodes that it adds have the fact `name` with the value."""

    link: Collect
    name: str
    value: float = 1.0

    @property
    def recorded(self) -> bool:
        """Whether the link samples nothing."""
        return isinstance(self.link, ReplaysRecords) and self.link.recorded

    @property
    def writes_facts(self) -> tuple[DeclaredName, ...]:
        return (DeclaredName(self.name, float, "the value that `Mark` gives it"),)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        made = await self.link(ctx, key, group)
        n = len(group.episodes)
        return replace(made, episodes=(*made.episodes[:n], *map(self._marked, made.episodes[n:])))

    def _marked(self, e: Episode) -> Episode:
        return replace(e, facts={**e.facts, self.name: self.value})


@stage
class Under:
    """Runs `link` on the task as `rewrite` puts it; its episodes join the group with the fact
    `mark`, whose value is `value`. With nothing to show, nothing is played.

    The rewrite sees the group as it is, so it may answer an attempt. `times` runs the link so
    often, each time on a rewrite of its own. The row keeps what was really seen; with a `Hide`
    behind, training sees the bare prompt.
    """

    rewrite: Rewrite
    link: Collect
    mark: str = "guided"
    value: float = 1.0
    times: int = 1

    def __post_init__(self) -> None:
        need_at_least(self, times=1)

    @property
    def writes_facts(self) -> tuple[DeclaredName, ...]:
        return (DeclaredName(self.mark, float, "the value of `Under` where more was shown"),)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        joined = group
        for i in range(self.times):
            task = self.rewrite(ctx, group, rng_of((*key, "rewrite", i)))
            if task is None:
                continue
            link = Mark(self.link, self.mark, self.value)
            made = await link(ctx, (*key, self.mark, i), Group(task=task))
            with_prompts = [replace(e, prompt=e.prompt or task.prompt) for e in made.episodes]
            joined = replace(joined, episodes=(*joined.episodes, *with_prompts))
        return joined


@stage
class Begin:
    """Plays `sample` with replies that begin with what `guidance` says: forced starts, which carry
    no gradient. Its episodes have the fact `mark`; with nothing to say, nothing is played.
    """

    guidance: GuidanceSource
    sample: Sample = Sample()
    mark: str = "guided"
    value: float = 1.0

    @property
    def writes_facts(self) -> tuple[DeclaredName, ...]:
        return (DeclaredName(self.mark, float, "the value of `Begin` where the reply was begun"),)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        text = self.guidance(ctx, group, rng_of((*key, "rewrite", 0)))
        if not text:
            return group
        ids = ctx.engine(self.sample.model).dialect.encode_text(text)
        segment = Segment(ids=ids, author="forced", text=text)

        def begun(p: Player) -> Player:
            own = isinstance(p, EnginePlayer) and p.policy == self.sample.model
            return Handover(player=p, said=segment) if own and isinstance(p, EnginePlayer) else p

        async def play(ctx: Context, key: Key, group: Group) -> Group:
            cast = {seat: begun(p) for seat, p in self.sample.players(ctx).items()}
            return await self.sample.play(ctx, key, group, cast)

        return await Mark(play, self.mark, self.value)(ctx, key, group)


@stage
class Hide:
    """Hides from training what the prompts of the episodes with the fact `mark` have beyond the
    bare one: their rows' training view is that of the bare prompt, and log-probs are measured
    there. Behaviour log-probs stay those of the prompt that was seen.

    Raises UserError where the bare prompt is not the guided one with one run of tokens left out: a
    tokenizer may join the guidance with what stands beside it; set it apart by a line break, or as
    a message of its own.
    """

    mark: str = "guided"

    @property
    def names_facts(self) -> tuple[str, ...]:
        return (self.mark,)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        def bare(e: Episode) -> Episode:
            if not e.ok or not e.facts.get(self.mark) or not e.rows:
                return e
            model = next((s.policy for r in e.rows for s in r.segments if s.policy), "policy")
            pieces = ctx.engine(model).dialect.extend(group.task.prompt, first=True, closed=False)
            # what the template begins of a reply is no part of the prompt
            ids = tuple(i for p in pieces if p.author != "forced" for i in p.ids)
            return replace(e, rows=(hide_beyond(e.rows[0], ids, group.task.id), *e.rows[1:]))

        return replace(group, episodes=tuple(map(bare, group.episodes)))


def hide_beyond(row: Row, bare: tuple[int, ...], of: str = "") -> Row:
    """The row with the run of its prompt hidden that `bare` does not have.

    Args:
        bare: ids of a prompt.
        of: the task, for the message.

    Raises:
        UserError: the prompt, without any one run of its tokens, is not `bare`.
    """
    # a demonstrated reply is trained, and nobody said it
    heard = next(
        (n for n, s in enumerate(row.segments) if s.replies or s.trained), len(row.segments)
    )
    seen = tuple(i for s in row.segments[:heard] for i in s.ids)
    more = len(seen) - len(bare)
    same = next((n for n, (a, b) in enumerate(zip(seen, bare, strict=False)) if a != b), len(bare))
    if more < 0 or seen[same + more :] != bare[same:]:
        raise UserError(
            f"task {of!r}: its bare prompt is not the guided one with one run of tokens left out, so "
            "the guidance cannot be hidden; set it apart by a line break, or as a message of its own, "
            "and where the chat template has a system message that the guidance replaces, show it "
            'behind the question: place="prompt" of `Criteria`, place=prompt of ruscarl'
        )
    segments, at = list[Segment](), 0
    for s in row.segments[:heard]:
        begin, end = (min(max(x - at, 0), len(s.ids)) for x in (same, same + more))
        segments += _hide_part(s, begin, end)
        at += len(s.ids)
    return replace(row, segments=(*segments, *row.segments[heard:]))


def _hide_part(s: Segment, begin: int, end: int) -> Sequence[Segment]:
    """The segment, parted so that the tokens from `begin` to `end` are hidden; its text stays with
    its longest part.
    """
    if begin == end:
        return [s]
    parts = [(0, begin, s.hidden), (begin, end, True), (end, len(s.ids), s.hidden)]
    parts = [p for p in parts if p[0] < p[1]]
    longest = max(parts, key=lambda p: p[1] - p[0])
    return [
        replace(s, ids=s.ids[a:b], hidden=h, text=s.text if (a, b, h) == longest else "")
        for a, b, h in parts
    ]
