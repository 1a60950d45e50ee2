"""`palaestra audit`: where a reward can be earned without solving anything."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra.commands.score import records
from palaestra.reward.user import UserReward
from palaestra.reward.verifiers.audit import Audit, audit
from palaestra.reward.verifiers.reward import Verified
from palaestra.types import Message, Task, UserError


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.data:
        raise UserError("--data is missing: problems with their answers, lines {'prompt': ..., 'answer': ...}")
    if arguments.n < 2:
        raise UserError(f"--n is {arguments.n}; try at least two problems")
    spec = arguments.reward
    judge = UserReward(spec) if ":" in spec or ".py" in spec else Verified(spec)
    found = audit(spec, judge, problems(Path(arguments.data))[: arguments.n])
    if not arguments.json:
        show(found)
    return asdict(found)


def problems(path: Path) -> list[Task]:
    """The problems of a JSONL file; every column but these can be read by the reward."""
    tasks: list[Task] = []
    for number, record in records(path, ()):
        messages = record.get("messages") or [{"role": "user", "content": record.get("prompt", "")}]
        try:
            prompt = tuple(Message(role=str(m["role"]), content=str(m["content"])) for m in messages)
        except (TypeError, KeyError):
            raise UserError(f"{path}:{number}: 'messages' is no list of {{'role', 'content'}}; mend it") from None
        meta = {k: v for k, v in record.items() if k not in ("prompt", "messages", "answer", "id", "domain")}
        name = str(record.get("id", f"{path.name}:{number}"))
        tasks.append(
            Task(id=name, prompt=prompt, answer=record.get("answer"), meta=meta, domain=str(record.get("domain", "")))
        )
    return tasks


def show(a: Audit) -> None:
    print(f"{a.reward}: {a.problems} problems, gold {a.gold['mean']:.4g} (written as {a.gold['form']!r})\n")
    print(f"{'probe':<48} {'mean':>8}")
    for name, score in sorted(a.probes.items(), key=lambda x: -(x[1] or 0.0)):
        print(f"{name[:48]!r:<50} {'raised' if score is None else format(score, '6.4f')}")
    if a.labels:
        print(f"\nlabelled responses: {', '.join(f'{k} {v}' for k, v in a.labels.items())}")
    t = a.latency
    print(f"\nseconds a response: median {t['median']:.2g}, 95% {t['p95']:.2g}, slowest {t['slowest']:.2g}")
    print("\nfindings:" if a.findings else "\nno findings")
    for line in a.findings:
        print(f"  - {line}")
