"""A tracker that prints a line a step: `--track lines` or `--track lines:reward,length`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import palaestra as pl


class Lines:
    """Made with what stands after `lines:`, the metrics to print; "" = the reward."""

    def __init__(self, given: str = ""):
        self.names = (given or "reward").split(",")
        if "" in self.names:
            raise pl.UserError(
                f"--track lines:{given}: write names of metrics, as lines:reward,length"
            )

    def start(self, run: Mapping[str, Any]) -> None:
        print(f"lines: {run['name']}", file=sys.stderr)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        told = [f"{name} {numbers[name]:.3f}" for name in self.names if name in numbers]
        print(f"lines: {step} {' '.join(told)}", file=sys.stderr)

    def episodes(self, step: int, file: Path) -> None:
        """Episodes are not printed."""

    def finish(self, summary: Mapping[str, Any], files: Sequence[Path]) -> None:
        print(f"lines: {'finished' if summary else 'stopped'}", file=sys.stderr)
