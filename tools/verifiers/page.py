"""The tables of docs/rewards.md: python -m tools.verifiers.page docs/rewards.md benchmarks/fuzz.jsonl

A column: `golds` and `wrongs` of the table, `worst` the most that a wrong one is worth, and the baselines' means. These are
measured here; what fuzzing found, which takes hours, is read from the results of `fuzz --out`, the last of each verifier.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from palaestra.markdown import code, filled, table
from palaestra.verifiers.registry import VERIFIERS, described
from palaestra.verifiers.table import baselines, golds, judge, wrongs


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
    return "\n".join(table(["verifier", "responses", "wrong for certain", "faults", "slowest, s"], rows))


if __name__ == "__main__":
    page, results = map(Path, sys.argv[1:])
    made = {"verifiers": verifier_table(), "fuzz": fuzz_table(results), "exploits": exploit_table()}
    page.write_text(filled(page.read_text(), made))
