"""The tables of docs/speed.md and its picture, from benchmarks/*.json: python -m
benchmarks.page benchmarks docs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_page import gpu_section, valid_records
from benchmarks.trl import PHASES
from palaestra.markdown import code, fill_marks, table
from palaestra.planning.growth import fit_power
from palaestra.run.machine import format_spread
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, PAPER, svg_text

BenchResult = dict[str, Any]
NAMES = {
    "seconds": "whole step",
    "rollout": "rollout",
    "forward": "forward",
    "backward": "backward",
}
WIDTH, LEFT, RIGHT, ROW, TOP = 720, 250, 60, 22, 34
FONT = "font-family='DejaVu Sans, Verdana, sans-serif' font-size='12'"


def read(folder: Path) -> dict[str, list[BenchResult]]:
    """Results by their kind: "trl", "step", ..."""
    pages: dict[str, list[BenchResult]] = {}
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        if "bench" in result:
            pages.setdefault(result["bench"], []).append(result)
    return pages


def setting(result: BenchResult) -> str:
    """What was measured: "smollm2, float32, 8 x 8, up to 64 tokens"."""
    w = result["work"]
    tokens = f"{'all' if w['full'] else 'up to'} {w['max_tokens']} tokens"
    lora = f", LoRA {w['lora']}" if w.get("lora") else ""
    vllm = ", TRL with vLLM" if w.get("peer_vllm") else ""
    if w.get("positions"):
        tokens += f", {w['positions']} positions"
    threads = result.get("machine", {}).get("omp_num_threads", "")
    threads = f", {threads} thread{'s' * (threads != '1')}" if threads else ""
    return (
        f"{w['model']}, {w['dtype']}{lora}{vllm}{threads}, {w['prompts']} x {w['group']}, {tokens}"
    )


def trl_table(results: Sequence[BenchResult]) -> str:
    head = ["work", *(NAMES[p] for p in reversed(PHASES)), "by token", "peak of the update, MB"]
    head += ["above the start of a step, MB", "processor s", "pairs", "TRL"]
    rows: list[list[str]] = []
    for r in results:
        memory = r["memory_mb"]
        peaks = [
            f"{memory['palaestra'][k]:.0f} against {memory['trl'][k]:.0f}"
            for k in ("update", "update_above_base")
        ]
        pairs = len(r["ratios"]["seconds"]["each"])
        ratios = [format_spread(r["ratios"][p]) for p in reversed(PHASES)]
        busy = format_spread(r["ratio_processor"]) if "ratio_processor" in r else ""
        rows.append(
            [
                setting(r),
                *ratios,
                format_spread(r["ratio_per_token"]),
                *peaks,
                busy,
                str(pairs),
                r["machine"].get("trl", ""),
            ]
        )
    return table(rows, *head)


def step_table(results: Sequence[BenchResult]) -> str:
    head = [
        "work",
        "s a step",
        "tokens/s",
        "rollout",
        "forward",
        "backward",
        "optimiser",
        "between",
    ]
    head += ["over the limit: rollout", "update", "step"]
    rows: list[list[str]] = []
    for r in results:
        shares = [
            f"{r['phases'][p] / r['seconds']:.0%}"
            for p in ("rollout", "forward", "backward", "optimiser")
        ]
        limits = [f"{r['over_limit'][p]:.2f}" for p in ("rollout", "update", "step")]
        rows.append(
            [
                setting(r),
                f"{r['seconds']:.2f}",
                f"{r['tokens_per_second']:.0f}",
                *shares,
                f"{r['between']:.1%}",
                *limits,
            ]
        )
    return table(rows, *head)


def engine_table(results: Sequence[BenchResult]) -> str:
    head = ["model", "at a time", "tokens/s", "transformers", "ratio"]
    rows = [
        [
            r["work"]["model"],
            str(b["batch"]),
            f"{b['own']:.0f}",
            f"{b['transformers']:.0f}",
            format_spread(b["ratio"]),
        ]
        for r in results
        for b in r["batches"]
    ]
    lines = [table(rows, *head), ""]
    for r in results:
        model = r["work"]["model"]
        for b in r["long_tail"]:
            lines.append(
                f"- {model}: {b['sequences']} answers with a long tail (median "
                f"{b['median_length']:.0f} tokens, longest {b['longest']}) in {b['slots']} slots: "
                f"continuous batching is {format_spread(b['waves_over_continuous'])} times as fast "
                "as waves that wait for their longest."
            )
        t = r["turns"]
        lines.append(
            f"- {model}: episodes of {t['turns']} turns: histories kept in the cache are "
            f"{format_spread(t['again_over_kept'])} times as fast as histories read again."
        )
    return "\n".join(lines)


def drafts_table(results: Sequence[BenchResult]) -> str:
    head = ["model, answers of", "what", "at a time", "drafts", "temperature", "tokens a pass"]
    head += ["drafted a token", "accepted", "processor s without, over with", "the same of wall s"]
    rows = [
        [
            f"{r['work']['model']}, {r['work']['max_tokens']} tokens",
            x["name"],
            str(x["slots"]),
            x["drafts"],
            f"{x['temperature']:g}",
            f"{x['tokens_per_pass']:.2f}",
            f"{x['drafted']:.2f}",
            f"{x['accepted']:.0%}",
            format_spread(x["processor"]),
            format_spread(x["wall"]),
        ]
        for r in results
        for x in r["regimes"]
    ]
    return table(rows, *head)


def company_table(results: Sequence[BenchResult]) -> str:
    head = ["model, answers of", "at a time", "tokens a processor second"]
    head += ["processor s, over those with any number of rows", "and with columns added at once"]
    rows = list[list[str]]()
    for r in results:
        for b in r["batches"]:
            whole, *arms = b["arms"].values()
            rows.append(
                [
                    f"{r['work']['model']}, {r['work']['max_tokens']} tokens",
                    str(b["batch"]),
                    f"{whole['tokens_per_processor_second']:.0f}",
                    *(format_spread(x["processor_cost"]) for x in arms),
                ]
            )
    return table(rows, *head)


def ablation_table(results: Sequence[BenchResult]) -> str:
    head = ["model, work", "without", "seconds a token, over those with"]
    rows = [
        [setting(r), name, format_spread(ratio)]
        for r in results
        for name, ratio in r["without"].items()
    ]
    return table(rows, *head)


def memory_table(results: Sequence[BenchResult]) -> str:
    head = [
        "model",
        "group",
        "cache budget, MB",
        "tokens a pass",
        "recompute",
        "before",
        "rollout",
        "update",
    ]
    rows = [
        [
            s["model"],
            str(s["group"]),
            str(s["cache_mb"]),
            str(s["budget"]),
            "yes" if s["recompute"] else "no",
        ]
        + [f"{s['memory_mb'][k]:.0f}" for k in ("base", "rollout", "update")]
        for r in results
        for s in r["settings"]
    ]
    return table(rows, *head)


def scaling_table(results: Sequence[BenchResult]) -> str:
    head = [
        "seconds of a step against",
        "exponent (95% of the slope)",
        "of the last two points",
        "measured at",
    ]
    power = lambda s, key: str(
        fit_power([p["x"] for p in s["points"]], [p[key] for p in s["points"]])
    )
    law = lambda s, key, name: power(s, key) if len(s["points"]) > 2 else f"{s[name]:.2f}"
    rows: list[list[str]] = []
    for name, s in (
        (n, s) for r in results for n, s in r.items() if isinstance(s, dict) and "exponent" in s
    ):
        points = ", ".join(f"{p['x']:g}: {p['seconds']:.2f} s" for p in s["points"])
        last = f"{s['exponent_of_last_two']:.2f}" if "exponent_of_last_two" in s else ""
        rows.append([name, law(s, "seconds", "exponent"), last, points])
        if "exponent_again" in s:
            again = ", ".join(f"{p['x']:g}: {p['seconds_again']:.2f} s" for p in s["points"])
            rows.append(
                [
                    f"{name}, histories read again",
                    law(s, "seconds_again", "exponent_again"),
                    "",
                    again,
                ]
            )
    return table(rows, *head)


def sandbox_table(results: Sequence[BenchResult]) -> str:
    head = ["runs", "a second", "ratio to a bare subprocess"]
    rows = [
        [name, f"{rate:.0f}", f"{r['ratio_to_bare'].get(name, 1.0):.2f}"]
        for r in results
        for name, rate in r["per_second"].items()
    ]
    return table(rows, *head)


def episodes_table(results: Sequence[BenchResult]) -> str:
    head = ["at once", "came back", "lost", "calls", "of them failed", "sampling, s"]
    head += ["episodes a second", "step, s", "peak memory, MB"]
    rows = [
        [
            *(str(r[k]) for k in ("at_once", "episodes", "faults", "calls")),
            f"{r['failed']:.0%}",
            f"{r['sampling_s']:.0f}",
            f"{r['episodes'] / r['sampling_s']:.1f}",
            f"{r['step_s']:.0f}",
            str(r["memory_mb"]),
        ]
        for result in results
        for r in result["runs"]
    ]
    return table(rows, *head)


def busy_table(results: Sequence[BenchResult]) -> str:
    head = [
        "busy processes beside it",
        "s",
        "processor s",
        "s, over quiet",
        "processor s, over quiet",
    ]
    rows: list[list[str]] = []
    for r in results:
        for n, each in r["runs"].items():
            medians = [f"{np.median(x):.1f}" for x in each.values()]
            ratios = r["over_quiet"].get(n, {}).values()
            rows.append([n, *medians, *(map(format_spread, ratios) if ratios else ("1", "1"))])
    return table(rows, *head)


def provenance(results: Sequence[BenchResult]) -> str:
    """The commands, and what they ran on."""
    rows: list[list[str]] = []
    for r in results:
        m = r["machine"]
        known = ("torch", "transformers", "trl", "vllm", "peft", "python", "cuda", "driver")
        versions = ", ".join(f"{k} {m[k]}" for k in known if m.get(k))
        load = f"{m['load'][0]:.1f}"
        threads = f"OMP_NUM_THREADS={t} " if (t := m.get("omp_num_threads")) else ""
        rows.append(
            [code(threads + r["command"]), f"{m['processor']}, {m['cores']} cores", versions, load]
        )
    return table(rows, "command", "machine", "versions", "load before")


def ratios_svg(results: Sequence[BenchResult]) -> str:
    """Ratios TRL / Palaestra of the whole step and its phases: the median as a bar, lowest to
    highest pair as a line.
    """
    bars = [(setting(r), p, r["ratios"][p]) for r in results for p in reversed(PHASES)]
    most = max([2.0, *(b["high"] for _, _, b in bars)])
    x = lambda v: LEFT + (WIDTH - LEFT - RIGHT) * v / most
    height = TOP + ROW * (len(bars) + len(results)) + 16
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' "
        f"height='{height}' {FONT}>",
        f"<rect width='{WIDTH}' height='{height}' fill='{PAPER}'/>",
        svg_text(LEFT, 18, "seconds of TRL for one second of Palaestra", INK),
    ]
    y = float(TOP)
    for name, phase, ratio in bars:
        if phase == "seconds":
            parts.append(svg_text(10, y + 15, name, INK, weight="bold"))
            y += ROW
        colour = PALETTE[0] if phase == "seconds" else PALETTE[1]
        middle = y + ROW / 2
        parts += [
            svg_text(LEFT - 8, middle + 4, NAMES[phase], MUTED, "end"),
            f"<rect x='{LEFT}' y='{y + 4:.0f}' width='{x(ratio['median']) - LEFT:.1f}' "
            f"height='{ROW - 8}' fill='{colour}'/>",
            f"<path d='M{x(ratio['low']):.1f} {middle:.0f}H{x(ratio['high']):.1f}' stroke='{INK}' "
            "stroke-width='1.5'/>",
            svg_text(x(ratio["high"]) + 6, middle + 4, f"{ratio['median']:.1f}", INK),
        ]
        y += ROW
    parts.append(f"<path d='M{x(1):.1f} {TOP}V{y:.0f}' stroke='{LINE}' stroke-dasharray='3 3'/>")
    return "\n".join([*parts, "</svg>\n"])


def checkouts_table(results: Sequence[BenchResult]) -> str:
    rows = [
        [
            job,
            result["before"],
            f"{r['before']:.3f}",
            f"{r['now']:.3f}",
            f"{r['ratio']:.2f} ({r['ci95'][0]:.2f} to {r['ci95'][1]:.2f})",
        ]
        for result in results
        for job, r in result["rows"].items()
        if job != "tokens"
    ]
    return table(rows, "job", "commit before", "processor s before", "now", "now over before")


TABLES = {
    "trl": trl_table, "step": step_table, "ablation": ablation_table, "engine": engine_table,
    "drafts": drafts_table,
    "company": company_table,
    "memory": memory_table,
    "scaling": scaling_table, "sandbox": sandbox_table, "busy": busy_table,
    "episodes": episodes_table,
    "checkouts": checkouts_table,
}  # fmt: skip


def main(benchmarks: Path, docs: Path) -> None:
    pages = read(benchmarks)
    made = {
        name: build(pages[name]) if name in pages else "Not measured."
        for name, build in TABLES.items()
    }
    gpu = pages.pop("gpu", [])
    made["gpu"] = gpu_section(gpu, {"trl": trl_table, "memory": memory_table})
    measured = [r for results in pages.values() for r in results] + valid_records(gpu)
    made["provenance"] = provenance(measured)
    page = docs / "speed.md"
    page.write_text(fill_marks(page.read_text(), made))
    if "trl" in pages:
        (docs / "speed.svg").write_text(ratios_svg(pages["trl"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
