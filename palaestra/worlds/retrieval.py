"""Fixed retrievers: an index of documents, or a search function of the user's own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from palaestra.errors import Fault, UserError
from palaestra.services.index import BM25, Hit
from palaestra.tasks.user_code import locate_error
from palaestra.types import Task, stage
from palaestra.worlds.toolbox import function_named

KEPT = 4096  # queries whose hits are remembered


class Retriever(Protocol):
    """Finds documents for a query, always the same ones."""

    def search(self, query: str, k: int = 3) -> tuple[Hit, ...] | Awaitable[tuple[Hit, ...]]:
        """The `k` best documents, best first: (id, text, score)."""
        ...


@stage
class OwnSearch:
    """`FILE.py:NAME`, a function of the user's own: `search(query)` or `search(query, k)` returns
    documents, best first, each as its id, (id, text), or {"id": ..., "text": ...}; an async
    function will do. The same query is asked once.

    Raises:
        UserError: for any other result, or an error of the function's, with the line.
        Fault: where the function raises one, or an OSError, such as a service that is away.
    """

    spec: str

    def __post_init__(self) -> None:
        function_named(self.spec)

    async def search(self, query: str, k: int = 3) -> tuple[Hit, ...]:
        function = function_named(self.spec)
        given = (query, k) if takes_number(function) else (query,)
        try:
            documents = await asyncio.to_thread(call, function, given)
        except (Fault, UserError):
            raise
        except Exception as error:
            message = (
                f"{locate_error(error, inspect.getsourcefile(function) or '?')} (in {self.spec})"
            )
            raise (Fault if isinstance(error, OSError) else UserError)(message) from error
        return tuple(self._hit(x, place) for place, x in enumerate(listed(documents, self.spec)))[
            :k
        ]

    def _hit(self, document: Any, place: int) -> Hit:
        """A document of the function's; its score is 1 over its place."""
        if isinstance(document, str):
            return document, "", 1 / (place + 1)
        if isinstance(document, Mapping) and isinstance(document.get("id"), str):
            return document["id"], str(document.get("text", "")), 1 / (place + 1)
        if (
            isinstance(document, list | tuple)
            and len(document) >= 2
            and isinstance(document[0], str)
        ):
            return document[0], str(document[1]), 1 / (place + 1)
        raise not_documents(self.spec, document)


def check_gold(retriever: Retriever, gold: Iterable[str], task: Task) -> None:
    """Raises UserError for a gold document that an index does not have; what a search of the user's
    own has is not known.
    """
    if not isinstance(retriever, BM25):
        return
    if unknown := sorted(set(gold) - retriever.names):
        raise UserError(
            f"task {task.id!r}: its gold document {unknown[0]!r} is none of the documents, "
            f"whose names are such as {retriever.docs[0][0]!r}"
        )


def call(function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """What a function returns, awaited where it is async."""
    made = function(*given)
    return asyncio.run(finish(made)) if inspect.isawaitable(made) else made


async def finish(made: Awaitable[Any]) -> Any:
    return await made


def takes_number(function: Callable[..., Any]) -> bool:
    """Whether a search function takes the number of documents behind the query."""
    places = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    return len(places) > 1 or any(p.kind is p.VAR_POSITIONAL for p in places)


def listed(documents: Any, spec: str) -> list[Any]:
    """The documents that a search function returned."""
    if isinstance(documents, str | Mapping) or not isinstance(documents, Iterable):
        raise not_documents(spec, documents)
    return list(documents)


def not_documents(spec: str, value: Any) -> UserError:
    return UserError(
        f"{spec} returned {' '.join(repr(value).split())[:60]}; a search returns documents, best "
        'first, each as its id, (id, text) or {"id": ..., "text": ...}'
    )


async def find(
    retriever: Retriever, query: str, k: int, kept: dict[str, tuple[Hit, ...]]
) -> tuple[Hit, ...]:
    """The hits of any retriever; of a query that was asked before those in `kept`, which is for one
    `k` and retriever.
    """
    if query not in kept:
        pending = retriever.search(query, k)
        hits = await pending if inspect.isawaitable(pending) else pending
        if len(kept) >= KEPT:
            kept.clear()
        kept[query] = hits
    return kept[query]
