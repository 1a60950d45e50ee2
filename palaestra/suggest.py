"""What a user probably meant: the end of a message about a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def suggestion(
    word: str, known: Iterable[str], shown: Callable[[str], object] = str, cutoff: float = 0.6
) -> str:
    """ "; did you mean x or y?", or nothing where no known name is near.

    Args:
        shown: how a near name is written.
        cutoff: how like it must be, in [0, 1], as difflib measures.
    """
    near = close_names(word, known, cutoff)
    return (
        f"; did you mean {' or '.join(dict.fromkeys(str(shown(n)) for n in near))}?" if near else ""
    )


def close_names(word: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """At most two known names that are near, the nearest first; see `suggestion`."""
    return difflib.get_close_matches(word, [str(k) for k in known], n=2, cutoff=cutoff)


def suggestion_or_all(word: str, known: Iterable[str]) -> str:
    """A suggestion, or else all the names that there are."""
    names = [str(k) for k in known]
    return suggestion(word, names) or f"; there are {', '.join(names)}"
