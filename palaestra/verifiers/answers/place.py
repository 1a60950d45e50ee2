"""Where a reply begins its answer, in whichever form it states one."""

from __future__ import annotations

import re

from palaestra.verifiers.answers.boxes import boxes_in
from palaestra.verifiers.answers.final import MARKER

LINE = re.compile(r"^= ", re.MULTILINE)  # how the embedded problems write an answer
GAP = re.compile(r"[\s:*_`\"$“]*")  # what may stand between "the answer is" and the answer
ANNOUNCES = re.compile(r"(?:\b(?:the|my|final|so|thus|therefore)[ ,]+)*\Z", re.IGNORECASE)


def answer_place(text: str) -> tuple[int, int] | None:
    """Where the form that holds the answer begins, and where the answer itself does: the last
    \\boxed{}, else <answer>, else what stands behind "the answer is" or "####", else behind an answer
    line `= `. None where the reply states none. Nothing inside a thought counts.
    """
    thought = max(text.rfind("</think>"), 0)
    if boxes := boxes_in(text[thought:]):
        at = thought + boxes[-1][0]
        return text.rfind("\\boxed", 0, at), at
    tag = text.rfind("<answer>", thought)
    if tag >= 0 and text.find("</answer>", tag) >= 0:
        return tag, tag + len("<answer>")
    for form in (MARKER, LINE):
        if places := list(form.finditer(text, thought)):
            return _announced(text, places[-1])
    return None


def _announced(text: str, mark: re.Match[str]) -> tuple[int, int]:
    if mark.re is LINE:
        return mark.span()
    words = ANNOUNCES.search(text, text.rfind("\n", 0, mark.start()) + 1, mark.start())
    gap = GAP.match(text, mark.end())
    start = mark.start() if words is None else words.start()
    return start, mark.end() if gap is None else gap.end()
