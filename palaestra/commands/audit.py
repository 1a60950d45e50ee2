"""`palaestra audit`: where a reward can be earned without solving anything."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from palaestra.reward.user import UserReward
from palaestra.reward.verifiers.audit import Audit, audit
from palaestra.reward.verifiers.reward import Verified
from palaestra.tasks.files import first
from palaestra.types import UserError


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.data:
        raise UserError("--data is missing: problems with their answers, lines {'prompt': ..., 'answer': ...}")
    if arguments.n < 2:
        raise UserError(f"--n is {arguments.n}; try at least two problems")
    spec = arguments.reward
    judge = UserReward(spec) if ":" in spec or ".py" in spec else Verified(spec)
    found = audit(spec, judge, first(arguments.data, arguments.n))
    if not arguments.json:
        show(found)
    return asdict(found)


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
