"""How well held-out records are diagnosed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import palaestra as pl
from palaestra.recipes.domains.diallm.reward import findings_world

RECALL_AT = (1, 3, 5)
TRAIN = 512  # training records by which tests are ordered


@pl.stage
class DiagnosisExam:
    """Of `n` held-out records, each played greedily by `collect`: "accuracy"; "balanced", the mean over classes of
    the share that is right; "rarest", that share of the class with fewest training records; "tests" and "repeated",
    tests asked for by record, and those asked for again; "undecided", the share without a diagnosis; "majority" and
    "majority balanced", what the commonest class alone would have; "interpreted", the share of results whose meaning was said
    rightly, and "interpreted majority", where all are called what most are.

    With `recommend`, also "recall@k" of the first k tests that are recommended, see `measure_recall`.
    """

    collect: pl.Collect
    n: int = 200
    recommend: pl.Collect | None = None

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        world = findings_world(ctx)
        groups = await pl.run.attempt_tasks(ctx, self.n, self.collect, label="diagnosis exam")
        numbers = measure_diagnoses(groups, world.classes)
        if self.recommend is None:
            return numbers
        asked = await pl.run.attempt_tasks(ctx, self.n, self.recommend, label="recommendation exam")
        tasks = ctx.bench.tasks
        train = [tasks.task("train", i) for i in range(min(tasks.size or TRAIN, TRAIN))]
        return {**numbers, **measure_recall(asked, train, world.tests)}


def relevant_tests(task: pl.Task) -> set[str]:
    """The tests that were ordered, or where nobody says, those whose results are abnormal."""
    ordered = task.meta.get("ordered")
    return {*(task.meta.get("abnormal", ()) if ordered is None else ordered)}


def measure_recall(
    groups: Sequence[pl.Group], train: Sequence[pl.Task], tests: Sequence[str]
) -> dict[str, float]:
    """By k: "recall@k", the share of a record's relevant tests among the first k that its dialogue asks for, on average over
    records that have some; "recall@k chance", k / (number of tests), which a random order has; "recall@k frequent", of the
    order by how often tests are relevant in training records, the same for everybody.
    """
    often = Counter(name for task in train for name in relevant_tests(task))
    frequent = sorted(tests, key=lambda t: -often[t])
    rows = [
        (relevant_tests(g.task), e.facts.get("tests_asked", ()))
        for g in groups
        for e in g.valid[:1]
    ]
    rows = [(wanted, asked) for wanted, asked in rows if wanted]
    numbers = dict[str, float]()
    for k in (k for k in RECALL_AT if rows and k < len(tests)):
        share = lambda order, wanted, k=k: len(wanted & {*order[:k]}) / len(wanted)
        numbers[f"recall@{k}"] = sum(share(asked, wanted) for wanted, asked in rows) / len(rows)
        numbers[f"recall@{k} chance"] = k / len(tests)
        numbers[f"recall@{k} frequent"] = sum(share(frequent, w) for w, _ in rows) / len(rows)
    return numbers


def measured_tests(task: pl.Task, e: pl.Episode) -> list[str]:
    """The tests of a dialogue whose results were to be interpreted."""
    return [t for t in e.facts.get("tests_asked", ()) if t in task.meta.get("measured", {})]


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
    readings = [x for some in outcomes for x in some if x in ("read", "misread")]
    labels = [
        g.task.meta["findings"][t]
        for g in groups
        for e in g.valid[:1]
        for t in measured_tests(g.task, e)
    ]
    read = dict[str, float]()
    if readings and labels:
        most = Counter(labels).most_common(1)[0][1]
        read = {
            "interpreted": readings.count("read") / len(readings),
            "interpreted majority": most / len(labels),
        }
    return {
        **read,
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
