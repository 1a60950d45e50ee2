"""The part of docs/speed.md that `palaestra bench gpu` fills: a table for each slice that has a
result, else a line that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.slices import SLICES, Slice
from palaestra.markdown import table
from palaestra.run.machine import format_spread

GpuRecord = dict[str, Any]
ITEM = "- "  # of the list of slices without a result
Table = Callable[[Sequence[GpuRecord]], str]


def valid_records(records: Sequence[GpuRecord]) -> list[GpuRecord]:
    """Those with a result of a GPU: a rehearsal on a processor says nothing of speed."""
    return [r for r in records if r["state"] == "done" and r["device"] == "cuda"]


def gpu_section(records: Sequence[GpuRecord], tables: Mapping[str, Table]) -> str:
    """Every slice of the programme. `tables` draws the kinds that are also measured elsewhere, from
    results as these have them.
    """
    known = {r["slice"]: r for r in records}
    parts = [_part(s, known.get(s.name), {**TABLES, **tables}) for s in SLICES]
    return "\n\n".join(parts).replace(f".\n\n{ITEM}", f".\n{ITEM}")


def _part(which: Slice, record: GpuRecord | None, tables: Mapping[str, Table]) -> str:
    if record is None or not valid_records([record]):
        tried = record is not None and record["device"] == "cuda"
        why = f" ({record['why']})" if record and tried and record.get("why") else ""
        return f"{ITEM}{which.name} ({which.says}): not measured{why}."
    about = f"**{which.name}**: {which.says}; {record['machine']['processor']}."
    # threads of the processor are no setting of a measurement on a GPU
    machine = {k: x for k, x in record["machine"].items() if k != "omp_num_threads"}
    flat = {**record["result"], "work": record["work"], "machine": machine}
    return f"{about}\n\n{tables[which.kind]([flat])}"


def exactness_table(results: Sequence[GpuRecord]) -> str:
    """Laws with their bounds; gaps between engine and trainer."""
    laws = [
        [
            c["law"],
            f"{c['found']:.2g}",
            f"at most {c['at most']:g}" if "at most" in c else f"at least {c['at least']:g}",
            "yes" if c["holds"] else "**no**",
        ]
        for r in results
        for c in r["checks"]
    ]
    gaps = [
        [g["model"], g["dtype"], g["engine"], f"{g['mean']:.2g}", f"{g['max']:.2g}"]
        for r in results
        for g in r["gaps"]
    ]
    for r in results:
        if not any(g["engine"] == "vllm" for g in r["gaps"]):
            gaps.append([r["work"]["model"], r["work"]["dtype"], "vllm", "not measured", ""])
    return "\n\n".join(
        [
            table(laws, "law, embedded model in float32", "measured", "bound", "holds"),
            table(gaps, "model", "dtype", "engine", "mean gap, nats", "largest"),
        ]
    )


def engine_table(results: Sequence[GpuRecord]) -> str:
    """Tokens a second; ratios are of seconds, over those with CUDA graphs."""
    head = ["model", "at a time", "tokens/s", "of the bandwidth limit", "without graphs", "vLLM"]
    head += ["graphs save", "vLLM's seconds for one of ours"]
    rows: list[list[str]] = []
    for r in results:
        for b in r["batches"]:
            rates, ratios = b["rates"], b["ratios"]
            has = "vllm" in rates
            rows.append(
                [
                    r["work"]["model"],
                    str(b["batch"]),
                    f"{rates['graphs']:.0f}",
                    f"{rates['graphs'] / b['limit']:.0%}",
                    f"{rates['launches']:.0f}",
                    f"{rates['vllm']:.0f}" if has else "not measured: not installed",
                    format_spread(ratios["launches"]),
                    format_spread(ratios["vllm"]) if has else "",
                ]
            )
    return table(rows, *head)


def update_table(results: Sequence[GpuRecord]) -> str:
    """The update's rate beside that of matrix products."""
    head = ["model", "positions a pass", "s a step", "update, s", "TFLOP/s", "matrix TFLOP/s"]
    head += ["of it", "over its linear layers' time"]
    rows: list[list[str]] = []
    for r in results:
        for p in r["passes"]:
            update = sum(p["phases"][n] for n in ("forward", "backward", "optimiser"))
            rate, whole = p["update_flops"], p["machine_limits"]["gemm_flops"]
            rows.append(
                [
                    r["work"]["model"],
                    str(p["budget"]),
                    f"{p['seconds']:.2f}",
                    f"{update:.2f}",
                    f"{rate / 1e12:.3g}",
                    f"{whole / 1e12:.3g}",
                    f"{rate / whole:.0%}",
                    f"{p['over_limit']['update']:.2f}",
                ]
            )
    return table(rows, *head)


def lora_table(results: Sequence[GpuRecord]) -> str:
    """All weights beside adapters."""
    head = ["model", "trained", "s a step", "all weights' seconds for one of these"]
    head += ["of the update's backward pass", "peak of the update, MB"]
    rows: list[list[str]] = []
    for r in results:
        seconds, memory, ratios = r["seconds"], r["memory_mb"], r["ratios"]
        for name, says in (("full", "all weights"), ("lora", f"adapters of rank {r['rank']}")):
            over = [
                format_spread(ratios[p]) if name == "lora" else "" for p in ("seconds", "backward")
            ]
            rows.append(
                [
                    r["work"]["model"],
                    says,
                    f"{seconds[name]:.2f}",
                    *over,
                    f"{memory[name]['update']:.0f}",
                ]
            )
    return table(rows, *head)


def steps_table(results: Sequence[GpuRecord]) -> str:
    """Steps of several kinds: seconds and memory, and the first's over each other's."""
    head = ["model", "what", "s a step", "the first's seconds for one of these"]
    head += [
        "of its rollout",
        "of its optimiser",
        "held before a step, MB",
        "peak of the update, MB",
    ]
    rows: list[list[str]] = []
    for r in results:
        for name, seconds in r["seconds"].items():
            memory, ratios = r["memory_mb"][name], r["ratios"].get(name)
            phases = ("seconds", "rollout", "optimiser")
            over = [format_spread(ratios[p]) if ratios else "" for p in phases]
            says = str(STEPS.get(name, name)).format(rank=r.get("rank"))
            held = [f"{memory['base']:.0f}", f"{memory['update']:.0f}"]
            rows.append([r["work"]["model"], says, f"{seconds:.2f}", *over, *held])
    return table(rows, *head)


STEPS = {
    "lora": "adapters of rank {rank} on 16 bits",
    "qlora": "adapters of rank {rank} on 4 bits",
    "adamw": "moments in float32",
    "adamw_8bit": "moments in 8 bits",
    "paged_adamw_8bit": "moments in 8 bits, paged",
}


def publish_table(results: Sequence[GpuRecord]) -> str:
    """Seconds of handing weights over."""
    head = ["model", "what is trained", "vLLM gets", "object, MB", "made, s", "checked, s"]
    head += ["files, MB", "written, s", "digests, s", "vLLM has them, s"]
    rows: list[list[str]] = []
    for r in results:
        for k in r["kinds"]:
            gets = "adapters" if k["alone"] else "whole weights"
            seconds = lambda name, k=k: format_spread(k[name])
            mb = lambda name, k=k: f"{k[name]['median']:.3g}"
            server = seconds("vllm") if "vllm" in k else "not measured: not installed"
            rows.append(
                [
                    r["work"]["model"],
                    k["name"],
                    gets,
                    mb("object_mb"),
                    seconds("object"),
                    seconds("check"),
                    mb("files_mb"),
                    seconds("write"),
                    seconds("digests"),
                    server,
                ]
            )
    return table(rows, *head)


TABLES: Mapping[str, Table] = {
    "exactness": exactness_table,
    "engine": engine_table,
    "update": update_table,
    "lora": lora_table,
    "qlora": steps_table,
    "optim": steps_table,
    "publish": publish_table,
}
