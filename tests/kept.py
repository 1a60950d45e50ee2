"""Evaluations of a run, written as a run keeps them."""

import pyarrow as pa
import pyarrow.parquet as pq
from palaestra.stats import mean_interval, proportion
from palaestra.store import columns


def keep_answers(folder, step, values, of="accuracy", ids=None, samples=1):
    """What answers to held-out problems were worth, as the table of a step; None = could not be scored."""
    lines = [
        {
            "group": n,
            "task_id": f"own/{i}",
            "prompt": f"{i}?",
            "answer": "1",
            "sample": s,
            "status": "ok" if x is not None else "error: judge",
        }
        | ({"reward": x, "solved": bool(x) if of == "accuracy" else None} if x is not None else {})
        for n, (i, x) in enumerate(zip(ids or range(len(values)), values, strict=True))
        for s in range(samples)
    ]
    file = columns.evaluation_path(folder, "held-out", step)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(lines, schema=columns.SCHEMA), file)


def mean_of(values, of="accuracy"):
    """Their mean with its interval, as a summary has it."""
    scored = [x for x in values if x is not None]
    share = of in ("accuracy", "ranking")
    interval = proportion(sum(scored), len(scored)) if share else mean_interval(scored)
    return {"of": of, **interval.json()}
