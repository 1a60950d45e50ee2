"""Records of the user's data that are at fault: they stop a run, or are left out, and then said."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palaestra.errors import UserError

TOLD = 3  # records that are at fault, which are told together
LISTED = 20  # places of records that are left out, which are named
FEW = 0.1  # share of the records up to which a message says how to leave them out
LIMIT = re.compile(r"\d+|\d+(\.\d+)?%|0?\.\d+")


def most_omissions(limit: str, n: int) -> int:
    """How many of `n` records may be left out.

    Args:
        limit: a number of records, "20", or a share of them, "1%" or "0.01"; "" = none.

    Raises:
        UserError: it is neither.
    """
    if not limit:
        return 0
    if not LIMIT.fullmatch(limit) or (limit.endswith("%") and float(limit[:-1]) > 100):
        raise UserError(
            f"--skip-bad {limit}: write how many records may be left out, e.g. 20, or a share of "
            "them, e.g. 1%"
        )
    if limit.isdecimal():
        return int(limit)
    share = float(limit[:-1]) / 100 if limit.endswith("%") else float(limit)
    return int(share * n + 1e-9)


class RecordFaults:
    """What is wrong with records: how many are at fault, the first of them for a message, and all
    of them for a file.
    """

    def __init__(self) -> None:
        self.n = 0
        self.reasons: list[tuple[str, str]] = []  # where, and what is wrong there
        self.places: list[str] = []
        self.first: dict[str, list[str]] = {}  # where, by what is wrong

    def add(self, where: str, error: UserError) -> None:
        """Counts a record. `where` is its place, which the error may begin with."""
        self.n += 1
        reason = str(error).removeprefix(f"{where}: ")
        self.reasons.append((where, reason))
        if self.n <= LISTED:
            self.places.append(where)
        if self.n <= TOLD:
            self.first.setdefault(reason, []).append(where)

    def settle(self, limit: str, of: int, most: int | None = None, *, advise: bool = True) -> str:
        """A line about the records that are left out, "" without any.

        Args:
            limit: what the user allows, see `most_omissions`.
            of: how many records there are.
            most: how many may be left out, where it is not what the limit allows of all.
            advise: whether an error says how to leave records out.

        Raises:
            UserError: more are at fault than may be left out. It tells the first, each with its
                place, and how many there are.
        """
        if not self.n:
            return ""
        most = most_omissions(limit, of) if most is None else most
        if self.n > most:
            raise UserError(". ".join(self._sentences(of, limit, most, advise)))
        also = self.places[TOLD:]
        more = f" and {self.n - LISTED:,} others" if self.n > LISTED else ""
        are = "is" if self.n == 1 else "are"
        lines = [*self._each(), *([f"Also {', '.join(also)}{more}"] if also else [])]
        return (
            f"{self.n:,} of {of:,} records {are} left out (--skip-bad {limit}): {'. '.join(lines)}"
        )

    def _each(self) -> list[str]:
        return [
            f"{place}: {text}" + (f" (also {' and '.join(others)})" if others else "")
            for text, (place, *others) in self.first.items()
        ]

    def _sentences(self, of: int, limit: str, most: int, advise: bool) -> Iterator[str]:
        yield from self._each()
        if (more := self.n - TOLD) > 0:
            yield f"{more:,} more {'record is' if more == 1 else 'records are'} at fault"
        if limit and advise:
            yield f"{self.n:,} of {of:,} are, and --skip-bad {limit} leaves out {most:,} at most here"
        elif advise and self.n <= FEW * of:
            yield f"--skip-bad {self.n} leaves {'them' if self.n > 1 else 'it'} out"
