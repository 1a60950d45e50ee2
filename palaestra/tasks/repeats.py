"""Held-out problems that come more than once, or in training too: what a reader of the accuracy
should know.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from palaestra.abilities import Warns, split_size
from palaestra.errors import Fault, UserError
from palaestra.tasks.columns import ColumnMap
from palaestra.tasks.records import Listed, Record, Records
from palaestra.types import Tasks

REPEAT_WARNING = "the accuracy is not one on new problems alone"
COMPARED_TASKS = 64  # training tasks
# share of the different prompts that is kept for tests, at least 1, at most
HELD_OUT_SHARE, HELD_OUT_MOST = 0.1, 500
MANY_ROWS = 10_000  # from which on a table of equal rows is refused unread


def caveat(tasks: Tasks, n: int) -> str:
    """What is known against `n` held-out tasks; tasks that have a `caveat` say so themselves.
    Empty: nothing.
    """
    if isinstance(tasks, Warns) and (known := tasks.caveat) is not None:
        return known
    test, train = problems(tasks, "test", n), problems(tasks, "train", COMPARED_TASKS)
    different, trained = set(test), set(test) & set(train)
    known = f"the {len(test)} held-out tasks hold {len(different)} different problems"
    if trained:
        return f"{known}, and {len(trained)} of them are training problems too: {REPEAT_WARNING}"
    return (
        f"{known}: the accuracy's interval is narrower than so few allow"
        if len(different) < len(test)
        else ""
    )


def problems(tasks: Tasks, split: str, n: int) -> list[str]:
    """The first tasks of a split without their ids, up to where it has no more. Those that hold
    nothing else are left out.
    """
    size, names = split_size(tasks, split), list[str]()
    with suppress(UserError, Fault, IndexError):
        for i in range(n if size is None else min(size, n)):
            task = tasks.task(split, i)
            if task.prompt or task.answer is not None or task.meta:
                names.append(repr((task.prompt, task.answer, task.meta)))
    return names


def check_rows(path: str, records: Records) -> None:
    """Raises UserError for a long table whose rows are all the same, before they are read one by one,
    which takes minutes. Of a short one the reader says better what it lacks.
    """
    if len(records) >= MANY_ROWS and isinstance(records, Listed) and records.are_equal():
        raise nothing_to_hold_out(path, len(records))


def marked_split(record: Record, where: str, reading: ColumnMap) -> int:
    """What a record's column `split` says: 1 for test, 0 for train, -1 where nothing."""
    split = record.get("split")
    if split not in (None, "train", "test"):
        raise UserError(f"{where}: {reading.name('split')} is {split!r}; write 'train' or 'test'")
    return {None: -1, "train": 0, "test": 1}[split]


def held_out_mask(
    path: str, prompt_N: np.ndarray, by_line: bool = False, of: str = "prompt"
) -> np.ndarray:
    """[N] whether a record is held out: the prompts with the smallest hashes, so equal prompts stay
    together; or what else the hashes are `of`. `by_line`: those below a tenth of all hashes of 63 bits, so that no other record
    decides; then it may be none.
    """
    if by_line:
        return prompt_N < np.uint64(HELD_OUT_SHARE * 2**63)
    unique = np.unique(prompt_N)
    if len(unique) < 2:
        raise nothing_to_hold_out(path, len(prompt_N), of)
    n = min(max(1, round(HELD_OUT_SHARE * len(unique))), HELD_OUT_MOST)
    return prompt_N <= unique[n - 1]


def nothing_to_hold_out(path: str, n: int, of: str = "prompt") -> UserError:
    """What is said of `n` records that share their prompt, or what else `of` says."""
    what = "1 record" if n == 1 else f"{n:,} records with one and the same {of}"
    return UserError(
        f"{path}: {what}, so nothing can be held out; add records, or give --test-data"
    )
