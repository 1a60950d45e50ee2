"""One test over all rows of a table, where every row shows the same law."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

SHOWN = 60  # characters of a row without an id


def every(names: str | Sequence[str], rows: Iterable[Any], ids: Callable[[Any], str] | None = None):
    """Runs a test on every row, as `pytest.mark.parametrize` does, but as one test that names all rows that fail.

    For laws of many cheap rows. Fixtures of the test are shared by its rows, so the test may not change what they give.
    A row that skips leaves the others as they are; where all skip, the test does.

    Args:
        names: of the arguments that a row fills.
        rows: values, or tuples of values where there are several names; an empty table is an error.
        ids: the name of a row in the message; without it the row is shown, and shortened.
    """
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(rows)
    if any(isinstance(row, type(pytest.param())) for row in rows):
        raise ValueError("a row with marks is a case of its own; use pytest.mark.parametrize")
    if not rows:
        raise ValueError(f"a law about {', '.join(names)} that has no rows holds of nothing")

    def name_of(row):
        return ids(row) if ids else repr(row) if len(repr(row)) <= SHOWN else repr(row)[:SHOWN] + "…"

    def decorate(test):
        signature = inspect.signature(test)
        fixtures = [p for n, p in signature.parameters.items() if n not in names]

        @functools.wraps(test)
        def of_all(**fixtures):
            broken, skipped = [], []
            for row in rows:
                values = [row] if len(names) == 1 else row
                try:
                    test(**dict(zip(names, values, strict=True)), **fixtures)
                except pytest.skip.Exception as error:
                    skipped.append(str(error))
                except (Exception, pytest.fail.Exception) as error:
                    broken.append(f"{name_of(row)}: {type(error).__name__}: {error}")
            if len(skipped) == len(rows):
                pytest.skip(skipped[0])
            if broken:
                pytest.fail(f"{len(broken)} of {len(rows)} rows:\n" + "\n".join(broken), pytrace=False)

        of_all.__signature__ = signature.replace(parameters=fixtures)
        return of_all

    return decorate
