"""Groups for tests of any family."""

from palaestra.types import Group

from tests.fake import episode, task

FOUR = [[{"reward": r, "length": n} for r, n in zip([1, 0, 0, 0], [2, 4, 4, 4], strict=True)]]


def played(*totals):
    """A finished group."""
    return Group(task=task("t", (0,), ()), episodes=tuple(episode((0,), (1, 2), float(r)) for r in totals))
