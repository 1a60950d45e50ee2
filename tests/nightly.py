"""The long laws of a cluster, for a machine that has an hour: python -m tests.nightly FOLDER

Runs what `tests.cluster` and `tests.shards` measure, and ends with status 1 and a line for each law that does not hold.
What FOLDER holds of the kills already counts.
"""

import json
import sys
from pathlib import Path

from tests import cluster, shards

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
        if cell["oldest"] > cell["bound"] or cell["youngest"] < 0 or cell["tokens without one version"]:
            lines.append(f"age_bound: {cell}")
        if cell["lost"] or cell["taken more than once"] or not 0.09 <= cell["slowest tenth"] <= 0.11:
            lines.append(f"drawn_is_trained: {cell}")
    lines += [f"sim_true: {cell}" for cell in cells if abs(cell["error"]) > 0.1]
    if len(cells) < 12:
        lines.append(f"sim_true: {len(cells)} cells")
    for n, rank in ranks["ranks"].items():
        if rank["largest relative error of a gradient"] > 1e-12 or rank["smallest norm of a gradient"] <= 0:
            lines.append(f"shard_equal on {n} ranks: {rank}")
    return lines


def main(folder):
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for measure in (cluster.all_ages, cluster.kills, cluster.sim):
        measure(str(place / "cluster.json"))
    shards.main(str(place / "shards.json"))
    found = [json.loads((place / name).read_text()) for name in ("cluster.json", "shards.json")]
    if lines := broken(*found):
        sys.exit("\n".join(lines))
    print("every law holds")


if __name__ == "__main__":
    main(sys.argv[1])
