"""Listwise reranking: a model reads a query and numbered passages and writes their order; long lists go
through it in windows, from the back to the front (RankGPT, arXiv:2304.09542).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestra.schedule import check_bounds
from palaestra.services.chat.base import question_messages
from palaestra.types import ChatRequest
from palaestra.verifiers.orders import ORDER_PASSAGES, rank_question, read_order

if TYPE_CHECKING:
    from palaestra.context import Judging, Source


def window_spans(n: int, window: int, stride: int) -> list[tuple[int, int]]:
    """Where windows over `n` passages begin and end, from the back to the front.

    There are ceil((n - window) / stride) + 1 of them, and one where n <= window; the last one begins at the
    first passage. Raises UserError for a stride of 0, or one that is longer than the window.
    """
    check_bounds("a listwise reranker: window", window, least=1)
    check_bounds("a listwise reranker: stride", stride, least=1, most=window)
    starts = [*range(n - window, 0, -stride), 0]
    return [(start, min(n, start + window)) for start in starts] if n > window else [(0, n)]


async def rank_once(
    ctx: Judging,
    source: Source,
    query: str,
    texts: Sequence[str],
    *,
    usage: str = ORDER_PASSAGES,
    tokens: int = 512,
    seed: int = 0,
) -> tuple[int, ...] | None:
    """The order in which a reranker puts passages, by their numbers from 1, in one greedy call; None where
    its reply names none of them.

    Args:
        usage: what stands below the passages.
        tokens: that it may write; one that thinks needs more.

    Raises:
        Fault: the reranker cannot be asked.
    """
    question = question_messages(rank_question(query, texts, usage))
    asked = ChatRequest(messages=question, max_tokens=tokens, seed=seed)
    reply = await ctx.ask(source, asked, seed=seed)
    return read_order(reply, len(texts), list(zip(texts, texts, strict=True)))


async def rank_windows(
    ctx: Judging,
    source: Source,
    query: str,
    texts: Sequence[str],
    *,
    window: int = 20,
    stride: int = 10,
    usage: str = ORDER_PASSAGES,
    tokens: int = 512,
    seed: int = 0,
) -> tuple[tuple[int, ...], int]:
    """The order of a long list by windows of `window` passages, each moved on by `stride`, and how many of its
    calls named no passage; a window stays as it is there. Raises Fault as `rank_once` does.
    """
    order, unread = list(range(1, len(texts) + 1)), 0
    for start, end in window_spans(len(texts), window, stride):
        inside = order[start:end]
        if len(inside) < 2:
            continue
        window_texts = [texts[i - 1] for i in inside]
        ranked = await rank_once(
            ctx, source, query, window_texts, usage=usage, tokens=tokens, seed=seed
        )
        unread += ranked is None
        order[start:end] = [inside[i - 1] for i in ranked or range(1, len(inside) + 1)]
    return tuple(order), unread
