"""Patches by their likeness to the merged one (SWE-RL, arXiv:2502.18449; facebookresearch/swe-rl,
core/reward.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.base import Judgement, failed_judgement, guard_verifier, require_field

BLOCK = re.compile(  # no block begins within another: each line is read a bounded number of times
    r"^###(?P<path>[^\n]+)\n<{7} SEARCH\n(?P<old>(?:(?!={7}\n|<{7} SEARCH\n).*\n)*)={7}\n"
    r"(?P<new>(?:(?!>{7}|<{7} SEARCH\n).*\n)*)>{7} REPLACE",
    re.MULTILINE,
)
TAGS = ("<think>", "</think>", "<solution>", "</solution>")
CHARACTERS = (
    # of both diffs: up to so many, characters are compared; beyond them lines, in less than
    # quadratic time
    6000
)
LINES = 4000
# characters that the edits of a file add at most: one that matches what it puts in doubles it
GROWTH = 200_000


@stage
class Patch:
    """Mean likeness of the diffs per file: 2 M / (|p| + |o|) of the predicted and the oracle diff,
    0 where one is empty.

    The reply is <think>..</think><solution>..</solution> with SEARCH/REPLACE blocks under
    `### path`. `files` are the old contents by path, the answer the new ones (those that change).
    Any mistake of form is -1 in the part "paper" and 0 here. Only a prediction whose files equal
    the oracle's scores 1. Context lines count, so an edit beside the right place is paid.
    """

    least: ClassVar[float] = -1.0

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, files: Mapping[str, Any]) -> Judgement:
        old = {str(k): str(v) for k, v in require_field(files, "files", dict, self).items()}
        oracle = {
            **old,
            **{str(k): str(v) for k, v in require_field(answer, "answer", dict, self).items()},
        }
        if oracle == old:
            raise UserError(
                "Patch: the answer changes no file; give the new contents of at least one"
            )
        new = apply_edits(response, old)
        if new is None:
            return failed_judgement("unparsable", paper=-1.0)
        predicted, wanted = unified_diffs(old, new), unified_diffs(old, oracle)
        paths = sorted({*predicted, *wanted})
        shares = [difflib_ratio(predicted.get(p, ""), wanted.get(p, "")) for p in paths]
        score = sum(shares) / len(shares) if shares else 0.0
        exact = not unified_diffs(new, oracle)
        parts = {
            "exact": float(exact),
            "files": len(set(predicted) & set(wanted)) / len(paths),
            "paper": score,
        }
        return Judgement(score=1.0 if exact else min(score, 0.99), parts=parts)


def apply_edits(response: str, old: Mapping[str, str]) -> dict[str, str] | None:
    """The files after all edits; None for a mistake of form."""
    if any(response.count(t) != 1 for t in TAGS):
        return None
    at = [response.index(t) for t in TAGS]
    if at != sorted(at) or response[: at[0]].strip() or not response[at[0] + 7 : at[1]].strip():
        return None
    edits = list(BLOCK.finditer(response[at[2] + 10 : at[3]]))
    new = dict(old)
    for edit in edits:
        path, search, replace = edit["path"].strip(), edit["old"], edit["new"]
        content = new.get(path, "")
        if not path or search == replace or (not search and content):
            return None
        if not search:
            new[path] = replace
            continue
        at_line = "\n" + (content if content.endswith("\n") else content + "\n")
        count = at_line.count("\n" + search)
        size = len(at_line) + count * (len(replace) - len(search))
        if not count or size > len(old.get(path, "")) + GROWTH:
            return None
        new[path] = at_line.replace("\n" + search, "\n" + replace)[1:]
        if not content.endswith("\n"):
            new[path] = new[path].removesuffix("\n")
    return new if edits else None


def unified_diffs(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Unified diffs of the files that differ, three lines of context, without the two lines of
    names.
    """
    diffs: dict[str, str] = {}
    for path in {*old, *new}:
        a, b = (files.get(path, "").splitlines() for files in (old, new))
        if a != b:
            diffs[path] = "\n".join(list(difflib.unified_diff(a, b, lineterm="", n=3))[2:])
    return diffs


def difflib_ratio(predicted: str, oracle: str) -> float:
    """difflib's ratio without its shortcut for frequent characters; it is not symmetric."""
    if not predicted or not oracle:
        return 0.0
    if len(predicted) + len(oracle) <= CHARACTERS:
        return difflib.SequenceMatcher(None, predicted, oracle, autojunk=False).ratio()
    a, b = predicted.splitlines(), oracle.splitlines()
    return (
        0.0
        if len(a) + len(b) > LINES
        else difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()
    )
