"""A run folder as a run leaves it, without a model: a policy that learns to work chains out instead of guessing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from palaestra.stats import proportion
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import rng_of

END = "<|end|>"


def answers(step: int, steps: int, groups: int, samples: int, nasty: str = "") -> list[dict[str, Any]]:
    """The rollouts of one step; `nasty` is put into prompt, task id and text of the first."""
    rng, tasks = rng_of(("synthetic", step)), ArithmeticChain()
    works = 0.25 + 0.72 * (1 - math.exp(-4 * (step - 1) / max(steps - 1, 1)))
    rows = []
    for g in range(groups):
        task = tasks.task("train", step * groups + g)
        group = [_answer(tasks, task, rng, works) for _ in range(samples)]
        totals = [r for _, r, _ in group]
        mean, spread = sum(totals) / samples, (sum((r - sum(totals) / samples) ** 2 for r in totals) / samples) ** 0.5
        for i, (text, reward, status) in enumerate(group):
            if nasty and g == i == 0:
                text = nasty + text
            advantage = (reward - mean) / (spread + 1e-6) if spread else 0.0
            rows.append(_row(step, g, i, task, text, reward, status, advantage, rng, nasty if g == i == 0 else ""))
    return rows


def _answer(tasks: ArithmeticChain, task: Any, rng: Any, works: float) -> tuple[str, float, str]:
    if rng.random() < 0.02:
        return "\n".join(tasks.steps(task)), 0.0, "truncated:length"
    if rng.random() < works:
        lines = tasks.steps(task)
        good = rng.random() < 0.93
        answer = task.answer if good else str((int(task.answer) + 1) % 10)
        return "\n".join([*lines, f"= {answer}"]), float(good), "finished"
    answer = task.answer if rng.random() < 0.18 else str(int(rng.integers(0, 10)))
    return f"= {answer}", float(answer == task.answer), "finished"


def _row(
    step: int, g: int, i: int, task: Any, text: str, reward: float, status: str, advantage: float, rng: Any, nasty: str
) -> dict:
    prompt = task.prompt[0].content + nasty
    pieces = list(text) + ([END] if status == "finished" else [])
    logp = [-float(x) for x in rng.gamma(0.35, 0.35, len(pieces))]
    n = len(prompt)
    row = {
        "ids": list(range(n + len(pieces))),
        "tokens": [*prompt, *pieces],
        "trained": [False] * n + [True] * len(pieces),
        "logp": [None] * n + logp,
        "advantage": [0.0] * n + [advantage] * len(pieces),
        "author": ["environment"] * n + ["policy"] * len(pieces),
        "turn": [0] * (n + len(pieces)),
    }
    return {
        "step": step, "group": g, "sample": i, "task_id": task.id + nasty, "domain": "chain", "prompt": prompt,
        "text": text, "status": status, "muted": False, "reward": reward, "reward_parts": json.dumps({"exact": reward}),
        "advantage": advantage, "policy_version": step - 1, "n_tokens": len(pieces), "rows": [row],
    }  # fmt: skip


def metrics(steps: int, before: int = 123, after: int = 487) -> list[dict[str, Any]]:
    rng, tokens, seconds = rng_of(("synthetic metrics",)), 0, 0.0
    records: list[dict[str, Any]] = [{"step": 0, "evaluation": proportion(before, 512).json()}]
    for i in range(1, steps + 1):
        rise = 1 - math.exp(-4 * i / steps)
        reward, length = 0.37 + 0.5 * rise + 0.03 * float(rng.normal()), 9 + 15 * rise + float(rng.normal()) * 0.7
        tokens, seconds = tokens + int(128 * length), seconds + 0.52 + 0.6 * rise
        cut, noise = (float(x) for x in rng.normal(size=2))
        record = {
            "step": i, "reward": reward, "reward_low": reward - 0.07, "reward_high": reward + 0.07, "length": length,
            "truncated": max(0.0, 0.02 + 0.008 * cut), "errors": 0.0, "episodes": 128, "groups": 16,
            "entropy": 0.62 * math.exp(-3 * i / steps) + 0.11 + 0.01 * noise,
            "grad_norm": 0.4, "sampled_tokens": tokens, "seconds": round(seconds, 3),
            "tokens_per_second": 128 * length / 0.9, "groups_mixed": 0.9 - 0.5 * rise, "part/exact": reward,
        }  # fmt: skip
        records.append(record)
    records.append({"step": steps, "evaluation": proportion(after, 512).json()})
    return records


def run_folder(
    path: Path, steps: int = 60, groups: int = 16, samples: int = 8, nasty: str = "", files: int = 2, **changes: Any
) -> Path:
    """Writes the folder, with `files` rollout files, the first and last ones; `changes` go into summary.json."""
    (path / "rollouts").mkdir(parents=True)
    records = metrics(steps)
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    kept = [i for i in range(1, steps + 1) if i <= (files + 1) // 2 or i > steps - files // 2]
    for i in kept:
        rows = answers(i, steps, groups, samples, nasty)
        pq.write_table(pa.Table.from_pylist(rows), path / "rollouts" / f"step-{i:06}.parquet")
    (path / "config.toml").write_text(
        'recipe = "grpo"\ntask = "chain"\nmodel = "tiny"\nseed = 0\nevaluate = 512\n\n[set]\n"schedule.prompts" = 16\n'
        '"collect.links.0.n" = 8\n"learners.policy.optimiser.lr" = 1e-3\n"learners.policy.objective.low" = 0.2\n'
    )
    last = records[-2]
    shares = {"rollout": 0.46, "reward": 0.01, "forward": 0.14, "backward": 0.29, "optimiser": 0.06, "other": 0.04}
    summary = {
        "recipe": "grpo", "task": "chain", "model": "tiny", "seed": 0, "steps": steps, "seconds": last["seconds"],
        "command": f"palaestra train @{path / 'config.toml'}", "resume_command": f"palaestra train --resume {path}",
        "sampled_tokens": last["sampled_tokens"], "peak_memory_mb": 612.4, "weights_sha256": "9f2c" * 16,
        "accuracy_before": records[0]["evaluation"], "accuracy_after": records[-1]["evaluation"],
        "phase_seconds": {k: round(v * last["seconds"], 3) for k, v in shares.items()},
        "artifacts": {"policy": str(path / "checkpoints" / f"step-{steps}")},
    } | changes  # fmt: skip
    (path / "summary.json").write_text(json.dumps(summary))
    return path
