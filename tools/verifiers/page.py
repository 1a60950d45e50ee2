"""The tables of docs/rewards.md: python -m tools.verifiers.page docs/rewards.md
benchmarks/fuzz.jsonl

A column: `golds` and `wrongs` of the table, `worst` the most that a wrong one is worth, and the
baselines' means. These are measured here; what fuzzing found, which takes hours, is read from the
results of `fuzz --out`, the last of each verifier.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from palaestra.markdown import code, fill_marks, table
from palaestra.verifiers.registry import VERIFIERS, describe_verifier
from palaestra.verifiers.table import baselines, golds, judge, wrongs


def verifier_row(name: str) -> tuple[str, ...]:
    means = baselines(name)
    worst = max(judge(name, c).score for c in wrongs(name))
    numbers = (f"{x:.2f}" for x in (worst, means["copy"], means["constant"], means["refuse"]))
    fields = ", ".join(f for f in describe_verifier(name)["fields"][1:] if f != "answer") or " "
    return code(name), fields, str(len(golds(name))), str(len(wrongs(name))), *numbers


def verifier_table() -> str:
    head = ("verifier", "fields", "golds", "wrongs", "worst", "copy", "constant", "refuse")
    return table(map(verifier_row, VERIFIERS), *head)


def exploit_row(name: str) -> tuple[str, str]:
    """What each wrong of the table tries, with what it may be worth."""
    tried = {c.why + (f" {c.most:.2f}" if c.most else ""): None for c in wrongs(name)}
    return code(name), "; ".join(t.replace("|", "/") for t in tried)


def exploit_table() -> str:
    return table(
        map(exploit_row, VERIFIERS),
        "verifier",
        "what is tried (and what it earns, where that is not 0)",
    )


def fuzz_table(results: Path) -> str:
    found = {r["verifier"]: r for r in map(json.loads, results.read_text().splitlines())}
    rows = [
        [
            code(n),
            f"{r['responses']:,}",
            f"{r['wrong_for_certain']:,}",
            str(len(r["faults"])),
            f"{r['slowest_seconds']:.2f}",
        ]
        for n, r in ((n, found[n]) for n in VERIFIERS if n in found)
    ]
    return table(rows, "verifier", "responses", "wrong for certain", "faults", "slowest, s")


if __name__ == "__main__":
    page, results = map(Path, sys.argv[1:])
    made = {"verifiers": verifier_table(), "fuzz": fuzz_table(results), "exploits": exploit_table()}
    page.write_text(fill_marks(page.read_text(), made))
