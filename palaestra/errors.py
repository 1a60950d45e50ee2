"""What can go wrong, as one hierarchy: a `Fault` is infrastructure's, a `UserError` the user can
mend, `Stopped` was asked.
"""

from __future__ import annotations

import errno
from typing import Any

NOT_APPLICABLE = "not-applicable"  # the cause of faults that are none of infrastructure
FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # of a disk


class PalaestraError(Exception):
    """Everything that this package raises on purpose and lets out. It travels between processes
    with its text and its fields, whatever its constructor takes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), str(self), self.__dict__)


def _again(kind: type[Exception], text: str, more: dict[str, object]) -> Exception:
    """An error that comes from another process."""
    error = kind.__new__(kind, text)
    error.__dict__.update(more)
    return error


class Fault(PalaestraError):
    """Infrastructure failed (a dead endpoint, a full disk). Retried, then `status="error:CAUSE"`;
    never a zero reward.
    """

    def __init__(self, cause: str, detail: str = ""):
        super().__init__(f"{cause}: {detail}" if detail else cause)
        self.cause = cause


class NotApplicable(Fault):
    """A reward says nothing of an answer: of a sum it is left out, and where no part says anything,
    the episode stays without a reward.
    """

    def __init__(self, detail: str = ""):
        super().__init__(NOT_APPLICABLE, detail)


class TimedOut(Fault):
    """A reward gave nothing in its time for an answer, which stays without a reward."""

    def __init__(self, detail: str = ""):
        super().__init__("reward-timeout", detail)


class Fatal(Fault):
    """What every episode needs has failed, e.g. the engine died: ends the run instead of an
    episode.
    """


class UserError(PalaestraError):
    """Something the user can mend. One line: what, where, how. The command line prints it and exits
    with status 2.
    """


class TooLong(UserError):
    """A record does not fit into the context of a model, or is longer than the user allows."""


class Paused(UserError):
    """Nothing that a step sampled could be played or judged, as behind a dead endpoint: the run
    waits where it was before it.
    """


class Stopped(PalaestraError):
    """SIGTERM, SIGINT or SIGHUP, or SIGPIPE where nobody reads what is said: the step under way was
    finished and saved, or work outside of steps was left. `signal` is its number.
    """

    def __init__(self, text: str, signal: int):
        super().__init__(text)
        self.signal = signal
