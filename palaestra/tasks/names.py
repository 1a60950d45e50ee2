"""What a user probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or nothing where no known name is near."""
    near = get_close_matches(word, [str(k) for k in known], n=2)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
