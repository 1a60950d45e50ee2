"""The long laws of a cluster, for a machine that has an hour: python -m tests.nightly FOLDER

Runs what `tests.cluster` and `tests.shards` measure, and ends with status 1 and a line for each law that does not hold.
What FOLDER holds of the kills already counts.
"""

import json
import subprocess
import sys
from pathlib import Path

KILLS, SAMPLES = 200, 100_000


def broken(found, ranks):
    """What of the laws in docs/cluster.md the numbers contradict, a line each.

    Args:
        found: what `tests.cluster` wrote.
        ranks: what `tests.shards` wrote.
    """
    kills, ages, cells = found["kills"], found["ages"], found["sim"]["cells"]
    lines = []
    if kills["kills"] < KILLS or kills["rows taken more than once"] or not all(r["equal"] for r in kills["runs"]):
        lines.append(f"exactly_once: { ({k: v for k, v in kills.items() if k != 'runs'}) }")
    if ages["samples"] < SAMPLES:
        lines.append(f"age_bound: {ages['samples']} samples")
    for cell in ages["cells"]:
        if not 0 <= cell["youngest"] <= cell["oldest"] <= cell["bound"] or cell["tokens without one version"]:
            lines.append(f"age_bound: {cell}")
        if cell["lost"] or cell["taken more than once"] or not 0.09 <= cell["slowest tenth"] <= 0.11:
            lines.append(f"drawn_is_trained: {cell}")
    lines += [f"sim_true: {cell}" for cell in cells if not abs(cell["error"]) <= 0.1]
    if len(cells) < 12:
        lines.append(f"sim_true: {len(cells)} cells")
    for n, rank in ranks["ranks"].items():
        if not rank["largest relative error of a gradient"] <= 1e-12 or not rank["smallest norm of a gradient"] > 0:
            lines.append(f"shard_equal on {n} ranks: {rank}")
    return lines


def main(folder):
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    files = [place / "cluster.json", place / "shards.json"]
    for measure in (["cluster", "ages"], ["cluster", "kills"], ["cluster", "sim"], ["shards"]):
        module, *what = measure  # each in a process of its own, as each starts a Ray of another size
        out = files[module == "shards"]
        subprocess.run([sys.executable, "-m", f"tests.{module}", *what, str(out)], check=True)
    found = [json.loads(file.read_text()) for file in files]
    if lines := broken(*found):
        sys.exit("\n".join(lines))
    print("every law holds")


if __name__ == "__main__":
    main(sys.argv[1])
