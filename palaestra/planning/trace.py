"""Who did what when: spans of workers, and their trace in the format that Perfetto and Chrome's
`chrome://tracing` read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work of one worker, from `begin` to `end` in seconds since the start of the
    run. `version` is that of the weights which it samples from, learns from or moves; None where
    no weights are involved.
    """

    role: str
    worker: int
    name: str
    begin: float
    end: float
    version: int | None = None


def trace_of(spans: Iterable[Span]) -> dict[str, Any]:
    """The spans as a trace: a process for each role, a thread for each worker, times in
    microseconds.

    Source: "Trace Event Format" of the Chromium project (complete events "X", metadata "M").

    Args:
        spans: in any order.

    Returns:
        What `json.dumps` turns into a file that Perfetto opens.
    """
    ordered = sorted(spans, key=lambda s: (s.begin, s.role, s.worker))
    processes = {role: i + 1 for i, role in enumerate(dict.fromkeys(s.role for s in ordered))}
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": role}}
        for role, pid in processes.items()
    ]
    threads = [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": processes[role],
            "tid": worker,
            "args": {"name": f"{role} {worker}"},
        }
        for role, worker in sorted({(s.role, s.worker) for s in ordered})
    ]
    events = [
        {
            "ph": "X",
            "name": s.name,
            "cat": s.role,
            "pid": processes[s.role],
            "tid": s.worker,
            "ts": 1e6 * s.begin,
            "dur": 1e6 * (s.end - s.begin),
            "args": {} if s.version is None else {"version": s.version},
        }
        for s in ordered
    ]
    return {"traceEvents": [*names, *threads, *events], "displayTimeUnit": "ms"}
