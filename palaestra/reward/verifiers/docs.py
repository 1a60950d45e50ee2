"""The tables of docs/rewards.md, measured: python -m palaestra.reward.verifiers.docs docs/rewards.md

A column: `golds` and `wrongs` of the table, `worst` the most that a wrong one is worth, and the baselines' means.
"""

from __future__ import annotations

import sys
from pathlib import Path

from palaestra.markdown import filled
from palaestra.reward.verifiers.registry import VERIFIERS, described
from palaestra.reward.verifiers.table import baselines, golds, judge, wrongs


def verifier_row(name: str) -> str:
    found = baselines(name)
    worst = max(judge(name, c).score for c in wrongs(name))
    numbers = " | ".join(f"{x:.2f}" for x in (worst, found["copy"], found["constant"], found["refuse"]))
    fields = ", ".join(f for f in described(name)["fields"][1:] if f != "answer") or " "
    return f"| `{name}` | {fields} | {len(golds(name))} | {len(wrongs(name))} | {numbers} |"


def verifier_table() -> str:
    head = "| verifier | fields | golds | wrongs | worst | copy | constant | refuse |\n|" + " --- |" * 8
    return "\n".join([head, *map(verifier_row, VERIFIERS)])


def exploit_table() -> str:
    """What each wrong of the tables tries, by verifier, with what it may be worth."""
    lines = ["| verifier | what is tried (and what it earns, where that is not 0) |", "| --- | --- |"]
    for name in VERIFIERS:
        tried = {c.why + (f" {c.most:.2f}" if c.most else ""): None for c in wrongs(name)}
        lines.append(f"| `{name}` | {'; '.join(t.replace('|', '/') for t in tried)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(filled(page.read_text(), {"verifiers": verifier_table(), "exploits": exploit_table()}))
