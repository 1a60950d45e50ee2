"""A design in a reply, judged by simulation against a reference design."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.verilog.bench import ROOT, DesignBench, bench_of
from palaestra.verifiers.verilog.simulate import Simulated, simulate
from palaestra.verifiers.verilog.source import extract_design, violation


@stage
class VerilogDesign:
    """The share of checks that the reply's last Verilog block passes in simulation; 0 if it does not
    compile, is not done in time, or uses a system task.

    `answer` is the reference design. Its inputs get random stimuli, or every value where they have at
    most 8 bits and no clock; `stimuli`, lines such as `a=3 b=1`, come before them. A design passes a
    check where its outputs equal the reference's, x and z of the reference aside. `partial=false`
    pays 1 if all are passed, else 0. The part `mutants_killed` is the share of at most `mutants`
    mutants of the reference that the stimuli tell from it.
    """

    partial: bool = True
    mutants: int = 8
    kills: float = 0.75  # below it the stimuli are made more
    seconds: float = 4.0

    def __post_init__(self) -> None:
        if self.mutants < 0 or not 0 <= self.kills <= 1 or not self.seconds > 0:
            raise UserError(
                "VerilogDesign: give mutants of at least 0, kills in [0, 1] and seconds above 0"
            )

    @guard_verifier
    def __call__(
        self, response: str, answer: Any, *, stimuli: str = "", clock: str = ""
    ) -> Judgement:
        reference = require_field(answer, "answer", str, self)
        bench = self.bench(reference, stimuli, clock)
        mutants_part = {} if bench.killed is None else {"mutants_killed": bench.killed}
        design = extract_design(strip_thinking(response), reference)
        if design is None:
            none = dict.fromkeys(("compiles", "passed", "all"), 0.0)
            return failed_judgement("unparsable", **none, **mutants_part)
        source, top = design
        ran = Simulated("compile") if violation(source) else run(source, top, bench, self.seconds)
        passed = bench.passed(ran)
        parts = {
            "compiles": float(ran.status != "compile"),
            "passed": passed,
            "all": float(passed == 1),
            **mutants_part,
        }
        status = {"timeout": "timeout", "compile": "failed"}.get(ran.status, "ok")
        score = passed if self.partial else parts["all"]
        return Judgement(score=score, parts=parts, status=status)

    def bench(self, reference: str, stimuli: str = "", clock: str = "") -> DesignBench:
        """The bench of a reference design. Raises UserError."""
        return bench_of(reference, stimuli, clock, self.mutants, self.kills, self.seconds)


@lru_cache(maxsize=4096)
def run(source: str, top: str, bench: DesignBench, seconds: float) -> Simulated:
    """A candidate's simulation, in a sandbox of its own."""
    [ran] = simulate([(source, bench.source(top))], ROOT, seconds)
    return ran
