"""Parts of an answer between tags, as tokens: where the text of <context>...</context> stands in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.declared import declare
from palaestra.types import Episode, Group, Key, stage

if TYPE_CHECKING:
    from palaestra.context import Context

UNREAD = "\ufffd"  # what decoders make of a part of a character
LONGEST = 8  # tokens of a character


def token_ranges(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> tuple[str, list[tuple[int, int]]]:
    """The text of ids, and for each token the characters that it spells or shares: from, and up to."""
    text, ranges, pending = "", list[tuple[int, int]](), list[int]()
    for i in ids:
        pending.append(i)
        piece = decode(tuple(pending))
        if piece.endswith(UNREAD) and len(pending) < LONGEST:
            continue
        ranges += [(len(text), len(text) + len(piece))] * len(pending)
        text, pending = text + piece, []
    if pending:  # it ends within a character
        piece = decode(tuple(pending))
        ranges += [(len(text), len(text) + len(piece))] * len(pending)
        text += piece
    return text, ranges


def span_of(text: str, tag: str) -> tuple[int, int] | None:
    """The characters between the first <tag> and the </tag> behind it; None where one is missing."""
    begin = text.find(f"<{tag}>")
    if begin < 0:
        return None
    begin += len(tag) + 2
    end = text.find(f"</{tag}>", begin)
    return None if end < 0 else (begin, end)


def tagged_text(text: str, tag: str) -> str:
    """What stands between the first <tag> and the </tag> behind it, without blanks around it; "" where
    one is missing.
    """
    span = span_of(text, tag)
    return text[slice(*span)].strip() if span else ""


def tagged_tokens(
    episode: Episode, tag: str, decode: Callable[[Sequence[int]], str]
) -> tuple[tuple[int, int, int], ...]:
    """(row, first, last) of the tokens between the tags, as places of the row's training view, for each
    run of sampled tokens that has both. A token counts where it has a character of the inside.
    """
    spans = list[tuple[int, int, int]]()
    for r, row in enumerate(episode.rows):
        at = 0
        for s in row.segments:
            if s.trained and (s.logp is not None or s.author == "demonstration"):
                text, ranges = token_ranges(s.ids, decode)
                if (span := span_of(text, tag)) is not None:
                    inside = [t for t, (a, b) in enumerate(ranges) if b > span[0] and a < span[1]]
                    spans += [(r, at + inside[0], at + inside[-1])] if inside else []
            at += 0 if s.hidden else len(s.ids)
    return tuple(spans)


@declare(facts=(("spans", dict, "by tag, (row, first, last) of the tokens between the tags"),))
@stage
class MarkSpans:
    """A link that leaves in each episode's facts `spans`: by tag, where the tokens between <tag> and
    </tag> stand. They are found in the text by the tokens' offsets, however it is tokenised.
    """

    tags: tuple[str, ...] = ("think",)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        def marked(e: Episode) -> Episode:
            spans = {tag: tagged_tokens(e, tag, ctx.decode) for tag in self.tags}
            return replace(e, facts={**e.facts, "spans": spans})

        return replace(group, episodes=tuple(marked(e) if e.ok else e for e in group.episodes))
