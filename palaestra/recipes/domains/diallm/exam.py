"""How well held-out records are diagnosed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import palaestra as pl
from palaestra.recipes.domains.diallm.reward import findings_world


@pl.stage
class DiagnosisExam:
    """Of `n` held-out records, each played greedily by `collect`: "accuracy"; "balanced", the mean over classes of
    the share that is right; "rarest", that share of the class with fewest training records; "tests" and "repeated",
    tests asked for by record, and those asked for again; "undecided", the share without a diagnosis; "majority" and
    "majority balanced", what the commonest class alone would have.
    """

    collect: pl.Collect
    n: int = 200

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        world = findings_world(ctx)
        groups = await pl.run.attempt_tasks(ctx, self.n, self.collect, label="diagnosis exam")
        return measure_diagnoses(groups, world.classes)


def measure_diagnoses(
    groups: Sequence[pl.Group], classes: Sequence[tuple[str, int]]
) -> dict[str, Any]:
    """The measures of the first episode of each group."""
    rows = [(str(g.task.answer), e) for g in groups for e in g.valid[:1]]
    if not rows:
        return {"n": 0}
    n = Counter(label for label, _ in rows)
    right = Counter(label for label, e in rows if e.facts.get("correct"))
    shares = {label: right[label] / n[label] for label in n}
    outcomes = [e.facts.get("outcomes", ()) for _, e in rows]
    rarest = min((c for c in classes if c[0] in n), key=lambda c: c[1], default=("", 0))[0]
    common = max(classes, key=lambda c: c[1])[0]
    return {
        "accuracy": sum(right.values()) / len(rows),
        "balanced": sum(shares.values()) / len(shares),
        "rarest": shares.get(rarest, 0.0),
        "tests": sum(len(e.facts.get("tests_asked", ())) for _, e in rows) / len(rows),
        "repeated": sum(x.count("repeated") for x in outcomes) / len(rows),
        "undecided": sum(not e.facts.get("answered") for _, e in rows) / len(rows),
        "majority": n[common] / len(rows),
        "majority balanced": float(common in n) / len(n),
        "n": len(rows),
    }
